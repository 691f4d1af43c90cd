"""What a group has committed. The last commit of a topic stays as it came until somebody wants to know more.

Who commits says the same partitions again and again: the next commit then takes the place of the last as a whole, and
no offset of it was ever an object of its own.
"""

from __future__ import annotations

from coterie.protocol.commit_rows import CommitRows, OffsetRows
from coterie.protocol.messages import CommittedOffset

__all__ = ["StoredOffsets"]


class StoredOffsets:
    __slots__ = ("_by_topic", "_last")

    def __init__(self, by_topic: dict[str, dict[int, CommittedOffset]] | None = None) -> None:
        self._by_topic = {} if by_topic is None else by_topic
        self._last: dict[str, OffsetRows] = {}  # by topic; no partition twice, and what it says is not in `_by_topic`

    def store(self, rows: OffsetRows) -> None:
        """A commit that is in the log, at its position."""
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

    def last_commit(self, topic: str) -> CommitRows | None:
        """Whatever else there is of the topic, of these partitions it says all."""
        last = self._last.get(topic)
        return None if last is None else last.of

    def by_topic(self) -> dict[str, dict[int, CommittedOffset]]:
        """All of them, by partition; whoever changes it changes what is stored."""
        if self._last:
            for rows in self._last.values():
                self._spread(rows)
            self._last.clear()
        return self._by_topic

    def _spread(self, rows: OffsetRows) -> None:
        self._by_topic[rows.of.topic].update(rows.stored())
