"""What callers of consumer, producer and admin hold in their hands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from coterie.wire.records import Record

__all__ = [
    "CommitCallback",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Record",
    "TopicPartition",
]


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


CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], None]


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """Who a consumer is in its group."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
