"""Check the guarantees of the demo from the processed records and the facts of the group. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from coterie.facts import (
    AssignmentStored,
    Fact,
    MemberExpired,
    MemberJoined,
    MemberMissedJoin,
    MemberMissedSync,
    OffsetsStored,
)
from coterie.protocol.subscription import read_assignment

__all__ = ["Guarantee", "check", "removed_clients"]

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(frozen=True)
class Guarantee:
    text: str
    held: bool
    found: str


def check(
    ends: Mapping[int, int],
    done: Mapping[str, Sequence[Place]],
    crashed: Iterable[str],
    facts: Sequence[Fact],
    static_rebalances: int | None,
    static_expired: int = 0,
) -> list[Guarantee]:
    """Return all guarantees, and whether each held.

    `ends` has the number of records of each partition, and `done` what each process has processed. `crashed` are the
    processes that were killed or removed from the group in the middle of a batch. `static_expired` is the number of
    sessions that expired while static members were restarted; each of them costs a rebalance.
    """
    guarantees = [
        _nothing_lost(ends, done),
        _done_twice(done, set(crashed)),
        _one_owner(facts),
        _never_backwards(facts),
    ]
    if static_rebalances is not None:
        found = f"{static_rebalances} rebalances while the static members were restarted"
        if static_expired:
            found += f"; {static_expired} sessions timed out before the restart was done: the machine was busy"
        held = static_rebalances == 0 or static_expired > 0
        guarantees.append(Guarantee("a restart of static members causes no rebalance", held, found))
    return guarantees


def _nothing_lost(ends: Mapping[int, int], done: Mapping[str, Sequence[Place]]) -> Guarantee:
    seen = {place for places in done.values() for place in places}
    missing = [(partition, at) for partition, end in ends.items() for at in range(end) if (partition, at) not in seen]
    found = f"{sum(ends.values())} produced, {len(missing)} missing"
    if missing:
        found += f", the first of them partition {missing[0][0]} offset {missing[0][1]}"
    return Guarantee("every order is processed", not missing, found)


def _done_twice(done: Mapping[str, Sequence[Place]], crashed: set[str]) -> Guarantee:
    """A record may be processed twice only if a crashed member was one of the two."""
    times = Counter(place for places in done.values() for place in places)
    twice = {place for place, count in times.items() if count > 1}
    excused = {place for name in crashed for place in done.get(name, ()) if place in twice}
    return Guarantee(
        "no order is processed twice, except those in progress when a member was killed or too slow",
        not twice - excused,
        f"{len(excused)} twice for that reason, {len(twice - excused)} for another",
    )


def _one_owner(facts: Sequence[Fact]) -> Guarantee:
    assignments = [fact for fact in facts if isinstance(fact, AssignmentStored)]
    shared = 0
    for fact in assignments:
        owners = Counter(
            (topic, number)
            for data in fact.assignments.values()
            if data
            for topic, numbers in read_assignment(data).partitions.items()
            for number in numbers
        )
        shared += sum(count > 1 for count in owners.values())
    found = f"{len(assignments)} assignments, {shared} partitions with two owners"
    return Guarantee("a partition has at most one owner in a generation", not shared, found)


def _never_backwards(facts: Sequence[Fact]) -> Guarantee:
    last: dict[tuple[str, str, int], int] = {}
    commits = back = 0
    for fact in facts:
        if isinstance(fact, OffsetsStored):
            for topic, partition, offset in fact.offsets:
                commits += 1
                back += offset < last.get((fact.group_id, topic, partition), 0)
                last[fact.group_id, topic, partition] = offset
    return Guarantee("committed offsets never move backwards", not back, f"{commits} commits, {back} moved backwards")


def removed_clients(facts: Sequence[Fact]) -> set[str]:
    """Return the client ids of members that timed out or were too late for a rebalance."""
    clients = {fact.member_id: fact.client_id for fact in facts if isinstance(fact, MemberJoined)}
    kinds = (MemberExpired, MemberMissedJoin, MemberMissedSync)
    return {clients.get(fact.member_id, "") for fact in facts if isinstance(fact, kinds)}
