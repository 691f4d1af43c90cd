"""How good is an assignment? The same yardstick for every assignor, and what-ifs to apply it to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coterie.assignors.cases import Case, CaseError
from coterie.assignors.model import Assignment, Assignor, Member, Owned, Topic
from coterie.assignors.user_data import read_owned
from coterie.protocol.messages import NO_GENERATION

__all__ = ["MAX_REBALANCES", "Score", "grow", "holding", "join", "leave", "owned_in", "run", "score"]

MAX_REBALANCES = 10


@dataclass(frozen=True, slots=True)
class Score:
    lightest: int
    heaviest: int
    squares: int
    """Sum of the squared loads: the smaller, the better balanced. The optimum is lexicographically best as well."""
    unread: int
    """Partitions of subscribed topics that nobody has."""
    moves: int
    """Partitions taken from a member that is still there and still subscribes."""
    matches: int
    """Partitions with a replica in the rack of their member."""
    partitions: int


def score(assignment: Mapping[str, Owned], before: Mapping[str, Owned], case: Case) -> Score:
    loads = [sum(map(len, assignment.get(member.id, {}).values())) for member in case.members] or [0]
    subscribed = {topic for member in case.members for topic in member.topics if topic in case.topics}
    partitions = sum(case.topics[topic].partitions for topic in subscribed)
    moves = matches = 0
    for member in case.members:
        after = assignment.get(member.id, {})
        for topic, ids in before.get(member.id, {}).items():
            if topic in member.topics and topic in case.topics:
                living = {partition for partition in ids if partition < case.topics[topic].partitions}
                moves += len(living.difference(after.get(topic, ())))
        for topic, ids in after.items():
            racks = case.topics[topic].racks or ()
            matches += sum(member.rack in racks[p] for p in ids if p < len(racks)) if member.rack else 0
    return Score(
        min(loads), max(loads), sum(load * load for load in loads), partitions - sum(loads), moves, matches, partitions
    )


def run(assignor: Assignor, case: Case) -> tuple[Assignment, int]:
    """Rebalances until nobody has to give anything up: the final assignment and their number. Eager groups need one."""
    members, generation = case.members, 1
    assignment = assignor.assign(members, case.topics)
    if not assignor.cooperative:
        return assignment, 1
    while generation < MAX_REBALANCES and any(
        set(ids).difference(assignment[member.id].get(topic, ()))
        for member in members
        for topic, ids in member.owned.items()
    ):
        generation += 1
        members = [replace(member, owned=assignment[member.id], generation=generation) for member in members]
        assignment = assignor.assign(members, case.topics)
    return assignment, generation


def holding(case: Case, assignment: Mapping[str, Owned]) -> Case:
    """The same group, once everyone has what it was assigned."""
    members = [
        replace(member, owned=assignment.get(member.id, {}), generation=NO_GENERATION, user_data=None)
        for member in case.members
    ]
    return Case(case.id, case.topics, members)


def owned_in(case: Case) -> dict[str, Owned]:
    """What the members say they have, in whichever place they say it."""
    return {
        member.id: member.owned or (read_owned(member.user_data)[0] if member.user_data else {})
        for member in case.members
    }


def leave(case: Case, member_id: str) -> Case:
    if member_id not in {member.id for member in case.members}:
        known = ", ".join(member.id for member in case.members[:10])
        raise CaseError(f'no member "{member_id}" to leave; members are {known}', case.id)
    return Case(case.id, case.topics, [member for member in case.members if member.id != member_id])


def join(case: Case, member_id: str, topics: Iterable[str] | None = None) -> Case:
    """Without `topics` the newcomer subscribes to all that anyone subscribes to."""
    if member_id in {member.id for member in case.members}:
        raise CaseError(f'member "{member_id}" is there already; a newcomer needs an id of its own', case.id)
    everything: Sequence[str] = list(dict.fromkeys(topic for member in case.members for topic in member.topics))
    wanted = list(everything if topics is None else topics)
    return Case(case.id, case.topics, [*case.members, Member(member_id, wanted)])


def grow(case: Case, topic: str, partitions: int) -> Case:
    old = case.topics.get(topic, Topic(0))
    if partitions < old.partitions:
        raise CaseError(f'topic "{topic}" has {old.partitions} partitions and cannot shrink to {partitions}', case.id)
    return Case(case.id, {**case.topics, topic: Topic(partitions, old.racks)}, case.members)
