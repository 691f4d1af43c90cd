"""Which records outlive compaction, Kafka's rules: batches in, in the order of the log, and what is left of them out.

- Of each key the last record stays. What lies beyond the part that was looked through stays as it is.
- A tombstone stays for `delete.retention.ms` after compaction first met it, so that who reads the log from its
  beginning until then hears of it; the batch remembers the time, its delete horizon.
- What was aborted goes. The marker of a transaction stays as long as a batch of it, and then as long as a tombstone.
- Two batches stay even with no records in them: the last one of each producer, which has its sequence number, and the
  last one of what is compacted, which says how far the log goes.
- A batch whose records cannot be read stays, and so does one of a transaction that has not ended.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import NamedTuple

from coterie.errors import MalformedError
from coterie.protocol.batch import BatchHeader
from coterie.protocol.buffer import Buffer
from coterie.protocol.compacted import OpenBatch, emptied
from coterie.protocol.records import Record
from coterie.storage.latest import Fate, LatestOffsets, name_of

__all__ = ["LastOfProducer", "Survivors"]

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
