"""Runs the pipeline: each micro-batch is decoded, folded and stored; in between, lag and health are measured.

The tables of a batch are written first and its state last (`parquet_store.py`), so a batch that was killed in between
is run again. A group that does not commit writes no records, and so causes no batch: its lag is measured by the clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from threading import Lock
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it
from pyspark.sql.streaming.query import StreamingQuery

from coterie.client.admin import Admin
from coterie.client.network.runtime import clock_ms
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError, KafkaError
from coterie.settings.client_settings import AdminSettings
from coterie.spark.batch_plan import BatchPlan, OffsetRange
from coterie.spark.offsets import LATEST
from coterie.spark.options import SourceOptions, Use
from coterie.spark.partition_reader import read_range
from coterie.spark.pipeline import schemas, tables
from coterie.spark.pipeline.decoding import COMMIT, FACT, FACTS_TOPIC, GROUP, OFFSETS_TOPIC, topic_id_text
from coterie.spark.pipeline.parquet_store import ParquetStore
from coterie.spark.source import GroupLogSource

__all__ = ["GroupsPipeline", "PipelineOptions", "still_to_read", "topic_names"]


ROWS_PER_FILE = 1_000_000
LOOKED_UP = 10_000
"""How many records are looked up for their age, those with the most lag first; for the others the commit's is taken."""
_TIMES_ARROW = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("committed", pa.int64()), ("record_ms", pa.int64())]
)
LOOKUP_TIMEOUT_MS = "10000"


@dataclass(frozen=True)
class PipelineOptions:
    out: str
    """Where the tables go: a directory, or a URI that Spark can write to."""
    kafka: Mapping[str, str]
    """Settings of the client, as `kafka.bootstrap.servers`."""
    records_per_batch: int = 5_000_000
    every_s: float = 60.0
    """How often a batch begins and lag is measured, when the pipeline follows the log."""
    source: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""


class GroupsPipeline:
    def __init__(self, spark: SparkSession, options: PipelineOptions, say: Callable[[str], None]) -> None:
        self._spark = spark
        self._options = options
        self._say = say
        self.store = ParquetStore(spark, options.out)
        self._one_at_a_time = Lock()
        """For a batch or a measurement; Spark runs the batch on a thread of its own."""

    def once(self) -> None:
        """Read all that is there now, then measure lag and health."""
        self._run(self._query().trigger(availableNow=True).start())
        self.measure()

    def follow(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Read what is written, and measure lag and health, until it is stopped."""
        query = self._query().trigger(processingTime=f"{self._options.every_s} seconds").start()
        try:
            while not query.awaitTermination(self._options.every_s) and not is_over():
                if self._is_near_the_end(query):
                    self.measure()
        finally:
            query.stop()

    def _is_near_the_end(self, query: StreamingQuery) -> bool:
        """Return whether lag can be measured. While the query catches up, old commits would look like lag."""
        status, progress = query.status, query.lastProgress
        if progress is None:  # before Spark has looked for the first time there seems to be nothing, too
            return bool(status["message"].startswith("Waiting for"))
        if not status["isDataAvailable"]:
            return True
        source = progress.sources[0]
        return still_to_read(source.endOffset, source.latestOffset) <= self._options.records_per_batch // 10

    def _run(self, query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def _query(self) -> Any:
        self.store.check()
        self._spark.dataSource.register(GroupLogSource)
        decoded = (
            self._spark.readStream.format(GroupLogSource.name())
            .option("kafka.isolation.level", "read_committed")  # offsets of an aborted transaction were never committed
            .options(**self._options.kafka)
            .option("kafka.exclude.internal.topics", "false")
            .option("subscribePattern", f"{OFFSETS_TOPIC}|{FACTS_TOPIC}")
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", "false")  # the log is compacted, and retention deletes facts
            .option("maxOffsetsPerTrigger", str(self._options.records_per_batch))
            .options(**self._options.source)
            .load()
        )
        return decoded.writeStream.foreachBatch(self.batch).option("checkpointLocation", self.store.checkpoint)

    # --- a batch ------------------------------------------------------------------------------------------------------

    def batch(self, decoded: DataFrame, number: int) -> None:
        with self._one_at_a_time:
            if self.store.is_done(number):
                return  # killed after the last rename and before Spark had logged the batch
            began_ms = clock_ms()
            decoded = decoded.persist(StorageLevel.MEMORY_AND_DISK)
            try:
                kind = F.coalesce("other.kind", F.lit(COMMIT))
                counts = {row["kind"]: row["count"] for row in decoded.groupBy(kind.alias("kind")).count().collect()}
                self._put(decoded, counts, number)
            finally:
                decoded.unpersist()
            self._say(_summary(number, counts, clock_ms() - began_ms))

    def _put(self, decoded: DataFrame, counts: Mapping[str, int], number: int) -> None:
        before = self.store.state(number - 1)
        known = {row["topic_id"]: row["topic"] for row in before["topics"].collect()}
        names = known | topic_names(self._options.kafka)
        changed: dict[str, DataFrame] = {}
        if names != known:
            changed["topics"] = self._spark.createDataFrame(sorted(names.items()), schemas.TOPICS_STATE.ddl)
        commits, commit_count = tables.commits(decoded), counts.get(COMMIT, 0)
        self._put_table(schemas.COMMITS, number, commits, commit_count)
        if commit_count:
            changed["commits"] = tables.last_commits(before["commits"], commits)
        skipped_count = sum(count for kind, count in counts.items() if kind not in {COMMIT, GROUP, FACT})
        if GROUP not in counts and FACT not in counts:  # the most frequent case by far, and the cheapest
            for table in (schemas.GENERATIONS, schemas.OWNERSHIP, schemas.REBALANCES):
                self.store.clear(table, number)
            self._put_table(schemas.SKIPPED, number, tables.skipped(decoded, None), skipped_count)
            self.store.put_state(number, changed)
            return
        folded = tables.folded(decoded, before["groups"], names).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            found = folded.select(*(F.count(name).alias(name) for name in schemas.FOLDED.arrow.names)).collect()[0]
            self._put_table(schemas.GENERATIONS, number, tables.generations(folded), found["generation"])
            self._put_table(schemas.OWNERSHIP, number, tables.ownership(folded), found["interval"])
            self._put_table(schemas.REBALANCES, number, tables.rebalances(folded), found["rebalance"])
            skipped = tables.skipped(decoded, folded)
            self._put_table(schemas.SKIPPED, number, skipped, found["skipped"] + skipped_count)
            new = folded.where(F.col("state").isNotNull()).select("state.*")
            groups = before["groups"].join(new.select("group_id"), "group_id", "left_anti").unionByName(new)
            self.store.put(schemas.OWNERS, number, tables.owners(groups))
            self.store.put_state(number, changed | {"groups": groups})
        finally:
            folded.unpersist()

    def _put_table(self, table: schemas.TableSchema, number: int, rows: DataFrame, count: int) -> None:
        if count:
            self.store.put(table, number, rows, files=ceil(count / ROWS_PER_FILE))
        else:
            self.store.clear(table, number)

    # --- lag and health -----------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Measure lag and health now, from the state that the last batch left."""
        with self._one_at_a_time:
            done = self.store.last_done()
            if done is None:
                self._say("nothing has been read yet: the cluster has no log of groups")
                return
            state, at_ms = self.store.state(done), clock_ms()
            last = state["commits"]
            partitions = [
                (row["topic"], row["partition"]) for row in last.select("topic", "partition").distinct().collect()
            ]
            found = _log_ends(self._options.kafka, partitions)
            ends = self._spark.createDataFrame(found, tables.ENDS)
            waiting = tables.waiting(last, ends).limit(LOOKED_UP)
            times = _record_times(waiting, self._options.kafka)
            owners = tables.owners(state["groups"])
            lag = tables.lag(last, ends, times, owners, at_ms).persist(StorageLevel.MEMORY_AND_DISK)
            try:
                rows = lag.count()
                if rows:
                    self.store.put(schemas.LAG, at_ms, lag, files=ceil(rows / ROWS_PER_FILE))
                health = tables.health(state["groups"], lag, at_ms)
                self.store.put(schemas.HEALTH, at_ms, health)
            finally:
                lag.unpersist()
            self._say(f"lag of {rows} partitions measured in {(clock_ms() - at_ms) / 1000:.1f} s")


def still_to_read(read: str, there: str) -> int:
    """Return how many records are between the end of a batch and the end of the log, both as Spark reports them."""
    positions = BatchPlan.from_json(json.loads(read)).ends()
    ends = json.loads(there) or {}
    return sum(
        max(end - positions.get(TopicPartition(topic, int(number)), 0), 0)
        for topic, partitions in ends.items()
        for number, end in partitions.items()
    )


def _summary(number: int, counts: Mapping[str, int], took_ms: int) -> str:
    total = sum(counts.values())
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
    return f"batch {number}: {total:,} records in {took_ms / 1000:.1f} s ({kinds or 'none'})"


# --- what the cluster is asked ----------------------------------------------------------------------------------------


def _admin_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that an Admin has too; the others are for the source alone."""
    named = {name.removeprefix("kafka."): text for name, text in options.items() if name.startswith("kafka.")}
    return {name: text for name, text in named.items() if name in AdminSettings.rows()}


def topic_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return the names of topics by id, as Kafka prints it. Clusters older than topic ids have none."""
    with Admin(_admin_settings(options)) as admin:
        topics = admin.list_topics(include_internal=True)
    return {topic_id_text(topic.id.bytes): topic.name for topic in topics if topic.id is not None}


def _log_ends(options: Mapping[str, str], partitions: Collection[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Return the ends of partitions that exist. If the cluster cannot be asked, that is an error and no lag."""
    with Admin(_admin_settings(options)) as admin:
        topics = {topic.name for topic in admin.list_topics(include_internal=True)}
        asked = {TopicPartition(*each): LATEST for each in partitions if each[0] in topics}
        found = admin.list_offsets(asked) if asked else {}
    return [(*each, one.offset) for each, one in found.items() if not isinstance(one, KafkaError)]


def _record_times(waiting: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Look up the time of one record each. Spark's workers do it, so that there can be many."""
    return waiting.mapInArrow(partial(_look_up, dict(options)), tables.TIMES)


def _look_up(options: Mapping[str, str], batches: Iterable[Any]) -> Iterator[Any]:
    wanted = {
        **options,
        "subscribe": "-",
        "kafka.max.partition.fetch.bytes": "1",  # the first batch comes whole, however long it is
        "kafkaConsumer.pollTimeoutMs": LOOKUP_TIMEOUT_MS,
    }
    source = SourceOptions.of(wanted, Use.BATCH)
    for batch in batches:
        rows = [row | {"record_ms": _time_of(source, row)} for row in batch.to_pylist()]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, _TIMES_ARROW)


def _time_of(source: SourceOptions, row: Mapping[str, Any]) -> int | None:
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
