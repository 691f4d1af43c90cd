"""The cost of a scenario under a design: requests and messages by period, and the owner of each partition over time.

`OwnershipTimeline` gets every change of members and of what they own, and finds the times in which a partition had two
owners or none. A group is stable when every partition has one owner and every member that can own something does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from coterie.history.design_types import Partition
from coterie.history.scenario import Period, Scenario
from coterie.ledger import Interval


@dataclass(frozen=True, slots=True)
class OwnersInterval:
    """A time in which a partition had several owners, or none."""

    partition: Partition
    owners: tuple[str, ...]
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Total:
    """The number of such intervals, and their length, summed over all partitions."""

    count: int = 0
    ms: int = 0

    def __add__(self, other: Total) -> Total:
        return Total(self.count + other.count, self.ms + other.ms)

    @classmethod
    def of(cls, found: Sequence[OwnersInterval]) -> Total:
        return cls(len(found), sum(one.ended_ms - one.began_ms for one in found))


NOTHING = Total()


class OwnershipTimeline:
    def __init__(self, group_id: str, partitions: Sequence[Partition]) -> None:
        self.intervals: list[Interval] = []
        self._stable_changes: list[tuple[int, bool]] = [(0, False)]
        """The times at which the group became stable, or stopped being so."""
        self._group_id = group_id
        self._partitions = partitions
        self._owned: dict[str, frozenset[Partition]] = {}
        self._owners: dict[Partition, int] = dict.fromkeys(partitions, 0)
        self._open: dict[tuple[str, Partition], Interval] = {}

    # --- changes ------------------------------------------------------------------------------------------------------

    def added(self, who: str, at_ms: int) -> None:
        self._owned.setdefault(who, frozenset())
        self._note_stability(at_ms)

    def removed(self, who: str, at_ms: int) -> None:
        self.owns(who, frozenset(), at_ms)
        self._owned.pop(who, None)
        self._note_stability(at_ms)

    def owns(self, who: str, what: Collection[Partition], at_ms: int) -> None:
        """Note that `who` owns these partitions and no others from now on."""
        before, after = self._owned.get(who), frozenset(what)
        if before is None or before == after:
            return
        self._owned[who] = after
        for one in before - after:
            self._owners[one] -= 1
            self._open.pop((who, one)).ended_ms = at_ms
        for one in sorted(after - before):
            self._owners[one] += 1
            interval = self._open[who, one] = Interval(self._group_id, one, who, at_ms)
            self.intervals.append(interval)
        self._note_stability(at_ms)

    @property
    def is_stable(self) -> bool:
        busy = sum(bool(one) for one in self._owned.values())
        return busy == min(len(self._owned), len(self._partitions)) and all(
            count == 1 for count in self._owners.values()
        )

    def _note_stability(self, at_ms: int) -> None:
        if self.is_stable is not self._stable_changes[-1][1]:
            self._stable_changes.append((at_ms, self.is_stable))

    # --- results ------------------------------------------------------------------------------------------------------

    def stable_since(self, began_ms: int, ended_ms: int) -> int | None:
        """Return since when the group was stable at `ended_ms`, at least `began_ms`; None if it was not."""
        state = next(is_so for at_ms, is_so in reversed(self._stable_changes) if at_ms < ended_ms)
        if not state:
            return None
        since = next(at_ms for at_ms, is_so in reversed(self._stable_changes) if at_ms < ended_ms and is_so)
        return max(since, began_ms)

    def two_owners(self, began_ms: int, ended_ms: int) -> list[OwnersInterval]:
        return [one for one in self._by_owners(began_ms, ended_ms) if len(one.owners) > 1]

    def unassigned(self, began_ms: int, ended_ms: int) -> list[OwnersInterval]:
        return [one for one in self._by_owners(began_ms, ended_ms) if not one.owners]

    def _by_owners(self, began_ms: int, ended_ms: int) -> Iterator[OwnersInterval]:
        """Split the time of each partition by its owners."""
        mine: dict[Partition, list[Interval]] = {one: [] for one in self._partitions}
        for interval in self.intervals:
            mine[interval.partition].append(interval)
        for partition, intervals in mine.items():
            changes = {began_ms, ended_ms}
            for one in intervals:
                changes |= {at for at in (one.began_ms, one.ended_ms) if at is not None and began_ms < at < ended_ms}
            times = sorted(changes)
            last: OwnersInterval | None = None
            for start, end in pairwise(times):
                owners = tuple(
                    one.owner
                    for one in intervals
                    if one.began_ms <= start and (one.ended_ms is None or one.ended_ms >= end)
                )
                if last is not None and last.owners == owners:
                    last = OwnersInterval(partition, owners, last.began_ms, end)
                    continue
                if last is not None:
                    yield last
                last = OwnersInterval(partition, owners, start, end)
            if last is not None:
                yield last


class Design(StrEnum):
    WATCHERS = "1 watchers"
    SERVER = "2 server-side"
    EAGER = "3 eager"
    COOPERATIVE = "3 cooperative"
    CONSUMER = "4 KIP-848"


@dataclass(frozen=True, slots=True)
class ChangeCost:
    """The cost of one change: of the period that begins with it."""

    notified: int
    """Notifications from ZooKeeper."""
    reads: int
    """Reads from ZooKeeper."""
    membership_reads: int
    """The reads that list members or read their subscriptions."""
    attempts: int
    """Design 1: how often a member listed the members to assign partitions."""
    messages: int
    """Messages between members and coordinator, without commits and heartbeats that change nothing."""
    restarts: int
    """Processes that were stopped and started again."""
    stable_after_ms: int | None
    """The time until the group is stable again; None if it is not within the period."""
    two_owners: Total
    unassigned: Total


@dataclass(slots=True)
class DesignRun:
    design: Design
    scenario: Scenario
    owns: OwnershipTimeline
    """The partitions that a process reads (design 1) or can commit (the other designs)."""
    believes: OwnershipTimeline
    """The partitions that a process believes to own, also while it is paused or after it was replaced."""
    marks: list[Counter[str]] = field(default_factory=list)
    """The counters at the begin of each period, and at the end."""
    went_back: int = 0
    """Accepted commits that moved an offset back, behind the commit of another member."""
    _committed: dict[Partition, int] = field(default_factory=dict)

    def added(self, who: str, at_ms: int) -> None:
        self.owns.added(who, at_ms)
        self.believes.added(who, at_ms)

    def removed(self, who: str, at_ms: int) -> None:
        self.owns.removed(who, at_ms)
        self.believes.removed(who, at_ms)

    def committed(self, where: Partition, offset: int) -> None:
        self.went_back += offset < self._committed.get(where, 0)
        self._committed[where] = offset

    def cost(self, period: Period) -> ChangeCost:
        at = self.scenario.periods.index(period)
        counts = self.marks[at + 1] - self.marks[at]
        began_ms, ended_ms = period.began_ms, period.ended_ms
        stable_ms = self.owns.stable_since(began_ms, ended_ms)
        return ChangeCost(
            counts["notifications"],
            counts["reads"],
            counts["membership_reads"],
            counts["attempts"],
            counts["messages"],
            counts["restarts"],
            None if stable_ms is None else stable_ms - began_ms,
            Total.of(self.owns.two_owners(began_ms, ended_ms)),
            Total.of(self.owns.unassigned(began_ms, ended_ms)),
        )

    @property
    def _whole(self) -> tuple[int, int]:
        return self.scenario.periods[0].began_ms, self.scenario.length_ms

    @property
    def two_owners(self) -> list[OwnersInterval]:
        return self.owns.two_owners(*self._whole)

    @property
    def unassigned(self) -> Total:
        return Total.of(self.owns.unassigned(*self._whole))

    @property
    def believed(self) -> Total:
        """The times in which two members believed to own the same partition."""
        return Total.of(self.believes.two_owners(*self._whole))

    @property
    def is_stable_at_end(self) -> bool:
        return self.owns.is_stable
