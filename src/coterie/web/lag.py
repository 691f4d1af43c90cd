"""The lag of groups over time, in records and in seconds, from samples of committed and end offsets.

The lag in seconds is the time since the end of the log was where the group is now. It is read from the end offsets of
earlier samples, between which it is interpolated. If the group is further behind than the samples reach, it is unknown.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from coterie.diagnosis import GroupSample, PartitionLag
from coterie.ledger.ownership import Partition

MOST_POINTS = 4_096
MOST_ENDS = 64
"""End offsets that are kept of a partition; the older ones lie further apart."""


@dataclass(frozen=True, slots=True)
class LagPoint:
    at_ms: int
    records: int | None
    seconds: float | None
    """The largest of all partitions."""


class EndOffsets:
    """The end offsets of all partitions over time; groups of one cluster share them."""

    def __init__(self) -> None:
        self._ends: dict[Partition, tuple[array[int], array[int]]] = {}

    def add(self, partitions: Iterable[PartitionLag], at_ms: int) -> None:
        for one in partitions:
            if one.end is None:
                continue
            times, ends = self._ends.setdefault((one.topic, one.partition), (array("q"), array("q")))
            if times and (at_ms <= times[-1] or one.end < ends[-1]):
                if one.end >= ends[-1]:
                    continue
                del times[:], ends[:]  # the topic was created again, or records were lost
            if len(ends) > 1 and ends[-1] == ends[-2] == one.end:
                times[-1] = at_ms
                continue
            times.append(at_ms)
            ends.append(one.end)
            if len(times) > MOST_ENDS:
                half = MOST_ENDS // 2
                del times[1:half:2], ends[1:half:2]

    def seconds_behind(self, one: PartitionLag, at_ms: int) -> float | None:
        """Return for how long the record at the committed offset has waited; None if that is not known."""
        if one.committed is None or one.end is None:
            return None
        if one.committed >= one.end:
            return 0.0
        times, ends = self._ends.get((one.topic, one.partition), (array("q"), array("q")))
        index = bisect_right(ends, one.committed)
        if not 0 < index < len(ends):
            return None
        (begin, end), (from_ms, to_ms) = ends[index - 1 : index + 1], times[index - 1 : index + 1]
        written_ms = from_ms + (to_ms - from_ms) * (one.committed - begin) / (end - begin)
        return max(at_ms - written_ms, 0) / 1_000


class LagSeries:
    """The lag of one group over time. Older points lie further apart."""

    def __init__(self) -> None:
        self.points: deque[LagPoint] = deque()
        self.last: GroupSample | None = None

    def add(self, sample: GroupSample, ends: EndOffsets) -> LagPoint:
        behind = [ends.seconds_behind(one, sample.at_ms) for one in sample.partitions if one.lag is not None]
        known = [seconds for seconds in behind if seconds is not None]
        point = LagPoint(sample.at_ms, sample.lag, max(known) if known and len(known) == len(behind) else None)
        self.points.append(point)
        self.last = sample
        if len(self.points) > MOST_POINTS:
            kept = list(self.points)
            half = MOST_POINTS // 2
            self.points = deque([*kept[:half:2], *kept[half:]])
        return point
