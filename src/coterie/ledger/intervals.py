"""Facts folded into intervals: who held which partition from when until when, to be drawn or counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coterie import facts
from coterie.facts import Fact
from coterie.ledger.derived import MemberGone
from coterie.ledger.ownership import Ownership, Partition

__all__ = ["Interval", "Intervals", "intervals_of"]


@dataclass(slots=True)
class Interval:
    group_id: str
    partition: Partition
    owner: str
    began_ms: int
    ended_ms: int | None = None
    """None while it lasts."""


class Intervals:
    """Of all groups. A partition that its owner keeps over a rebalance stays one interval."""

    def __init__(self) -> None:
        self.all: list[Interval] = []
        self._groups: dict[str, _Group] = {}

    def tell(self, fact: Fact) -> None:
        if isinstance(fact, facts.ClockSet):
            for each in self._groups.values():
                each.clock_set(fact.by_ms)
            return
        entry = _ENTRIES.get(type(fact))
        if entry is None:
            return
        group = self._groups.get(fact.group_id)
        if group is None:
            group = self._groups[fact.group_id] = _Group(fact.group_id, self.all)
        entry(group, fact)


def intervals_of(told: Iterable[Fact]) -> list[Interval]:
    intervals = Intervals()
    for fact in told:
        intervals.tell(fact)
    return intervals.all


class _Group:
    def __init__(self, group_id: str, into: list[Interval]) -> None:
        self._group_id = group_id
        self._into = into
        self._ownership = Ownership()
        self._open: dict[Partition, Interval] = {}

    def rejoined(self, member_id: str, metadata: bytes, at_ms: int) -> None:
        before = set(self._held_by(member_id))
        self._ownership.rejoined(member_id, metadata, at_ms)
        self._close(before.difference(self._held_by(member_id)), at_ms)

    def gone(self, member_id: str, at_ms: int) -> None:
        held = self._held_by(member_id)
        self._ownership.gone(member_id, at_ms)
        self._close(held, at_ms)

    def renamed(self, old_id: str, new_id: str, at_ms: int) -> None:
        held = set(self._held_by(old_id))
        self._ownership.renamed(old_id, new_id)
        self._close(held, at_ms)
        self._begin(new_id, held, at_ms)

    def assigned(self, assignments: Mapping[str, bytes], at_ms: int) -> None:
        self._ownership.assigned(assignments, at_ms)
        owners = {one: owner for owner, held in self._ownership.held.items() for one in held}
        self._close([one for one, interval in self._open.items() if owners.get(one) != interval.owner], at_ms)
        for owner, held in self._ownership.held.items():
            self._begin(owner, [one for one in held if one not in self._open], at_ms)

    def clock_set(self, by_ms: int) -> None:
        self._ownership.clock_set(by_ms)
        for interval in self._open.values():
            interval.began_ms += by_ms

    def emptied(self, at_ms: int) -> None:
        self._ownership.emptied()
        self._close(list(self._open), at_ms)

    def _held_by(self, member_id: str) -> set[Partition]:
        return self._ownership.held.get(member_id, set())

    def _begin(self, owner: str, partitions: Iterable[Partition], at_ms: int) -> None:
        for partition in sorted(partitions):
            interval = self._open[partition] = Interval(self._group_id, partition, owner, at_ms)
            self._into.append(interval)

    def _close(self, partitions: Iterable[Partition], at_ms: int) -> None:
        for partition in partitions:
            self._open.pop(partition).ended_ms = at_ms


_Entry = Callable[[_Group, Any], None]


def _gone(group: _Group, fact: Any) -> None:
    group.gone(fact.member_id, fact.at_ms)


def _emptied(group: _Group, fact: Fact) -> None:
    group.emptied(fact.at_ms)


def _assigned(group: _Group, fact: facts.AssignmentStored | facts.GroupLoaded) -> None:
    group.assigned(fact.assignments, fact.at_ms)


_ENTRIES: Mapping[type[Fact], _Entry] = {
    facts.GroupCreated: _emptied,  # a new life: if the one before ended in a crash, nobody was left to say so
    facts.GroupEmptied: _emptied,
    facts.GroupDied: _emptied,
    facts.GroupUnloaded: _emptied,
    facts.GroupLoaded: _assigned,
    facts.AssignmentStored: _assigned,
    facts.MemberRejoined: lambda group, fact: group.rejoined(fact.member_id, fact.metadata, fact.at_ms),
    facts.MemberReplaced: lambda group, fact: group.renamed(fact.old_member_id, fact.member_id, fact.at_ms),
    facts.MemberLeft: _gone,
    MemberGone: _gone,
    facts.MemberExpired: _gone,
    facts.MemberMissedJoin: _gone,
    facts.MemberMissedSync: _gone,
    facts.MemberTurnedAway: _gone,
}
