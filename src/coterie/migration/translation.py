"""Which offset a record of the source has in the target, as a sorted list of segments for each partition.

Offsets differ: compaction, aborted transactions and markers leave gaps in the source, and each transaction of the copy
leaves a marker in the target. A segment is a run of records without a gap on either side. When there are too many
segments, neighbours are merged into a loose one, which only knows where it begins and ends on both sides. A committed
offset inside a loose segment becomes the start of the segment: records may be read twice, none is skipped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

MOST_PER_TRANSACTION = 1_000
"""How many segments one transaction may add to a partition."""


class Segment(NamedTuple):
    """Copied records: offsets [source, source_end) are now [target, target_end)."""

    source: int
    target: int
    records: int
    """How many records it has."""
    source_end: int
    target_end: int

    @property
    def is_exact(self) -> bool:
        """True if there is no gap on either side, so that every offset inside can be translated."""
        return self.records == self.source_end - self.source == self.target_end - self.target

    @classmethod
    def exact(cls, source: int, target: int, count: int) -> Segment:
        """Make the segment of `count` records without a gap."""
        return cls(source, target, count, source + count, target + count)


def segments_of(offsets: Iterable[tuple[int, int]]) -> list[Segment]:
    """Return the segments of pairs of offsets, source and target, in the order of the records."""
    found: list[Segment] = []
    for source, target in offsets:
        last = found[-1] if found else None
        if last is not None and last.source_end == source and last.target_end == target:
            found[-1] = Segment.exact(last.source, last.target, last.records + 1)
        else:
            found.append(Segment.exact(source, target, 1))
    return _bounded(found)


def segments_of_runs(runs: Iterable[tuple[int, int, int]]) -> list[Segment]:
    """Return the segments of runs without a gap: where each begins, in the source and in the target, and its length."""
    return _bounded([Segment.exact(*one) for one in runs])


def _bounded(found: list[Segment]) -> list[Segment]:
    """Merge neighbours if they are too many for a transaction."""
    many = -(-len(found) // MOST_PER_TRANSACTION)
    return [merged(found[at : at + many]) for at in range(0, len(found), many)] if many > 1 else found


def merged(segments: Sequence[Segment]) -> Segment:
    """Return one segment for neighbours: loose, unless there is nothing between them."""
    first, last = segments[0], segments[-1]
    count = sum(one.records for one in segments)
    return Segment(first.source, first.target, count, last.source_end, last.target_end)


class Chunk(NamedTuple):
    """The segments that one transaction has copied. A slot names its place in the stored progress."""

    slot: int
    segments: tuple[Segment, ...]


class OffsetTable:
    """The segments of one partition, at most `limit` of them or somewhat more."""

    def __init__(self, chunks: Iterable[Chunk] = (), *, limit: int = 100_000) -> None:
        """Take the chunks that were stored, in any order. Chunks that a merged one covers are left out."""
        self.limit = limit
        self._chunks: list[Chunk] = []
        self._size = 0
        for chunk in sorted(chunks, key=lambda one: (one.segments[0].source, -one.segments[-1].source_end)):
            if chunk.segments[0].source >= self.source_end:
                self._append(chunk)
        used = {one.slot for one in self._chunks}
        self._next_slot = max(used, default=-1) + 1
        self._free = sorted(set(range(self._next_slot)) - used)

    def _append(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk.segments)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Segment]:
        return (one for chunk in self._chunks for one in chunk.segments)

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks as they are stored."""
        return tuple(self._chunks)

    @property
    def records(self) -> int:
        """How many records were copied."""
        return sum(one.records for one in self)

    @property
    def source_end(self) -> int:
        """The offset after the last copied record, in the source; 0 if nothing was copied."""
        return self._chunks[-1].segments[-1].source_end if self._chunks else 0

    @property
    def target_end(self) -> int:
        """The offset after the last copied record, in the target; 0 if nothing was copied."""
        return self._chunks[-1].segments[-1].target_end if self._chunks else 0

    def add(self, segments: Sequence[Segment]) -> list[Chunk]:
        """Add what a transaction has copied. Returns the chunks to store with it: the new one and merged ones."""
        assert segments[0].source >= self.source_end, "records are copied in order"
        changed = self._merge() if self._size + len(segments) > self.limit else []
        if self._free:
            slot = self._free.pop()
        else:
            slot, self._next_slot = self._next_slot, self._next_slot + 1
        chunk = Chunk(slot, tuple(segments))
        self._append(chunk)
        return [*changed, chunk]

    def _merge(self) -> list[Chunk]:
        """Merge the older half of the chunks, two and two. The slots of the second ones can be used again."""
        pairs = len(self._chunks) // 4
        older, rest = self._chunks[: 2 * pairs], self._chunks[2 * pairs :]
        both = list(zip(older[::2], older[1::2], strict=True))
        changed = [Chunk(one.slot, (merged([*one.segments, *two.segments]),)) for one, two in both]
        self._free += [two.slot for _, two in both]
        self._chunks = [*changed, *rest]
        self._size = sum(len(one.segments) for one in self._chunks)
        return changed

    # --- questions

    def translate(self, committed: int) -> int:
        """Return the committed offset of the target for that of the source. It never skips a record.

        An offset beyond the copied records becomes the end of the copied records.
        """
        segment = self._segment_before(committed)
        if segment is None:
            first = next(iter(self), None)
            return first.target if first is not None else 0
        if committed >= segment.source_end:
            return segment.target_end
        return segment.target + (committed - segment.source) if segment.is_exact else segment.target

    def _segment_before(self, source: int) -> Segment | None:
        at = bisect_right(self._chunks, source, key=lambda one: one.segments[0].source) - 1
        if at < 0:
            return None
        segments = self._chunks[at].segments
        return segments[bisect_right(segments, source, key=lambda one: one.source) - 1]

    def since(self, source_start: int, target_start: int) -> list[Segment]:
        """Return the segments of records that both logs still have, when they begin at these offsets.

        An exact segment is cut. A loose one of which a part is gone is left out.
        """
        found = []
        for one in self:
            gone = max(source_start - one.source, target_start - one.target, 0)
            if not gone:
                found.append(one)
            elif one.is_exact and gone < one.records:
                found.append(Segment.exact(one.source + gone, one.target + gone, one.records - gone))
        return found
