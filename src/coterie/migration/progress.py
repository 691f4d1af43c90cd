"""The progress of a migration, as records of a compacted topic in the target.

They are written in the transaction that writes the copied records, so a migration that was killed goes on where the
last committed transaction ended. Keys and values are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coterie.client.types import TopicPartition
from coterie.errors import MalformedError
from coterie.migration.translation import Chunk, OffsetTable, Segment

MOST_SEGMENTS = 200_000
"""How many segments are kept in memory, of all partitions."""
FEWEST_SEGMENTS = 1_000
"""How many segments each partition may have in any case."""
MIGRATION, TOPIC, CHUNK, POSITION, GROUP, SPARK = "migration", "topic", "chunk", "position", "group", "spark"

Entry = tuple[bytes, bytes]
"""Key and value of a record."""


class CopiedTopic(NamedTuple):
    """A topic that is being copied: its id and its configs in the source, as they were copied."""

    source_id: str
    configs: Mapping[str, str]
    target_id: str = ""
    """Its id in the target; empty if an earlier release has stored it."""


class WrittenOffset(NamedTuple):
    """What a migration has set as a group's offset in the target. `before` is what was there until then."""

    before: int | None
    offset: int


@dataclass
class Progress:
    """All that is stored about a migration."""

    source: str | None = None
    """The id of the cluster that is copied."""
    topics: dict[str, CopiedTopic] = field(default_factory=dict)
    tables: dict[TopicPartition, OffsetTable] = field(default_factory=dict)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """How far the source was read, where that is more than the last copied record: markers and gaps follow it."""
    groups: dict[str, dict[TopicPartition, WrittenOffset]] = field(default_factory=dict)
    spark_run: str | None = None
    """The token of the run whose tasks copy; None if there are none."""

    def table(self, partition: TopicPartition) -> OffsetTable:
        """Return the table of a partition; a new one is empty, and each of the others may have fewer segments."""
        if partition not in self.tables:
            self.tables[partition] = OffsetTable()
            for table in self.tables.values():
                table.limit = segments_each(len(self.tables))
        return self.tables[partition]

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset in the source up to which everything was copied; None if nothing was read."""
        table = self.tables.get(partition)
        copied = table.source_end if table is not None and len(table) else None
        return max((one for one in (copied, self.positions.get(partition)) if one is not None), default=None)


def segments_each(partitions: int) -> int:
    """Return how many segments each of so many partitions may have."""
    return max(MOST_SEGMENTS // max(partitions, 1), FEWEST_SEGMENTS)


def read_progress(entries: Iterable[tuple[bytes | None, bytes | None]]) -> Progress:
    """Return the progress that records say. Of each key the last record counts."""
    found = Progress()
    chunks: dict[TopicPartition, dict[int, Chunk]] = {}
    for key, value in entries:
        try:
            kind, *name = json.loads(key or b"")
            said = json.loads(value or b"")
            if kind == MIGRATION:
                found.source = said["source"]
            elif kind == TOPIC:
                found.topics[name[0]] = CopiedTopic(said["id"], said["configs"], said.get("target", ""))
            elif kind == CHUNK:
                topic, partition, slot = name
                stored = tuple(Segment(*one) if len(one) > 3 else Segment.exact(*one) for one in said)
                chunks.setdefault(TopicPartition(topic, partition), {})[slot] = Chunk(slot, stored)
            elif kind == POSITION:
                found.positions[TopicPartition(*name)] = said
            elif kind == GROUP:
                offsets = {TopicPartition(one[0], one[1]): WrittenOffset(one[2], one[3]) for one in said}
                found.groups[name[0]] = offsets
            elif kind == SPARK:
                found.spark_run = said["run"]
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise MalformedError(f"a record with the key {key!r} is not the progress of a migration: {error}") from None
    limit = segments_each(len(chunks))
    found.tables = {one: OffsetTable(some.values(), limit=limit) for one, some in chunks.items()}
    return found


# --- writing ----------------------------------------------------------------------------------------------------------


def migration_entry(source: str) -> Entry:
    return _entry([MIGRATION], {"source": source})


def topic_entry(name: str, topic: CopiedTopic) -> Entry:
    return _entry([TOPIC, name], {"id": topic.source_id, "configs": dict(topic.configs), "target": topic.target_id})


def chunk_entry(partition: TopicPartition, chunk: Chunk) -> Entry:
    return _entry([CHUNK, *partition, chunk.slot], [one[:3] if one.is_exact else one for one in chunk.segments])


def position_entry(partition: TopicPartition, position: int) -> Entry:
    return _entry([POSITION, *partition], position)


def group_entry(group_id: str, offsets: Mapping[TopicPartition, WrittenOffset]) -> Entry:
    return _entry([GROUP, group_id], [[*one, *written] for one, written in offsets.items()])


def spark_entry(run: str | None) -> Entry:
    return _entry([SPARK], {"run": run})


def _entry(key: list[Any], value: Any) -> Entry:
    return json.dumps(key).encode(), json.dumps(value, separators=(",", ":")).encode()
