"""The owner of each partition, from the members' own view, and since when a partition is unassigned.

In a classic group a member gives up what its JoinGroup no longer lists as owned; a cooperative member reads on in the
rest. It owns what a stored assignment gives it. In a consumer group (KIP-848) a member owns what it is assigned, and
what it must give up until it reports that it has. A member gives up everything when it leaves the group. `intervals_of`
folds facts into who owned what from when until when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from coterie import facts
from coterie.errors import MalformedError
from coterie.facts import Fact
from coterie.ledger.derived import MemberGone
from coterie.protocol.subscription import read_assignment, read_subscription
from coterie.structs import DataStruct, field

Partition = tuple[str, int]


class Move(DataStruct, frozen=True):
    partition: Partition
    old_owner: str
    """The last owner, even if it has left; empty if there was none."""
    new_owner: str
    unassigned_ms: int | None = None
    """The time for which it was unassigned before; None if that is not known, as for one that never had an owner."""


class Ownership(DataStruct):
    held: dict[str, set[Partition]] = field(default_factory=dict)
    """The partitions of each member, so that a change costs as much as that member owns, not the whole group."""
    free_since_ms: dict[Partition, int] = field(default_factory=dict)
    last_owners: dict[Partition, str] = field(default_factory=dict)
    """The last owner of every partition that was ever assigned."""

    def rejoined(self, member_id: str, metadata: bytes, at_ms: int) -> None:
        """Free what the member no longer says that it owns; everything if its metadata cannot be read."""
        held = self.held.get(member_id)
        if not held:
            return
        try:
            owned = read_subscription(metadata).owned
        except MalformedError:
            owned = {}
        kept = {(topic, partition) for topic, partitions in owned.items() for partition in partitions}
        self._free(held - kept, at_ms)
        held &= kept

    def gone(self, member_id: str, at_ms: int) -> None:
        self._free(self.held.pop(member_id, set()), at_ms)

    def took(self, member_id: str, owned: set[Partition], at_ms: int) -> tuple[list[Move], int]:
        """Set what one member owns. Returns the moves and the ended gaps in ms."""
        held = self.held.get(member_id, set())
        self._free(held - owned, at_ms)
        moves: list[Move] = []
        gaps_ms = 0
        for partition in sorted(owned - held):
            self.held.get(self.last_owners.get(partition, ""), set()).discard(partition)  # if a record is missing
            move, gap_ms = self._take(partition, member_id, at_ms)
            moves += [] if move is None else [move]
            gaps_ms += gap_ms
        self.held[member_id] = owned
        return moves, gaps_ms

    def _take(self, partition: Partition, owner: str, at_ms: int) -> tuple[Move | None, int]:
        """Make a member the last owner of a partition. Returns the move, if it is one, and the ended gap in ms."""
        before, since_ms = self.last_owners.get(partition, ""), self.free_since_ms.pop(partition, None)
        gap_ms = 0 if since_ms is None else at_ms - since_ms
        if before == owner:
            return None, gap_ms
        self.last_owners[partition] = owner
        return Move(partition, before, owner, gap_ms if before else None), gap_ms

    def renamed(self, old_id: str, new_id: str) -> None:
        held = self.held[new_id] = self.held.pop(old_id, set())
        self.last_owners.update(dict.fromkeys(held, new_id))

    def assigned(self, assignments: Mapping[str, bytes], at_ms: int) -> tuple[list[Move], int, int]:
        """Apply a stored assignment. Returns the moves, the number of kept partitions, and the ended gaps in ms."""
        moves: list[Move] = []
        kept = gaps_ms = 0
        lost = set[Partition]().union(*self.held.values())
        self.held = {}
        for partition, owner in _owners(assignments):
            move, gap_ms = self._take(partition, owner, at_ms)
            if move is None:
                kept += 1
            else:
                moves.append(move)
            gaps_ms += gap_ms
            self.held.setdefault(owner, set()).add(partition)
            lost.discard(partition)
        self._free(lost, at_ms)
        return moves, kept, gaps_ms

    def emptied(self) -> None:
        """Forget everything: a group without members has no unassigned time."""
        self.held.clear()
        self.free_since_ms.clear()
        self.last_owners.clear()

    def clock_set(self, by_ms: int) -> None:
        for partition in self.free_since_ms:
            self.free_since_ms[partition] += by_ms

    def _free(self, partitions: Iterable[Partition], at_ms: int) -> None:
        for partition in partitions:
            self.free_since_ms.setdefault(partition, at_ms)


def rejoins_of(fact: facts.JoinPhaseCompleted) -> list[facts.MemberRejoined]:
    """Return the joins of members that are not new, each as a fact of its own, in their order."""
    began_ms = fact.at_ms - fact.took_ms
    after_ms = fact.joined_after_ms
    rejoins = [
        facts.MemberRejoined(began_ms + after_ms.get(member_id, fact.took_ms), fact.group_id, member_id, metadata)
        for metadata, members in fact.rejoined
        for member_id in members
    ]
    return sorted(rejoins, key=lambda one: one.at_ms)


def owned_by(fact: facts.MemberAssigned) -> set[Partition]:
    """Return what the member owns: what it is assigned, and what it has yet to give up."""
    return {
        (topic, number)
        for partitions in (fact.assigned, fact.pending_revocation)
        for topic, numbers in partitions.items()
        for number in numbers
    }


def _owners(assignments: Mapping[str, bytes]) -> Iterable[tuple[Partition, str]]:
    """Return the owner of each partition. Assignments that are empty or not a consumer's have none."""
    for member_id, data in assignments.items():
        try:
            partitions = read_assignment(data).partitions
        except MalformedError:
            continue
        for topic, numbers in partitions.items():
            for number in numbers:
                yield (topic, number), member_id


# --- intervals --------------------------------------------------------------------------------------------------------


class Interval(DataStruct):
    group_id: str
    partition: Partition
    owner: str
    began_ms: int
    ended_ms: int | None = None
    """None while it is still owned."""


class Intervals:
    """The intervals of all groups. A partition that its owner keeps over a rebalance stays one interval."""

    def __init__(self) -> None:
        self.all: list[Interval] = []
        self._groups: dict[str, _GroupIntervals] = {}

    def add(self, fact: Fact) -> None:
        if isinstance(fact, facts.ClockSet):
            for each in self._groups.values():
                each.clock_set(fact.by_ms)
            return
        entry = _ENTRIES.get(type(fact))
        if entry is None:
            return
        group = self._groups.get(fact.group_id)
        if group is None:
            group = self._groups[fact.group_id] = _GroupIntervals(fact.group_id, self.all)
        entry(group, fact)


def intervals_of(group_facts: Iterable[Fact]) -> list[Interval]:
    """Return who owned which partition when, for all groups in these facts."""
    intervals = Intervals()
    for fact in group_facts:
        intervals.add(fact)
    return intervals.all


class _GroupIntervals:
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

    def took(self, member_id: str, owned: set[Partition], at_ms: int) -> None:
        before = self._held_by(member_id)
        self._ownership.took(member_id, owned, at_ms)
        taken = owned - before
        self._close([*(before - owned), *(one for one in taken if one in self._open)], at_ms)
        self._begin(member_id, taken, at_ms)

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


_Entry = Callable[[_GroupIntervals, Any], None]


def _gone(group: _GroupIntervals, fact: Any) -> None:
    group.gone(fact.member_id, fact.at_ms)


def _emptied(group: _GroupIntervals, fact: Fact) -> None:
    group.emptied(fact.at_ms)


def _assigned(group: _GroupIntervals, fact: facts.AssignmentStored | facts.GroupLoaded) -> None:
    group.assigned(fact.assignments, fact.at_ms)


def _joined(group: _GroupIntervals, fact: facts.JoinPhaseCompleted) -> None:
    for one in rejoins_of(fact):
        group.rejoined(one.member_id, one.metadata, one.at_ms)


_ENTRIES: Mapping[type[Fact], _Entry] = {
    facts.GroupCreated: _emptied,  # the group before it may have ended in a crash
    facts.GroupEmptied: _emptied,
    facts.GroupDied: _emptied,
    facts.GroupUnloaded: _emptied,
    facts.GroupLoaded: _assigned,
    facts.AssignmentStored: _assigned,
    facts.MemberAssigned: lambda group, fact: group.took(fact.member_id, owned_by(fact), fact.at_ms),
    facts.JoinPhaseCompleted: _joined,
    facts.MemberRejoined: lambda group, fact: group.rejoined(fact.member_id, fact.metadata, fact.at_ms),
    facts.MemberReplaced: lambda group, fact: group.renamed(fact.old_member_id, fact.member_id, fact.at_ms),
    facts.MemberLeft: _gone,
    MemberGone: _gone,
    facts.MemberExpired: _gone,
    facts.MemberMissedJoin: _gone,
    facts.MemberMissedRevocation: _gone,
    facts.MemberMissedSync: _gone,
    facts.MemberTurnedAway: _gone,
}
