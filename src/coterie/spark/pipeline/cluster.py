"""What the pipelines ask a cluster: names of topics, where partitions end, and when a record was written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from coterie.client.admin import Admin
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError, KafkaError
from coterie.protocol.consumer_group_records import topic_id_text
from coterie.spark.batch_plan import OffsetRange
from coterie.spark.offsets import LATEST
from coterie.spark.options import SourceOptions, Use, admin_settings
from coterie.spark.partition_reader import read_range
from coterie.spark.pipeline.tables import TIMES

_TIMES_ARROW = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("committed", pa.int64()), ("record_ms", pa.int64())]
)
LOOKUP_TIMEOUT_MS = "10000"


def topic_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return the names of topics by id, as Kafka prints it. Clusters older than topic ids have none."""
    with Admin(admin_settings(options)) as admin:
        topics = admin.list_topics(include_internal=True)
    return {topic_id_text(topic.id.bytes): topic.name for topic in topics if topic.id is not None}


def log_ends(options: Mapping[str, str], partitions: Collection[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Return the ends of partitions that exist. If the cluster cannot be asked, that is an error and no lag."""
    with Admin(admin_settings(options)) as admin:
        topics = {topic.name for topic in admin.list_topics(include_internal=True)}
        asked = {TopicPartition(*each): LATEST for each in partitions if each[0] in topics}
        found = admin.list_offsets(asked) if asked else {}
    return [(*each, one.offset) for each, one in found.items() if not isinstance(one, KafkaError)]


def record_times(waiting: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Look up the time of one record each. Spark's workers do it, so that there can be many."""
    return waiting.mapInArrow(partial(_look_up, lookup_options(options)), TIMES)


def lookup_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of `time_of`."""
    wanted = {
        **options,
        "subscribe": "-",
        "kafka.max.partition.fetch.bytes": "1",  # the first batch comes whole, however long it is
        "kafkaConsumer.pollTimeoutMs": LOOKUP_TIMEOUT_MS,
    }
    return SourceOptions.of(wanted, Use.BATCH)


def _look_up(source: SourceOptions, batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        rows = [row | {"record_ms": time_of(source, row)} for row in batch.to_pylist()]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, _TIMES_ARROW)


def time_of(source: SourceOptions, row: Mapping[str, Any]) -> int | None:
    """Return the time of the first record from the committed offset on; None if it cannot be read."""
    piece = OffsetRange(row["topic"], row["partition"], row["committed"], row["log_end"])
    try:
        for found in read_range(source, piece):
            times = found.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
            time: int = times[0].as_py()
            return time if time >= 0 else None
    except CoterieError:  # deleted, compacted away, or malformed
        return None
    return None
