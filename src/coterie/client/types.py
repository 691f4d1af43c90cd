"""The types that users of consumer, producer and admin get and give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coterie.protocol.records import Record

__all__ = [
    "CommitCallback",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Record",
    "Records",
    "SubscriptionPattern",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    """A partition of a topic. Equal to the tuple `(topic, partition)`, which does as well wherever one is taken.

    Args:
        topic: The name of the topic.
        partition: The number of the partition, from 0 on.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """An offset to commit, or one that is committed.

    Args:
        offset: The offset of the next record to read.
        metadata: A note of the committer's own; the broker stores it with the offset.
        leader_epoch: The leader epoch of the last record that was read, or -1 if it is not known (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = field(default=-1, kw_only=True)


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A pattern of topic names that the broker matches, in the syntax of RE2; it needs `group.protocol=consumer`.

    A pattern that Python matches is made by `re.compile`.

    Args:
        pattern: The pattern. It has to match a whole name.
    """

    pattern: str

    def __str__(self) -> str:
        return self.pattern


CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], None]


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time.

    Args:
        offset: The offset of that record.
        timestamp: The time of that record, in milliseconds since 1970.
        leader_epoch: The leader epoch of that record, or -1 if it is not known.
    """

    offset: int
    timestamp: int
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """The identity of a consumer in its group.

    Args:
        group_id: The `group.id`.
        generation_id: The generation the consumer is in, or its member epoch with `group.protocol=consumer`; -1 if it
            is in none.
        member_id: The id of the member, empty if it has none.
        group_instance_id: The `group.instance.id` of a static member.
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class Records(list[Record]):
    """A list of records, those of a partition in order; empty if none came in time."""

    __slots__ = ()

    def by_partition(self) -> dict[TopicPartition, list[Record]]:
        """Return the records of each partition.

        Returns:
            The records by partition, in order; a partition without records is left out.
        """
        found: dict[TopicPartition, list[Record]] = {}
        for record in self:
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return found

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what to commit when these records are processed, as in Java (KIP-1094).

        Returns:
            The offset after the last record of each partition; a partition without records is left out.
        """
        return {
            TopicPartition(one.topic, one.partition): OffsetAndMetadata(one.offset + 1, leader_epoch=one.leader_epoch)
            for one in self
        }
