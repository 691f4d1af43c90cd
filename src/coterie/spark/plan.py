"""The plan of a batch: from and until, for each partition. It is the offset Spark keeps in the checkpoint; pure.

    {"query": "5f0c…", "plan": 7, "topics": {"orders": {"0": {"from": 100, "until": 250}}}}

A batch can be read again from its plan alone, without a look at the one before or at who owns what today. `query` is
drawn once and goes with the checkpoint, so that the group's offsets can say whose they are; `plan` counts, so that no
two plans of a query are the same text and Spark sees that a batch is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from coterie.client.types import TopicPartition
from coterie.errors import MalformedError

__all__ = ["Plan", "Span"]


class Span(NamedTuple):
    from_offset: int
    until_offset: int

    @property
    def size(self) -> int:
        return self.until_offset - self.from_offset


@dataclass(frozen=True, slots=True)
class Plan:
    query: str
    number: int
    spans: Mapping[TopicPartition, Span]

    def to_json(self) -> dict[str, Any]:
        """Sorted, since Spark compares the text."""
        topics: dict[str, dict[str, dict[str, int]]] = {}
        for (topic, partition), span in sorted(self.spans.items()):
            topics.setdefault(topic, {})[str(partition)] = {"from": span.from_offset, "until": span.until_offset}
        return {"query": self.query, "plan": self.number, "topics": topics}

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        try:
            spans = {
                TopicPartition(topic, int(partition)): Span(int(span["from"]), int(span["until"]))
                for topic, partitions in data["topics"].items()
                for partition, span in partitions.items()
            }
            plan = cls(str(data["query"]), int(data["plan"]), spans)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _foreign(data, error) from None
        if any(not 0 <= span.from_offset <= span.until_offset for span in spans.values()):
            raise _foreign(data, ValueError("an end before its beginning"))
        return plan

    def ends(self) -> dict[TopicPartition, int]:
        """Where the next batch goes on."""
        return {partition: span.until_offset for partition, span in self.spans.items()}

    def to_read(self) -> dict[TopicPartition, Span]:
        return {partition: span for partition, span in self.spans.items() if span.size}


def _foreign(data: Any, error: Exception) -> MalformedError:
    return MalformedError(
        f"the checkpoint has an offset this source did not write: {str(data)[:200]} ({type(error).__name__}: {error}). "
        'A query that comes from format("kafka") needs a checkpoint of its own: give it a new checkpointLocation, and '
        "startingOffsets, or a groupId whose committed offsets say where to go on"
    )
