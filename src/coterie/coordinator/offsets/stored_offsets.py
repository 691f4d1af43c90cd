"""The offsets of a group: what is committed, and what waits for the end of a transaction.

They change by the records of the log alone, in the order of the log: when a record has become durable, and when the log
is read back. The last commit of a topic stays as it came until more is asked of it. A member commits the same
partitions again and again: the next commit then takes the place of the last as a whole, and no offset of it was ever an
object of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from coterie.protocol.commit_rows import CommitRows, OffsetRows
from coterie.protocol.messages import CommittedOffset, OffsetRecord


def tombstones(group_id: str, partitions: Iterable[tuple[str, int]]) -> list[OffsetRecord]:
    """Return the records that delete the offsets of these partitions."""
    return [OffsetRecord(group_id, topic, partition, None) for topic, partition in partitions]


class StoredOffsets:
    __slots__ = ("_by_topic", "_last", "pending")

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, CommittedOffset]] = {}
        self._last: dict[str, OffsetRows] = {}  # by topic; no partition twice, and what it says is not in `_by_topic`
        self.pending: dict[int, dict[tuple[str, int], CommittedOffset]] = {}  # by producer, until the marker

    # --- records ------------------------------------------------------------------------------------------------------

    def apply(self, record: OffsetRecord, position: int, producer_id: int | None = None) -> None:
        """Apply a record that is in the log at `position`; `producer_id` is that of its transaction, if it has one."""
        topic, partition, value = record.topic, record.partition, record.value
        if value is None:
            self._forget(topic, partition)
            return
        value.position = position
        if producer_id is not None:
            self.pending.setdefault(producer_id, {})[topic, partition] = value
            return
        by_topic = self.by_topic() if self._last else self._by_topic
        try:
            by_topic[topic][partition] = value
        except KeyError:  # the first of the topic
            by_topic[topic] = {partition: value}

    def apply_commit(self, rows: OffsetRows, position: int) -> None:
        """Apply the records of a whole commit, as `apply` would one after the other."""
        rows.position = position
        topic, numbers = rows.of.topic, rows.of.numbers
        last = self._last.get(topic)
        if last is None or last.of.numbers != numbers:
            self._by_topic.setdefault(topic, {})  # topics are in the order of their first commit
            if last is not None:
                self._spread(self._last.pop(topic))
            if len(set(numbers)) < len(numbers):
                self._spread(rows)
                return
        self._last[topic] = rows

    def end_transaction(self, producer_id: int, *, committed: bool) -> list[tuple[str, int, int]]:
        """Apply the marker of a transaction: its offsets count now, or never. Return those that do (rule 22)."""
        pending = self.pending.pop(producer_id, {})
        counted: list[tuple[str, int, int]] = []
        if not committed or not pending:
            return counted
        by_topic = self.by_topic()
        for (topic, partition), offset in pending.items():
            partitions = by_topic.setdefault(topic, {})
            stored = partitions.get(partition)
            if stored is None or offset.position > stored.position:  # a commit that came later stands
                partitions[partition] = offset
                counted.append((topic, partition, offset.offset))
        return counted

    def clear(self) -> None:
        """The group is deleted."""
        self._by_topic.clear()
        self._last.clear()
        self.pending.clear()

    def _forget(self, topic: str, partition: int) -> None:
        by_topic = self.by_topic()
        partitions = by_topic.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del by_topic[topic]
        for pending in self.pending.values():
            pending.pop((topic, partition), None)

    # --- asking -------------------------------------------------------------------------------------------------------

    def last_commit(self, topic: str) -> CommitRows | None:
        """Return the last commit of a topic, if nothing has replaced a part of it."""
        last = self._last.get(topic)
        return None if last is None else last.of

    def by_topic(self) -> dict[str, dict[int, CommittedOffset]]:
        """Return all committed offsets, by topic and partition."""
        if self._last:
            for rows in self._last.values():
                self._spread(rows)
            self._last.clear()
        return self._by_topic

    def _spread(self, rows: OffsetRows) -> None:
        self._by_topic[rows.of.topic].update(rows.stored())
