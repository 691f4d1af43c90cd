"""Compacting a log: read its uncompacted part for the last offset of each key, then write each group of segments again.

    work = Compaction(files, log.path, plan, log.config, ...)
    for _ in work.look_through(): ...              # long, on any thread, in steps of well under a millisecond
    for group in work.groups:
        for _ in work.compact(group): ...          # the same
        if work.cleaned is not None: ...           # `swapping.py`, where nobody else changes the directory

Only closed segments are read, and nothing they have is changed: whoever stops in between has lost some time. What may
be compacted is decided in `compaction.py`, what is left of a batch in `survivors.py`.
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
from coterie.protocol.compacted import OpenBatch, emptied
from coterie.protocol.records import EndMarker, Record, marker_of
from coterie.storage.cleanup import Compactable, grouped
from coterie.storage.files import Files
from coterie.storage.log_config import LogConfig
from coterie.storage.segment import Segment
from coterie.storage.segment_files import CLEANED, LOG, contents

__all__ = ["KEY_BYTES", "Compaction", "Fate", "LastOfProducer", "LatestOffsets", "Survivors", "name_of"]


# Where the last record of each key is, in the part of a log that was not compacted yet.
#
# Records of a transaction count when it is committed, by their own place. Of one that has not ended yet nothing is known:
# compaction leaves its batches alone, and comes back to them.
#
# Memory is bounded by the number of keys: a long one is known by its digest, so each takes less than `KEY_BYTES`. When
# it is full, the log is compacted as far as that, and the rest is for another time.

KEY_BYTES = 256
"""What one key takes at most: its bytes or digest, its offset, and its share of the table."""
_LONG = 64


class Fate(Enum):
    """Of a transaction."""

    COMMITTED = auto()
    ABORTED = auto()
    OPEN = auto()


def name_of(key: bytes) -> bytes:
    """What stands for a key: no short one is as long as what stands for a long one."""
    return key if len(key) <= _LONG else b"#" + blake2b(key).digest()


class LatestOffsets:
    def __init__(self, start: int, capacity: int) -> None:
        """`start` is where the uncompacted part begins, `capacity` how many keys there may be."""
        self.start = self.end = start
        """Between these everything is known."""
        self.of: dict[bytes, int] = {}
        """By `name_of` a key."""
        self.unread: set[int] = set()
        """Where batches begin whose records cannot be read."""
        self._capacity = max(capacity, 1)
        self._pending: dict[int, tuple[int, dict[bytes, int]]] = {}
        self._pending_count = 0
        self._aborted: dict[int, list[tuple[int, int]]] = {}

    @property
    def is_full(self) -> bool:
        return len(self.of) + self._pending_count >= self._capacity

    @property
    def known_to(self) -> int:
        """From here on it must be looked at again: the end, or where the oldest open transaction began."""
        return min([self.end, *(start for start, _ in self._pending.values())])

    # --- reading the log ----------------------------------------------------------------------------------------------

    def skip(self, header: BatchHeader) -> None:
        """A batch that cannot be read."""
        self.unread.add(header.base_offset)
        self.end = header.next_offset

    def add(self, header: BatchHeader, records: Iterable[Record]) -> None:
        if header.is_transactional:
            _, offsets = self._pending.setdefault(header.producer_id, (header.base_offset, {}))
            self._pending_count -= len(offsets)
            _put(offsets, records)
            self._pending_count += len(offsets)
        else:
            _put(self.of, records)
        self.end = header.next_offset

    def end_transaction(self, header: BatchHeader, marker: EndMarker | None) -> None:
        """`marker` is that of a control batch; None if it has none any more, or is of another kind."""
        self.end = header.next_offset
        if marker is None or header.producer_id not in self._pending:
            return
        start, offsets = self._pending.pop(header.producer_id)
        self._pending_count -= len(offsets)
        if not marker.committed:
            self._aborted.setdefault(header.producer_id, []).append((start, header.last_offset))
            return
        for name, offset in offsets.items():
            if offset > self.of.get(name, -1):
                self.of[name] = offset

    # --- what was found -----------------------------------------------------------------------------------------------

    def fate_of(self, header: BatchHeader) -> Fate:
        """How the transaction ended that a batch belongs to. Those that ended before `start` were dealt with then."""
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


# Which records outlive compaction, Kafka's rules: batches in, in the order of the log, and what is left of them out.
#
# - Of each key the last record stays. What lies beyond the part that was looked through stays as it is.
# - A tombstone stays for `delete.retention.ms` after compaction first met it, so that who reads the log from its
#   beginning until then hears of it; the batch remembers the time, its delete horizon.
# - What was aborted goes. The marker of a transaction stays as long as a batch of it, and then as long as a tombstone.
# - Two batches stay even with no records in them: the last one of each producer, which has its sequence number, and the
#   last one of what is compacted, which says how far the log goes.
# - A batch whose records cannot be read stays, and so does one of a transaction that has not ended.

_LAST_MS = 2**63 - 1
_NOTHING = b""


class LastOfProducer(NamedTuple):
    """What the log has last of a producer that may come back."""

    epoch: int
    offset: int | None
    """Where its last batch with a sequence number ends; None if there is none, only markers."""


class Survivors:
    def __init__(
        self,
        latest: LatestOffsets,
        producers: Mapping[int, LastOfProducer],
        *,
        bound: int,
        delete_retention_ms: int,
        limit: int,
        now_ms: int,
    ) -> None:
        """What is compacted ends before `bound`; no batch may decompress to more than `limit`."""
        self._latest = latest
        self._producers = producers
        self._bound = bound
        self._horizon_ms = min(now_ms + delete_retention_ms, _LAST_MS)
        self._limit = limit
        self._now_ms = now_ms
        self._has_batches: set[int] = set()
        """Producers of whose transaction a batch was met."""
        self._staying: array[int] | None = None
        self._next_staying = 0

    def is_gone(self, header: BatchHeader) -> bool:
        """Whether nothing is left of a batch, if that is clear without opening it; to be asked in order.

        Most of a log that was never compacted is gone: its records are known, and where those are that stay.
        """
        if header.is_transactional or header.is_control or header.base_offset < self._latest.start:
            return False
        if header.next_offset > self._latest.end or header.base_offset in self._latest.unread:
            return False
        if self._staying is None:
            self._staying = array("q", sorted(self._latest.of.values()))
        while self._next_staying < len(self._staying) and self._staying[self._next_staying] < header.base_offset:
            self._next_staying += 1
        if self._next_staying < len(self._staying) and self._staying[self._next_staying] <= header.last_offset:
            return False
        return not self._is_needed(header)

    def left_of(self, data: bytes, at: int, header: BatchHeader) -> Buffer:
        """The bytes as they are if the batch stays as it is, none if nothing is left."""
        whole = memoryview(data)[at : at + header.size]
        if header.is_control:
            return self._left_of_marker(whole, header)
        if header.is_transactional:
            self._has_batches.add(header.producer_id)
            fate = self._latest.fate_of(header)
            if fate is not Fate.COMMITTED:
                return whole if fate is Fate.OPEN else self._shell_of(whole, header)
        if header.base_offset >= self._latest.end:
            return whole
        try:
            return self._left_of_data(OpenBatch(data, header, at, self._limit), whole)
        except MalformedError:
            return whole

    def _left_of_data(self, batch: OpenBatch, whole: memoryview) -> Buffer:
        header = batch.header
        kept = self._survive(batch.records, header)
        if not any(kept):
            return self._shell_of(whole, header)
        is_new_deletion = header.delete_horizon_ms is None and any(
            record.value is None and stays for record, stays in zip(batch.records, kept, strict=True)
        )
        if is_new_deletion:
            return batch.keep(kept, self._horizon_ms)
        return whole if all(kept) else batch.keep(kept)

    def _survive(self, records: list[Record], header: BatchHeader) -> list[bool]:
        latest = self._latest.of
        horizon = header.delete_horizon_ms
        keeps_deletions = horizon is None or self._now_ms < horizon
        return [
            record.key is not None
            and latest.get(name_of(record.key), -1) <= record.offset
            and (keeps_deletions or record.value is not None)
            for record in records
        ]

    def _left_of_marker(self, whole: memoryview, header: BatchHeader) -> Buffer:
        if not header.is_transactional:
            return whole  # of a kind that we do not write
        has_batches = header.producer_id in self._has_batches
        self._has_batches.discard(header.producer_id)
        if has_batches or not header.record_count:
            return whole if has_batches else self._shell_of(whole, header)
        horizon = header.delete_horizon_ms
        if horizon is None:
            try:
                batch = OpenBatch(whole, header, 0, self._limit)
                return batch.keep([True] * len(batch.records), self._horizon_ms)
            except MalformedError:
                return whole
        return whole if self._now_ms < horizon else self._shell_of(whole, header)

    def _shell_of(self, whole: memoryview, header: BatchHeader) -> Buffer:
        if not self._is_needed(header):
            return _NOTHING
        return emptied(header) if header.record_count else whole

    def _is_needed(self, header: BatchHeader) -> bool:
        """Even without records."""
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
"""Synced bit by bit: one large sync would hold up those of others."""


class Compaction:
    """One round of one log. `producers` are those that may come back, `buffer_bytes` what the keys may take."""

    def __init__(
        self,
        files: Files,
        path: str,
        plan: Compactable,
        config: LogConfig,
        producers: Mapping[int, LastOfProducer],
        buffer_bytes: int,
        now_ms: int,
    ) -> None:
        self._files = files
        self._path = path
        self._plan = plan
        self._config = config
        self._latest = LatestOffsets(plan.first_dirty, buffer_bytes // KEY_BYTES)
        self._survivors = Survivors(
            self._latest,
            producers,
            bound=plan.bound,
            delete_retention_ms=config.delete_retention_ms,
            limit=config.max_decompressed_bytes,
            now_ms=now_ms,
        )
        self._since_step = 0
        self.cleaned: Segment | None = None
        """What the last group has become, open; None if it need not change."""

    @property
    def compacted_to(self) -> int:
        """Where the next round begins, when all groups were compacted."""
        return self._latest.known_to

    @property
    def groups(self) -> list[list[Segment]]:
        """What there is to compact: all segments from the log's beginning to where the looking ended."""
        end = self._latest.end
        return grouped(list(takewhile(lambda segment: segment.base_offset < end, self._plan.segments)), self._config)

    def _is_step(self, header: BatchHeader) -> bool:
        """Whether enough was done for others to have their turn."""
        self._since_step += header.size
        if self._since_step < _STEP:
            return False
        self._since_step = 0
        return True

    # --- looking ------------------------------------------------------------------------------------------------------

    def look_through(self) -> Iterator[None]:
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

    # --- writing ------------------------------------------------------------------------------------------------------

    def compact(self, group: Sequence[Segment]) -> Iterator[None]:
        self.cleaned = None
        cleaned = Segment.create(
            self._files, self._path, group[0].base_offset, self._config.index_interval_bytes, ending=CLEANED
        )
        is_done = False
        try:
            is_other = len(group) > 1
            writer = _Writer(cleaned)
            for segment in group:
                for data, at, header in self._batches(segment):
                    left = self._left_of(data, at, header)
                    if not left and header.next_offset == group[-1].next_offset:
                        # It stays without records: a segment ends where the next one begins, or it was damaged.
                        whole = memoryview(data)[at : at + header.size]
                        left = emptied(header._replace(max_timestamp=NO_TIMESTAMP)) if header.record_count else whole
                    is_same = isinstance(left, memoryview)
                    if left:
                        writer.add(left, header if is_same else parse_header(left))
                    is_other |= not is_same
                    if self._is_step(header):
                        yield
            if is_other:
                writer.finish(group[-1])
                self.cleaned = cleaned
                is_done = True
        finally:
            if not is_done:
                with suppress(OSError):  # an opening removes them as well
                    cleaned.delete()

    def _left_of(self, data: bytes, at: int, header: BatchHeader) -> Buffer:
        if self._survivors.is_gone(header):
            return b""
        check_sum(data, header, at)
        return self._survivors.left_of(data, at, header)


class _Writer:
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
        """All of it is on disk, and reaches to where the last of those it replaces does."""
        segment = self._segment
        self._write()
        segment.next_offset = last.next_offset
        segment.quiet_since_ms = last.quiet_since_ms
        segment.end()
        segment.write_indexes()
        segment.later().run()
