"""What a poll returns."""

from __future__ import annotations

from coterie.client.types import TopicPartition
from coterie.protocol.records import Record

__all__ = ["Records"]


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
