"""What callers of consumer, producer and admin hold in their hands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from coterie.wire.batch import TimestampType

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


@dataclass(slots=True)
class Record:
    """One record as it was fetched. Not frozen: there are millions of them; nobody changes one."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970; whose clock it was is in `timestamp_type`."""
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = -1
