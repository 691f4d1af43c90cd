"""The fetched data of one partition: its batches, and the records in them that a consumer may see.

Batches are opened one after the other, as records are taken, so that an answer of many megabytes costs nothing before
it is read, and what is before a broken batch is handed out before the error.

As Kafka's consumer does it: a batch cut short at the end is left for the next fetch; control batches move the position
and are not shown; with a list of aborted transactions (`read_committed`) a producer's batches are dropped from the
first offset of its aborted transaction to the marker that ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from coterie.errors import MalformedError
from coterie.protocol.batch import HEADER_SIZE, BatchHeader, CorruptBatchError, check_sum, parse_header
from coterie.protocol.buffer import Buffer
from coterie.protocol.compression import Scratch, decompress
from coterie.protocol.records import MAX_DECOMPRESSED, MAX_OFFSET, Record, marker_of, read_records

_PREFIX = Struct(">qi")
_LAST_OFFSET_DELTA = Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
_SMALLEST_LENGTH = HEADER_SIZE - _PREFIX.size

NO_PROGRESS = -1
NO_EPOCH = -1


def end_of(data: memoryview, offset: int) -> int:
    """The offset after the last whole batch, by the headers alone, if that is beyond `offset`; else NO_PROGRESS.

    So the next fetch need not wait until these records are read. An error in them is raised when they are read.
    """
    at, end = 0, NO_PROGRESS
    while len(data) - at >= HEADER_SIZE:
        base_offset, length = _PREFIX.unpack_from(data, at)
        if length < _SMALLEST_LENGTH:
            return NO_PROGRESS
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(data, at + _LAST_OFFSET_DELTA_AT)
        at += _PREFIX.size + length
        if at <= len(data):
            end = base_offset + delta + 1
    return end if end > offset else NO_PROGRESS


class FetchedBatches:
    """The batches with records to show, one at a time. `FetchedRecords` and `arrow.py` read them."""

    def __init__(
        self,
        topic: str,
        partition: int,
        data: Buffer,
        *,
        next_offset: int,
        until_offset: int = MAX_OFFSET,
        aborted: Iterable[tuple[int, int]] | None = None,
        check_crcs: bool = True,
        scratch: Scratch | None = None,
    ) -> None:
        """`aborted` is (first offset, producer id) of each aborted transaction in the fetch's answer; None shows all.

        Records from `next_offset` on and before `until_offset` are shown. Batches are decompressed in `scratch`, if
        the caller has one for many fetches.
        """
        self.topic = topic
        self.partition = partition
        self.next_offset = next_offset
        """The position after all records that were taken so far."""
        self.last_epoch = NO_EPOCH
        """The leader epoch of the batch that ends at `next_offset` or contains it, shown or not (KIP-320)."""
        self.until_offset = until_offset
        self.control_batches = 0
        self.aborted_batches = 0
        self._data = memoryview(data)
        self._at = 0
        self._aborted = None if aborted is None else sorted(aborted, reverse=True)
        self._aborting: set[int] = set()
        self._check_crcs = check_crcs
        self._scratch = scratch

    def next_batch(self) -> tuple[BatchHeader, Buffer] | None:
        """The next batch with records to show and its records, decompressed; None when there is none.

        The caller says `passed` when it has read them. Raises at a batch that cannot be read, again and again.
        """
        data, size = self._data, len(self._data)
        while size - self._at >= HEADER_SIZE:
            at = self._at
            header = parse_header(data, at)
            base_offset, last_delta = header.base_offset, header.last_offset_delta
            if base_offset >= self.until_offset:
                self._at = size
                self.next_offset = max(self.next_offset, self.until_offset)
                return None
            if header.size > size - at:
                break
            if base_offset < 0 or last_delta < 0 or base_offset + last_delta >= MAX_OFFSET:
                raise CorruptBatchError(f"the batch at byte {at} has offsets {base_offset} to {header.last_offset}")
            if self._check_crcs:
                check_sum(data, header, at)
            if self._is_to_be_shown(header) and base_offset + last_delta >= self.next_offset:
                body = data[at + HEADER_SIZE : at + header.size]
                if header.is_compressed:
                    self._scratch = self._scratch or Scratch()
                    return header, decompress(header.compression, body, MAX_DECOMPRESSED, self._scratch)
                return header, body
            self.passed(header)
        if len(data) > 0 and self._at == 0:
            raise MalformedError(
                f"{len(data)} bytes of {self.topic}-{self.partition} at offset {self.next_offset} hold no whole batch; "
                "fetch with a higher max.partition.fetch.bytes"
            )
        return None

    def passed(self, header: BatchHeader) -> None:
        self._at += header.size
        self.last_epoch = header.leader_epoch
        self.next_offset = max(self.next_offset, min(header.next_offset, self.until_offset))

    def _is_to_be_shown(self, header: BatchHeader) -> bool:
        if self._aborted is None and not header.is_control:
            return True
        marker = marker_of(self._data, header, self._at) if header.is_control else None
        if self._aborted is not None and header.has_producer:
            while self._aborted and self._aborted[-1][0] <= header.last_offset:
                self._aborting.add(self._aborted.pop()[1])
            if marker is not None and not marker.committed:
                self._aborting.discard(header.producer_id)
            elif header.is_transactional and not header.is_control and header.producer_id in self._aborting:
                self.aborted_batches += 1
                return False
        if header.is_control:
            self.control_batches += 1
            return False
        return True


class FetchedRecords(FetchedBatches):
    """The same as records, as many at a time as are wanted."""

    _header: BatchHeader
    _pending: Sequence[Record] = ()
    _taken = 0

    @property
    def opened(self) -> tuple[Sequence[Record], int]:
        """The records of the batch that is open, and how many of them were taken."""
        return self._pending, self._taken

    def take(self, at_most: int) -> list[Record]:
        """The next records in order; fewer than `at_most` only before the end or before a batch that cannot be read.

        An empty list says that this fetch is used up. What cannot be read raises `MalformedError`, once all that is
        before it has been taken; `next_offset` then is where it begins.
        """
        found: list[Record] = []
        while len(found) < at_most:
            if self._taken == len(self._pending) and not self._open_next(found):
                break
            part = list(self._pending[self._taken : self._taken + at_most - len(found)])
            self._taken += len(part)
            if self._taken == len(self._pending):
                self.passed(self._header)
            else:
                self.next_offset = part[-1].offset + 1
            found = found + part if found else part
        return found

    def _open_next(self, found: list[Record]) -> bool:
        try:
            batch = self.next_batch()
            if batch is None:
                return False
            header, plain = batch
            self._pending = read_records(plain, header, self.topic, self.partition, self.next_offset, self.until_offset)
        except MalformedError:
            if found:
                return False
            raise
        self._header, self._taken = header, 0
        self.last_epoch = header.leader_epoch
        return True
