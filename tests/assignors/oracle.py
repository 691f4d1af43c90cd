"""What an assignment is worth, and what the best one would be: partitions matched to slots, by SciPy.

Slot k of a member costs 2k + 1, so that a load of n costs n squared; on top comes a move, and off it goes a rack match,
each too small to outweigh the one before. The matching knows nothing of piles, blocks or paths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from coterie.assignors import Assignment
from coterie.assignors.cases import Case

__all__ = ["Worth", "check_valid", "optimum", "owners", "worth"]

FORBIDDEN = 1e15


class Worth(NamedTuple):
    squares: int
    """Sum of the squared loads: balance."""
    moves: int
    """Partitions taken from a living, still subscribed owner."""
    far: int
    """Partitions that are not near to their member."""


def owners(case: Case) -> dict[tuple[str, int], str]:
    """Whoever owns a partition and may go on: clean claims only."""
    return {
        (topic, partition): member.id
        for member in case.members
        for topic, ids in member.owned.items()
        if topic in member.topics and topic in case.topics
        for partition in ids
        if partition < case.topics[topic].partitions
    }


def _near(case: Case, member: int, topic: str, partition: int) -> bool:
    racks = case.topics[topic].racks
    return racks is not None and partition < len(racks) and case.members[member].rack in racks[partition]


def worth(case: Case, assignment: Assignment) -> Worth:
    owned = owners(case)
    loads = [sum(map(len, assignment[member.id].values())) for member in case.members]
    pairs = [
        (number, topic, partition)
        for number, member in enumerate(case.members)
        for topic, ids in assignment[member.id].items()
        for partition in ids
    ]
    moves = sum(owned.get((t, p), case.members[number].id) != case.members[number].id for number, t, p in pairs)
    return Worth(
        sum(load * load for load in loads), moves, len(pairs) - sum(_near(case, number, t, p) for number, t, p in pairs)
    )


def optimum(case: Case) -> Worth:
    """The best balance there is, the fewest moves it takes, and the most rack matches both leave."""
    members, owned = case.members, owners(case)
    readers = {t: [n for n, member in enumerate(members) if t in member.topics] for t in case.topics}
    partitions = [(t, p) for t, topic in case.topics.items() if readers[t] for p in range(topic.partitions)]
    if not partitions:
        return Worth(0, 0, 0)
    move = len(partitions) + 1
    slot = move * (len(partitions) + 1)
    slots = [sum(case.topics[t].partitions for t in set(member.topics) if t in case.topics) for member in members]
    member_of = np.repeat(np.arange(len(members)), slots)
    price_of = np.concatenate([np.arange(count) * 2.0 + 1 for count in slots]) * slot
    costs = np.full((len(partitions), len(member_of)), FORBIDDEN)
    for row, (topic, partition) in enumerate(partitions):
        by_member = np.full(len(members), FORBIDDEN)
        for number in readers[topic]:
            moved = owned.get((topic, partition), members[number].id) != members[number].id
            by_member[number] = move * moved + (not _near(case, number, topic, partition))
        costs[row] = by_member[member_of] + price_of
    rows, columns = linear_sum_assignment(costs)
    best: dict[str, dict[str, list[int]]] = {member.id: {} for member in members}
    for row, column in zip(rows, columns, strict=True):
        topic, partition = partitions[row]
        best[members[member_of[column]].id].setdefault(topic, []).append(partition)
    return worth(case, dict(best))  # type: ignore[arg-type]


def check_valid(case: Case, assignment: Assignment, *, withheld: int = 0) -> None:
    """Everyone is in it, has only what it subscribes to, nothing is given twice, and all but `withheld` is given."""
    assert set(assignment) == {member.id for member in case.members}
    seen: set[tuple[str, int]] = set()
    for member in case.members:
        for topic, ids in assignment[member.id].items():
            assert topic in member.topics
            for partition in ids:
                assert 0 <= partition < case.topics[topic].partitions
                assert (topic, partition) not in seen
                seen.add((topic, partition))
    subscribed = {topic for member in case.members for topic in member.topics if topic in case.topics}
    assert len(seen) == sum(case.topics[topic].partitions for topic in subscribed) - withheld
