"""Who owned what, from when until when, whatever the design; and what it came to: two owners, none, how long.

Whoever watches a group says who is there and what each owns. `is_at_rest`: every partition has one owner, and everybody
who can have one owns something.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from coterie.history.design_types import Partition
from coterie.ledger import Interval

__all__ = ["NOTHING", "Owning", "Shared", "Sum"]


@dataclass(frozen=True, slots=True)
class Shared:
    """A partition had not one owner for a while, but several, or none."""

    partition: Partition
    owners: tuple[str, ...]
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Sum:
    moments: int = 0
    ms: int = 0
    """Of all partitions together."""

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.moments + other.moments, self.ms + other.ms)

    @classmethod
    def of(cls, found: Sequence[Shared]) -> Sum:
        return cls(len(found), sum(one.ended_ms - one.began_ms for one in found))


NOTHING = Sum()


class Owning:
    def __init__(self, group_id: str, partitions: Sequence[Partition]) -> None:
        self.intervals: list[Interval] = []
        self.rests: list[tuple[int, bool]] = [(0, False)]
        """From when on it was at rest, or was not."""
        self._group_id = group_id
        self._partitions = partitions
        self._owned: dict[str, frozenset[Partition]] = {}
        self._owners: dict[Partition, int] = dict.fromkeys(partitions, 0)
        self._open: dict[tuple[str, Partition], Interval] = {}

    # --- what is said -------------------------------------------------------------------------------------------------

    def came(self, who: str, at_ms: int) -> None:
        self._owned.setdefault(who, frozenset())
        self._look(at_ms)

    def went(self, who: str, at_ms: int) -> None:
        self.owns(who, frozenset(), at_ms)
        self._owned.pop(who, None)
        self._look(at_ms)

    def owns(self, who: str, what: Collection[Partition], at_ms: int) -> None:
        """From now on, this and nothing else."""
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
        self._look(at_ms)

    @property
    def is_at_rest(self) -> bool:
        busy = sum(bool(one) for one in self._owned.values())
        return busy == min(len(self._owned), len(self._partitions)) and all(
            count == 1 for count in self._owners.values()
        )

    def _look(self, at_ms: int) -> None:
        if self.is_at_rest is not self.rests[-1][1]:
            self.rests.append((at_ms, self.is_at_rest))

    # --- what it came to ----------------------------------------------------------------------------------------------

    def at_rest_after(self, began_ms: int, ended_ms: int) -> int | None:
        """When it was at rest for good in this time; `began_ms` if it was never disturbed, None if it never was."""
        state = next(is_so for at_ms, is_so in reversed(self.rests) if at_ms < ended_ms)
        if not state:
            return None
        since = next(at_ms for at_ms, is_so in reversed(self.rests) if at_ms < ended_ms and is_so)
        return max(since, began_ms)

    def several(self, began_ms: int, ended_ms: int) -> list[Shared]:
        return [one for one in self._shared(began_ms, ended_ms) if len(one.owners) > 1]

    def nobody(self, began_ms: int, ended_ms: int) -> list[Shared]:
        return [one for one in self._shared(began_ms, ended_ms) if not one.owners]

    def _shared(self, began_ms: int, ended_ms: int) -> Iterator[Shared]:
        """All times in which the owners of a partition were the same; none of them is empty."""
        mine: dict[Partition, list[Interval]] = {one: [] for one in self._partitions}
        for interval in self.intervals:
            mine[interval.partition].append(interval)
        for partition, intervals in mine.items():
            turns = {began_ms, ended_ms}
            for one in intervals:
                turns |= {at for at in (one.began_ms, one.ended_ms) if at is not None and began_ms < at < ended_ms}
            times = sorted(turns)
            last: Shared | None = None
            for start, end in pairwise(times):
                owners = tuple(
                    one.owner
                    for one in intervals
                    if one.began_ms <= start and (one.ended_ms is None or one.ended_ms >= end)
                )
                if last is not None and last.owners == owners:
                    last = Shared(partition, owners, last.began_ms, end)
                    continue
                if last is not None:
                    yield last
                last = Shared(partition, owners, start, end)
            if last is not None:
                yield last
