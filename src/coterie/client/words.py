"""What callers of consumer, producer and admin hold in their hands."""

from __future__ import annotations

from typing import NamedTuple

from coterie.wire.records import Record

__all__ = ["OffsetAndMetadata", "Record", "TopicPartition"]


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """The offset of the next record to read, and a note of the committer's own."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
