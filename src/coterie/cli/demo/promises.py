"""What must hold when the demonstration is over, and what of it did not. Pure: notes and facts in, verdicts out."""

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

__all__ = ["Promise", "check", "put_out"]

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True)
class Promise:
    text: str
    is_kept: bool
    found: str


def check(
    ends: Mapping[int, int],
    done: Mapping[str, Sequence[Place]],
    crashed: Iterable[str],
    told: Sequence[Fact],
    static_rebalances: int | None,
    static_expired: int = 0,
) -> list[Promise]:
    """`ends`: how many records each partition got. `done`: what each member, by name, has processed. `crashed`: those
    that were killed or put out of the group in the middle of a batch. `static_expired`: sessions that expired in the
    restarts of static members; those cost a rebalance, as they must.
    """
    promises = [_nothing_lost(ends, done), _done_twice(done, set(crashed)), _one_owner(told), _never_backwards(told)]
    if static_rebalances is not None:
        found = f"{static_rebalances} rebalances while the static members were restarted"
        if static_expired:
            found += f"; {static_expired} sessions timed out before the restart was done: the machine was busy"
        is_kept = static_rebalances == 0 or static_expired > 0
        promises.append(Promise("a restart of static members causes no rebalance", is_kept, found))
    return promises


def _nothing_lost(ends: Mapping[int, int], done: Mapping[str, Sequence[Place]]) -> Promise:
    seen = {place for places in done.values() for place in places}
    missing = [(partition, at) for partition, end in ends.items() for at in range(end) if (partition, at) not in seen]
    found = f"{sum(ends.values())} produced, {len(missing)} missing"
    if missing:
        found += f", the first of them partition {missing[0][0]} offset {missing[0][1]}"
    return Promise("every order is processed", not missing, found)


def _done_twice(done: Mapping[str, Sequence[Place]], crashed: set[str]) -> Promise:
    """A record that was done twice has had two hands on it; where it is promised, one of them is a crashed member's."""
    times = Counter(place for places in done.values() for place in places)
    twice = {place for place, count in times.items() if count > 1}
    excused = {place for name in crashed for place in done.get(name, ()) if place in twice}
    return Promise(
        "no order is processed twice, except those in progress when a member was killed or too slow",
        not twice - excused,
        f"{len(excused)} twice for that reason, {len(twice - excused)} for another",
    )


def _one_owner(told: Sequence[Fact]) -> Promise:
    assignments = [fact for fact in told if isinstance(fact, AssignmentStored)]
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
    return Promise("a partition has at most one owner in a generation", not shared, found)


def _never_backwards(told: Sequence[Fact]) -> Promise:
    last: dict[tuple[str, str, int], int] = {}
    commits = back = 0
    for fact in told:
        if isinstance(fact, OffsetsStored):
            for topic, partition, offset in fact.offsets:
                commits += 1
                back += offset < last.get((fact.group_id, topic, partition), 0)
                last[fact.group_id, topic, partition] = offset
    return Promise("committed offsets never move backwards", not back, f"{commits} commits, {back} moved backwards")


def put_out(told: Sequence[Fact]) -> set[str]:
    """The clients whose members did not leave by themselves: silent for a session, or too late for a rebalance."""
    clients = {fact.member_id: fact.client_id for fact in told if isinstance(fact, MemberJoined)}
    kinds = (MemberExpired, MemberMissedJoin, MemberMissedSync)
    return {clients.get(fact.member_id, "") for fact in told if isinstance(fact, kinds)}
