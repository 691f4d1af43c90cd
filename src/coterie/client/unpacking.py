"""What a fetch brought of one partition, unpacked as it is asked for; and, before that, where the next one begins."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from coterie.apis.fetch import AbortedTransaction
from coterie.wire.batch import HEADER_SIZE
from coterie.wire.buffer import Buffer
from coterie.wire.fetched import FetchedRecords
from coterie.wire.records import Record

__all__ = ["NO_PROGRESS", "Chunk"]

_PREFIX = Struct(">qi")
_LAST_OFFSET_DELTA = Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
_SMALLEST_LENGTH = HEADER_SIZE - _PREFIX.size

NO_PROGRESS = -1


class Chunk(FetchedRecords):
    """The answer to one fetch of one partition. Bytes wait here as the broker sent them until a poll reaches them."""

    __slots__ = ("end_offset",)

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        data: Buffer,
        aborted: Sequence[AbortedTransaction] | None = None,
        *,
        check_crcs: bool = True,
    ) -> None:
        """`aborted`: for those who read committed records, the transactions that were given up (KIP-98)."""
        given_up = None if aborted is None else [(one.first_offset, one.producer_id) for one in aborted]
        super().__init__(topic, partition, data, next_offset=offset, aborted=given_up, check_crcs=check_crcs)
        self.end_offset = end_of(self._data, offset)
        """Where the next fetch begins; NO_PROGRESS if these bytes lead nowhere, which taking them will tell."""

    def take_ready(self) -> Record | None:
        """The next record, if it is unpacked already and not the last of its batch; else `take` must look further."""
        if self._taken + 1 >= len(self._pending):
            return None
        record = self._pending[self._taken]
        self._taken += 1
        self.next_offset = record.offset + 1
        return record

    @property
    def size(self) -> int:
        """Bytes that are still to be unpacked."""
        return len(self._data) - self._at


def end_of(data: memoryview, offset: int) -> int:
    """The offset after the last whole batch, by the headers alone, if that is beyond `offset`."""
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
