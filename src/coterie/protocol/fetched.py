"""The fetched data of one partition: its batches, and the records in them that a consumer may see.

Batches are opened one after the other, as records are taken, so that an answer of many megabytes costs nothing before
it is read, and what is before a broken batch is handed out before the error.

As Kafka's consumer does it: a batch cut short at the end is left for the next fetch; control batches move the position
and are not shown; with a list of aborted transactions (`read_committed`) a producer's batches are dropped from the
first offset of its aborted transaction to the marker that ends it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
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
    ) -> None:
        """`aborted` is (first offset, producer id) of each aborted transaction in the fetch's answer; None shows all.

        Records from `next_offset` on and before `until_offset` are shown.
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
        self._scratch: Scratch | None = None

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


READ_AHEAD_RECORDS = 500
"""The most records that are kept open, but for the last batch."""
READ_AHEAD_BYTES = 256 * 1024
"""The bytes of batches, decompressed, that are opened at once."""


class FetchedRecords(FetchedBatches):
    """The same as records, as many at a time as are wanted.

    Batches may be opened before their records are taken. The position follows what is taken.
    """

    _pending: list[Record] = []  # noqa: RUF012  it and `_ends` are never changed: the first batch brings others
    """The records of the batches that are open."""
    _taken = 0
    _ends: deque[tuple[int, BatchHeader]] = deque()  # noqa: RUF012
    """The batches that the position has not passed, with the index in `_pending` behind each."""

    @property
    def opened(self) -> tuple[list[Record], int]:
        """The records of the batches that are open, and how many of them were taken."""
        return self._pending, self._taken

    @property
    def size(self) -> int:
        """Bytes of the batches that are not wholly taken."""
        return len(self._data) - self._at + sum(header.size for _, header in self._ends)

    def take(self, at_most: int) -> list[Record]:
        """The next records in order; fewer than `at_most` only before the end or before a batch that cannot be read.

        An empty list says that this fetch is used up. What cannot be read raises `MalformedError`, once all that is
        before it has been taken; `next_offset` then is where it begins.
        """
        found: list[Record] = []
        while len(found) < at_most:
            if self._taken == len(self._pending):
                while self._ends:
                    self._pass_first()
                self._pending, self._taken, self._ends = [], 0, deque()
                try:
                    if self._open_next() is None:
                        break
                except MalformedError:
                    if found:
                        break
                    raise
            part = self._pending[self._taken : self._taken + at_most - len(found)]
            self._taken += len(part)
            self._follow(part)
            found += part
        return found

    def read_ahead(self) -> None:
        """Open more batches behind one that is open, so that many records can be taken at once."""
        size = 0
        with suppress(MalformedError):  # it is raised when it is reached
            while 0 < len(self._pending) < READ_AHEAD_RECORDS and size < READ_AHEAD_BYTES:
                opened = self._open_next()
                if opened is None:
                    break
                size += opened

    def passed(self, header: BatchHeader) -> None:
        """A batch that is not shown; the position passes it when more is taken than what is open before it."""
        if not self._pending:
            super().passed(header)
        else:
            self._at += header.size
            self._ends.append((len(self._pending), header))

    def _open_next(self) -> int | None:
        """Open the next batch with records to show, behind those that are open. Return its size, None without one."""
        batch = self.next_batch()
        if batch is None:
            return None
        header, plain = batch
        first = self._ends[-1][1].next_offset if self._ends else self.next_offset
        found = read_records(plain, header, self.topic, self.partition, first, self.until_offset)
        self._pending += found
        self._at += header.size
        self._ends.append((len(self._pending), header))
        return len(plain)

    def _follow(self, part: list[Record]) -> None:
        """Move the position behind these records, and behind the batch that the last of them ends."""
        ends, taken = self._ends, self._taken
        if part:
            self.next_offset, self.last_epoch = part[-1].offset + 1, part[-1].leader_epoch
        while ends[0][0] < taken:
            ends.popleft()
        if ends[0][0] == taken:
            self._pass_first()

    def _pass_first(self) -> None:
        _, header = self._ends.popleft()
        self.last_epoch = header.leader_epoch
        self.next_offset = max(self.next_offset, min(header.next_offset, self.until_offset))
