"""What is asked of the cluster besides the log: where partitions end, what topics are called, how old a record is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from coterie.client.admin import Admin
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError, KafkaError
from coterie.settings.client_settings import AdminSettings
from coterie.spark.batch_plan import OffsetRange
from coterie.spark.decoding.topic_ids import topic_id_text
from coterie.spark.offsets import LATEST
from coterie.spark.options import SourceOptions, Use
from coterie.spark.partition_reader import read_range

__all__ = ["ENDS", "TIMES", "log_ends", "record_times", "topic_names"]

ENDS = "topic string, partition int, log_end bigint"
TIMES = "topic string, partition int, committed bigint, record_ms bigint"
_TIMES_ARROW = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("committed", pa.int64()), ("record_ms", pa.int64())]
)
PATIENCE_MS = "10000"


def _settings(options: Mapping[str, str]) -> dict[str, str]:
    """Those that an admin has too: the others are for the source alone."""
    named = {name.removeprefix("kafka."): text for name, text in options.items() if name.startswith("kafka.")}
    return {name: text for name, text in named.items() if name in AdminSettings.rows()}


def topic_names(options: Mapping[str, str]) -> dict[str, str]:
    """By id, as Kafka prints it; a cluster older than topic ids has none."""
    with Admin(_settings(options)) as admin:
        topics = admin.list_topics(include_internal=True)
    return {topic_id_text(topic.id.bytes): topic.name for topic in topics if topic.id is not None}


def log_ends(options: Mapping[str, str], places: Collection[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Those that are gone are left out. What cannot be asked for now is an error: no lag is better than a wrong one."""
    with Admin(_settings(options)) as admin:
        there = {topic.name for topic in admin.list_topics(include_internal=True)}
        wanted = {TopicPartition(*place): LATEST for place in places if place[0] in there}
        found = admin.list_offsets(wanted) if wanted else {}
    return [(*place, one.offset) for place, one in found.items() if not isinstance(one, KafkaError)]


def record_times(waiting: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Looks at one record of each; the workers ask, so that many can be asked for."""
    return waiting.mapInArrow(partial(_look, dict(options)), TIMES)


def _look(options: Mapping[str, str], batches: Iterable[Any]) -> Iterator[Any]:
    wanted = {
        **options,
        "subscribe": "-",
        "kafka.max.partition.fetch.bytes": "1",  # the first batch comes whole, however long it is
        "kafkaConsumer.pollTimeoutMs": PATIENCE_MS,
    }
    source = SourceOptions.of(wanted, Use.BATCH)
    for batch in batches:
        rows = [row | {"record_ms": _time_of(source, row)} for row in batch.to_pylist()]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, _TIMES_ARROW)


def _time_of(source: SourceOptions, row: Mapping[str, Any]) -> int | None:
    """Of the first record there is from the committed offset on."""
    piece = OffsetRange(row["topic"], row["partition"], row["committed"], row["log_end"])
    try:
        for found in read_range(source, piece):
            times = found.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
            time: int = times[0].as_py()
            return time if time >= 0 else None
    except CoterieError:  # deleted, compacted away, or it cannot be read: then how old it is, is not known
        return None
    return None
