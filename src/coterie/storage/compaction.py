"""Compaction of a log: find the last offset of each key in its dirty part, then rewrite each group of segments.

    work = Compaction(files, log.path, plan, log.config, ...)
    for _ in work.read_keys(): ...                 # long, on any thread, in steps of well under a millisecond
    for group in work.groups:
        for _ in work.compact(group): ...          # the same
        if work.cleaned is not None: ...           # swap it in (`cleanup.py`), as a change of the directory

Only closed segments are read, and none is changed: an interrupted compaction costs only time. `cleanup.py` decides what
may be compacted, `RecordRetention` what is left of a batch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from enum import Enum, auto
from hashlib import blake2b
from itertools import takewhile
from typing import NamedTuple

from coterie.errors import MalformedError
from coterie.protocol.batch import NO_TIMESTAMP, BatchHeader, check_sum, parse_header
from coterie.protocol.buffer import Buffer
from coterie.protocol.records import EndMarker, OpenBatch, Record, emptied, marker_of
from coterie.storage.cleanup import Compactable, grouped
from coterie.storage.files import Files
from coterie.storage.log_config import LogConfig
from coterie.storage.segment import Segment
from coterie.storage.segment_files import CLEANED, LOG, contents
from coterie.storage.transaction_index import AbortedTransaction

KEY_BYTES = 256
"""The most memory one key takes: its bytes or digest, its offset, and its share of the table."""
_LONG = 64


class Fate(Enum):
    """The outcome of a transaction."""

    COMMITTED = auto()
    ABORTED = auto()
    OPEN = auto()


def name_of(key: bytes) -> bytes:
    """Return a key, or its digest if it is long: a digest is longer than any key that is not long."""
    return key if len(key) <= _LONG else b"#" + blake2b(key).digest()


class OffsetMap:
    """The offset of the last record of each key, in the part of a log that is not compacted yet.

    Records of a transaction count when it is committed, by their own offset. An open transaction is not decided yet:
    compaction leaves its batches unchanged, and reads them again the next time.

    Memory is bounded by the number of keys: a long key is replaced by its digest, so each takes less than `KEY_BYTES`.
    When the memory is full, the log is compacted up to there, and the rest at another time.
    """

    def __init__(self, start: int, capacity: int) -> None:
        """`start` is where the uncompacted part begins, `capacity` how many keys there may be."""
        self.start = self.end = start
        """The offsets between these were read."""
        self.offsets: dict[bytes, int] = {}
        """The last offset of each key, by `name_of` the key."""
        self.unread: set[int] = set()
        """The base offsets of batches whose records cannot be read."""
        self._capacity = max(capacity, 1)
        self._pending: dict[int, tuple[int, dict[bytes, int]]] = {}
        self._pending_count = 0
        self._aborted: dict[int, list[tuple[int, int]]] = {}

    @property
    def is_full(self) -> bool:
        return len(self.offsets) + self._pending_count >= self._capacity

    @property
    def known_to(self) -> int:
        """Return the offset at which the next compaction starts reading: the end, or the oldest open transaction."""
        return min([self.end, *(start for start, _ in self._pending.values())])

    def skip(self, header: BatchHeader) -> None:
        """Note a batch that cannot be read."""
        self.unread.add(header.base_offset)
        self.end = header.next_offset

    def add(self, header: BatchHeader, records: Iterable[Record]) -> None:
        if header.is_transactional:
            _, offsets = self._pending.setdefault(header.producer_id, (header.base_offset, {}))
            self._pending_count -= len(offsets)
            _put(offsets, records)
            self._pending_count += len(offsets)
        else:
            _put(self.offsets, records)
        self.end = header.next_offset

    def end_transaction(self, header: BatchHeader, marker: EndMarker | None) -> None:
        """Note a control batch with its marker; None if it has none any more, or is of another kind."""
        self.end = header.next_offset
        if marker is None or header.producer_id not in self._pending:
            return
        start, offsets = self._pending.pop(header.producer_id)
        self._pending_count -= len(offsets)
        if not marker.committed:
            self._aborted.setdefault(header.producer_id, []).append((start, header.last_offset))
            return
        for name, offset in offsets.items():
            if offset > self.offsets.get(name, -1):
                self.offsets[name] = offset

    def fate_of(self, header: BatchHeader) -> Fate:
        """Return how the transaction of a batch ended; batches aborted before `start` are removed already."""
        offset = header.base_offset
        if offset >= self.end:
            return Fate.OPEN
        pending = self._pending.get(header.producer_id)
        if pending is not None and offset >= pending[0]:
            return Fate.OPEN
        aborted = self._aborted.get(header.producer_id, ())
        slot = bisect_right(aborted, offset, key=lambda ends: ends[0]) - 1
        return Fate.ABORTED if slot >= 0 and offset <= aborted[slot][1] else Fate.COMMITTED


def _put(offsets: dict[bytes, int], records: Iterable[Record]) -> None:
    for record in records:
        key = record.key
        if key is not None:
            offsets[key if len(key) <= _LONG else name_of(key)] = record.offset


_LAST_MS = 2**63 - 1
_NOTHING = b""


class LastRecord(NamedTuple):
    """The last batch in the log of a producer that may write again."""

    epoch: int
    offset: int | None
    """The last offset of its last batch with a sequence number; None if it has only markers."""


class RecordRetention:
    """Decides which records stay, by Kafka's rules: it is given the batches in the order of the log.

    - Of each key the last record stays. What is beyond the part that was read stays as it is.
    - A tombstone stays for `delete.retention.ms` after compaction first met it, so that a consumer that reads the log
      from its beginning until then sees it; the batch keeps the time, its delete horizon.
    - Aborted records are removed. A transaction marker stays as long as a batch of the transaction, and then as long as
      a tombstone.
    - Two batches stay even without records: the last one of each producer, which has its sequence number, and the last
      one of what is compacted, which says where the log ends.
    - A batch whose records cannot be read stays, and so does one of a transaction that has not ended.
    """

    def __init__(
        self,
        latest: OffsetMap,
        producers: Mapping[int, LastRecord],
        *,
        bound: int,
        delete_retention_ms: int,
        limit: int,
        now_ms: int,
    ) -> None:
        """Compact the log to before `bound`. No batch may decompress to more than `limit`."""
        self._latest = latest
        self._producers = producers
        self._bound = bound
        self._horizon_ms = min(now_ms + delete_retention_ms, _LAST_MS)
        self._limit = limit
        self._now_ms = now_ms
        self._has_batches: set[int] = set()
        """Producers with a batch of their current transaction in the compacted part."""
        self._staying: array[int] | None = None
        self._next_staying = 0

    def should_discard(self, header: BatchHeader) -> bool:
        """Return whether nothing is left of a batch, if that is clear without reading its records; call it in order.

        This is so for most of a log that was never compacted: the offsets of the records that stay are known.
        """
        if header.is_transactional or header.is_control or header.base_offset < self._latest.start:
            return False
        if header.next_offset > self._latest.end or header.base_offset in self._latest.unread:
            return False
        if self._staying is None:
            self._staying = array("q", sorted(self._latest.offsets.values()))
        while self._next_staying < len(self._staying) and self._staying[self._next_staying] < header.base_offset:
            self._next_staying += 1
        if self._next_staying < len(self._staying) and self._staying[self._next_staying] <= header.last_offset:
            return False
        return not self._must_retain_batch(header)

    def filter_batch(self, data: bytes, at: int, header: BatchHeader) -> Buffer:
        """Return what is left of a batch: the same bytes if it stays as it is, none if nothing is left."""
        whole = memoryview(data)[at : at + header.size]
        if header.is_control:
            return self._filter_marker(whole, header)
        if header.is_transactional:
            self._has_batches.add(header.producer_id)
            fate = self._latest.fate_of(header)
            if fate is not Fate.COMMITTED:
                return whole if fate is Fate.OPEN else self._retain_empty_batch(whole, header)
        if header.base_offset >= self._latest.end:
            return whole
        try:
            return self._filter_data(OpenBatch(data, header, at, self._limit), whole)
        except MalformedError:
            return whole

    def _filter_data(self, batch: OpenBatch, whole: memoryview) -> Buffer:
        header = batch.header
        kept = self._should_retain_records(batch.records, header)
        if not any(kept):
            return self._retain_empty_batch(whole, header)
        is_new_deletion = header.delete_horizon_ms is None and any(
            record.value is None and stays for record, stays in zip(batch.records, kept, strict=True)
        )
        if is_new_deletion:
            return batch.keep(kept, self._horizon_ms)
        return whole if all(kept) else batch.keep(kept)

    def _should_retain_records(self, records: list[Record], header: BatchHeader) -> list[bool]:
        latest = self._latest.offsets
        horizon = header.delete_horizon_ms
        keeps_deletions = horizon is None or self._now_ms < horizon
        return [
            record.key is not None
            and latest.get(name_of(record.key), -1) <= record.offset
            and (keeps_deletions or record.value is not None)
            for record in records
        ]

    def _filter_marker(self, whole: memoryview, header: BatchHeader) -> Buffer:
        if not header.is_transactional:
            return whole  # a control batch of another kind
        has_batches = header.producer_id in self._has_batches
        self._has_batches.discard(header.producer_id)
        if has_batches or not header.record_count:
            return whole if has_batches else self._retain_empty_batch(whole, header)
        horizon = header.delete_horizon_ms
        if horizon is None:
            try:
                batch = OpenBatch(whole, header, 0, self._limit)
                return batch.keep([True] * len(batch.records), self._horizon_ms)
            except MalformedError:
                return whole
        return whole if self._now_ms < horizon else self._retain_empty_batch(whole, header)

    def _retain_empty_batch(self, whole: memoryview, header: BatchHeader) -> Buffer:
        if not self._must_retain_batch(header):
            return _NOTHING
        return emptied(header) if header.record_count else whole

    def _must_retain_batch(self, header: BatchHeader) -> bool:
        """Return whether a batch stays even without records."""
        if header.next_offset == self._bound:
            return True
        last = self._producers.get(header.producer_id) if header.has_producer else None
        if last is None:
            return False
        if last.offset is None:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.offset


_STEP = 8 * 1024
_WRITE = 256 * 1024
_SYNC = 4 * 1024 * 1024
"""The bytes that are synced at a time: one large sync would delay those of other logs."""


class Compaction:
    """One compaction of one log; `producers` may write again, and keys may take `buffer_bytes` of memory."""

    def __init__(
        self,
        files: Files,
        path: str,
        plan: Compactable,
        config: LogConfig,
        producers: Mapping[int, LastRecord],
        buffer_bytes: int,
        now_ms: int,
    ) -> None:
        self._files = files
        self._path = path
        self._plan = plan
        self._config = config
        self._latest = OffsetMap(plan.first_dirty, buffer_bytes // KEY_BYTES)
        self._retention = RecordRetention(
            self._latest,
            producers,
            bound=plan.bound,
            delete_retention_ms=config.delete_retention_ms,
            limit=config.max_decompressed_bytes,
            now_ms=now_ms,
        )
        self._since_step = 0
        self.cleaned: Segment | None = None
        """The segment that replaces the last group, open; None if the group need not change."""

    @property
    def compacted_to(self) -> int:
        """The offset at which the next compaction begins, after all groups were compacted."""
        return self._latest.known_to

    @property
    def groups(self) -> list[list[Segment]]:
        """The groups to compact: all segments from the log's beginning to where `read_keys` ended."""
        end = self._latest.end
        return grouped(list(takewhile(lambda segment: segment.base_offset < end, self._plan.segments)), self._config)

    def _is_step(self, header: BatchHeader) -> bool:
        """Return whether enough was done to let other work run."""
        self._since_step += header.size
        if self._since_step < _STEP:
            return False
        self._since_step = 0
        return True

    def read_keys(self) -> Iterator[None]:
        """Read the dirty part of the log for the last offset of each key, until it ends or memory is full."""
        latest = self._latest
        for segment in self._plan.segments:
            if segment.next_offset <= self._plan.first_dirty:
                continue
            for data, at, header in self._batches(segment):
                if header.next_offset > self._plan.first_dirty:
                    if latest.is_full:
                        return
                    self._look_at(data, at, header)
                if self._is_step(header):
                    yield
            latest.end = max(latest.end, segment.next_offset)

    def _look_at(self, data: bytes, at: int, header: BatchHeader) -> None:
        latest = self._latest
        check_sum(data, header, at)
        try:
            if header.is_control:
                latest.end_transaction(header, marker_of(data, header, at))
            else:
                latest.add(header, OpenBatch(data, header, at, self._config.max_decompressed_bytes).records)
        except MalformedError:
            latest.skip(header)

    def _batches(self, segment: Segment) -> Iterator[tuple[bytes, int, BatchHeader]]:
        with closing(self._files.open(segment.path(LOG))) as file:
            yield from contents(file, segment.size)

    def compact(self, group: Sequence[Segment]) -> Iterator[None]:
        """Write what is left of a group to one new segment, which is `cleaned` afterwards."""
        self.cleaned = None
        cleaned = Segment.create(
            self._files, self._path, group[0].base_offset, self._config.index_interval_bytes, ending=CLEANED
        )
        is_done = False
        try:
            is_other = len(group) > 1
            writer = _SegmentWriter(cleaned)
            markers: set[int] = set()
            for segment in group:
                for data, at, header in self._batches(segment):
                    left = self._left_of(data, at, header)
                    if not left and header.next_offset == group[-1].next_offset:
                        # It stays without records: a segment that ends before the next one begins is damaged.
                        whole = memoryview(data)[at : at + header.size]
                        left = emptied(header._replace(max_timestamp=NO_TIMESTAMP)) if header.record_count else whole
                    is_same = isinstance(left, memoryview)
                    if left:
                        kept = header if is_same else parse_header(left)
                        writer.add(left, kept)
                        if kept.is_control and kept.record_count:
                            markers.add(kept.last_offset)
                    is_other |= not is_same
                    if self._is_step(header):
                        yield
            if is_other:
                for row in _aborted_in(group):
                    if row.last_offset in markers:  # a reader would wait for a marker that is gone
                        cleaned.note_aborted(row)
                writer.finish(group[-1])
                self.cleaned = cleaned
                is_done = True
        finally:
            if not is_done:
                with suppress(OSError):  # an opening removes them as well
                    cleaned.delete()

    def _left_of(self, data: bytes, at: int, header: BatchHeader) -> Buffer:
        if self._retention.should_discard(header):
            return b""
        check_sum(data, header, at)
        return self._retention.filter_batch(data, at, header)


def _aborted_in(group: Sequence[Segment]) -> Iterator[AbortedTransaction]:
    for segment in group:
        yield from segment.aborted_from(segment.base_offset)


class _SegmentWriter:
    """Gathers batches and writes many at once."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._batches: list[Buffer] = []
        self._headers: list[BatchHeader] = []
        self._size = 0
        self._synced = 0

    def add(self, batch: Buffer, header: BatchHeader) -> None:
        self._batches.append(batch)
        self._headers.append(header)
        self._size += header.size
        if self._size >= _WRITE:
            self._write()

    def _write(self) -> None:
        segment = self._segment
        segment.append(b"".join(self._batches), self._headers)
        self._batches, self._headers, self._size = [], [], 0
        if segment.size - self._synced >= _SYNC:
            segment.later().run()
            self._synced = segment.size

    def finish(self, last: Segment) -> None:
        """Write and sync the rest; the segment ends where `last` does, the last one that it replaces."""
        segment = self._segment
        self._write()
        segment.next_offset = last.next_offset
        segment.last_write_ms = last.last_write_ms
        segment.end()
        segment.write_indexes()
        segment.later().run()
