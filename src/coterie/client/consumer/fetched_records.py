"""What a fetch brought of one partition, unpacked as it is asked for; and, before that, where the next one begins."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.protocol.apis.fetch import AbortedTransaction
from coterie.protocol.buffer import Buffer
from coterie.protocol.fetched import FetchedRecords, end_of
from coterie.protocol.records import Record

__all__ = ["Chunk"]


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
        check_crcs: bool,
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
    def whole_size(self) -> int:
        """Bytes as the broker sent them."""
        return len(self._data)

    @property
    def size(self) -> int:
        """Bytes that are still to be unpacked."""
        return len(self._data) - self._at
