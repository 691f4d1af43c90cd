"""Runs the pipeline: each micro-batch is decoded, folded and stored; in between, lag and health are measured.

The tables of a batch are written first and its state last (`StateStore`), so a batch that was killed in between
is run again. A group that does not commit writes no records, and so causes no batch: its lag is measured by the clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from math import ceil
from threading import Lock
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the usual name
from pyspark.sql.streaming.query import StreamingQuery

from coterie.client.network.runtime import clock_ms
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.spark.batch_plan import BatchPlan
from coterie.spark.pipeline import schemas, tables
from coterie.spark.pipeline.cluster import log_ends, record_times, topic_names
from coterie.spark.pipeline.decoding import COMMIT, FACT, GROUP
from coterie.spark.pipeline.earlier_tables import migrate
from coterie.spark.pipeline.hadoop_files import HadoopFiles
from coterie.spark.pipeline.parquet_tables import Entry, ParquetTables, day_of, first_kept_day
from coterie.spark.pipeline.schemas import TABLES, TableSchema
from coterie.spark.pipeline.state_store import StateStore

ROWS_PER_FILE = 1_000_000
COMPACTED_ORDER = ("group_id", "topic", "partition", "at_ms", "hour_ms", "log_partition", "log_offset")
"""The order of rows in a compacted day, by those of these columns that a table has. Equal values take no space."""
_ROLLED_UP = "state/lag_hours"
"""The file with the last hour that is in `lag_hours`."""
LOOKED_UP = 10_000
"""The number of records whose age is looked up, those with the most lag first; others get the age of the commit."""


@dataclass(frozen=True)
class PipelineOptions:
    out: str
    """The place of the tables: a directory, or a URI that Spark can write to."""
    kafka: Mapping[str, str] = field(repr=False)
    """Settings of the client, as `kafka.bootstrap.servers`; some are passwords."""
    records_per_batch: int = 5_000_000
    every_s: float = 60.0
    """The interval of batches and of lag measurements, when the pipeline follows the log."""
    keep_days: int | None = None
    """How many days are kept; None keeps all."""
    keep_lag_hours: int | None = None
    """How many hours each measurement of a partition is kept. Of older ones there are `lag_hours` and `group_lag`."""
    source: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More options of the source."""


class GroupsPipeline:
    def __init__(self, spark: SparkSession, options: PipelineOptions, say: Callable[[str], None]) -> None:
        self._spark = spark
        self._options = options
        self._say = say
        self._files = HadoopFiles(spark, options.out)
        self.tables = ParquetTables(spark, self._files)
        self.state = StateStore(spark, self._files)
        self._one_at_a_time = Lock()
        """The lock of a batch or a measurement; Spark runs the batch on a thread of its own."""
        self._maintained: date | None = None
        """The day on which the tables were last maintained."""
        self._rolled_up_ms = -1
        """The hour in which `lag_hours` was last looked after."""

    def once(self) -> None:
        """Read all that is there now, then measure lag and health."""
        self._run(self._query().trigger(availableNow=True).start())
        self.measure()
        self.maintain()

    def follow(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Read what is written, and measure lag and health, until it is stopped."""
        query = self._query().trigger(processingTime=f"{self._options.every_s} seconds").start()
        try:
            while not query.awaitTermination(self._options.every_s) and not is_over():
                if self._is_near_the_end(query):
                    self.measure()
                    self.maintain()
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
        from coterie.spark.source import GroupLogSource  # an older pyspark, for topics in Iceberg, cannot import it

        self._check()
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
        return decoded.writeStream.foreachBatch(self.batch).option("checkpointLocation", self._files.full("checkpoint"))

    def _check(self) -> None:
        """Check that tables and checkpoint belong together. If not, rows would be lost or there twice."""
        self.tables.recover()
        migrate(self._spark, self._files, self._say)
        done = self.state.last_done()
        if done is not None and not self._files.exists("checkpoint/offsets"):
            raise CoterieError(
                f"{self._files.root} holds tables up to batch {done}, but its checkpoint is gone: where to read on is "
                "not known. Read the log again into an empty directory"
            )

    # --- a batch ------------------------------------------------------------------------------------------------------

    def batch(self, decoded: DataFrame, number: int) -> None:
        with self._one_at_a_time:
            if self.state.is_done(number):
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
        before = self.state.load(number - 1)
        known = {row["topic_id"]: row["topic"] for row in before["topics"].collect()}
        names = known | topic_names(self._options.kafka)
        changed: dict[str, DataFrame] = {}
        if names != known:
            new_names = sorted(names.items() - known.items())
            changed["topics"] = self._spark.createDataFrame(new_names, schemas.TOPICS_STATE.ddl)
        commits, commit_count = tables.commits(decoded), counts.get(COMMIT, 0)
        self._put_table(schemas.COMMITS, number, commits, commit_count)
        if commit_count:
            changed["commits"] = tables.last_commits(commits)
        skipped_count = sum(count for kind, count in counts.items() if kind not in {COMMIT, GROUP, FACT})
        if GROUP not in counts and FACT not in counts:  # the most frequent case by far, and the cheapest
            for table in (schemas.GENERATIONS, schemas.OWNERSHIP, schemas.REBALANCES):
                self._put_table(table, number, decoded, 0)
            self._put_table(schemas.SKIPPED, number, tables.skipped(decoded, None), skipped_count)
            self.state.put(number, changed)
            return
        folded = tables.folded(decoded, before["groups"], names).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            found = folded.select(*(F.count(name).alias(name) for name in schemas.FOLDED.arrow.names)).collect()[0]
            self._put_table(schemas.GENERATIONS, number, tables.generations(folded), found["generation"])
            self._put_table(schemas.OWNERSHIP, number, tables.ownership(folded), found["interval"])
            self._put_table(schemas.REBALANCES, number, tables.rebalances(folded), found["rebalance"])
            skipped = tables.skipped(decoded, folded)
            self._put_table(schemas.SKIPPED, number, skipped, found["skipped"] + skipped_count)
            new = folded.where(F.col("state").isNotNull()).select("state.*").withColumn("batch", _batch(number))
            groups = before["groups"].join(new.select("group_id"), "group_id", "left_anti").unionByName(new)
            owners = tables.owners(groups).withColumn("batch", _batch(number))
            self.tables.replace(schemas.OWNERS.name, _entry(number), owners)
            self.state.put(number, changed | {"groups": new})
        finally:
            folded.unpersist()

    def _put_table(self, table: schemas.TableSchema, number: int, rows: DataFrame, count: int) -> None:
        if count:
            stored = rows.withColumn("batch", _batch(number))
            self.tables.put(table.name, _entry(number), stored, files=ceil(count / ROWS_PER_FILE))
        else:
            self.tables.clear(table.name, _entry(number))

    # --- lag and health -----------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Measure lag and health now, from the state that the last batch left."""
        with self._one_at_a_time:
            done = self.state.last_done()
            if done is None:
                self._say("nothing has been read yet: the cluster has no log of groups")
                return
            state, at_ms = self.state.load(done), clock_ms()
            last = state["commits"]
            partitions = [
                (row["topic"], row["partition"]) for row in last.select("topic", "partition").distinct().collect()
            ]
            found = log_ends(self._options.kafka, partitions)
            ends = self._spark.createDataFrame(found, tables.ENDS)
            waiting = tables.waiting(last, ends).limit(LOOKED_UP)
            times = record_times(waiting, self._options.kafka)
            owners = tables.owners(state["groups"])
            lag = tables.lag(last, ends, times, owners, at_ms).persist(StorageLevel.MEMORY_AND_DISK)
            entry = Entry("at", at_ms, day_of(at_ms))
            try:
                rows = lag.count()
                if rows:
                    files = ceil(rows / ROWS_PER_FILE)
                    self.tables.put(schemas.LAG.name, entry, self._stored(schemas.LAG, lag, done), files=files)
                    groups = self._stored(schemas.GROUP_LAG, tables.group_lag(lag), done)
                    self.tables.put(schemas.GROUP_LAG.name, entry, groups)
                health = tables.health(state["groups"], lag, at_ms)
                self.tables.replace(schemas.HEALTH.name, entry, self._stored(schemas.HEALTH, health, done))
            finally:
                lag.unpersist()
            self._say(f"lag of {rows} partitions measured in {(clock_ms() - at_ms) / 1000:.1f} s")

    def _stored(self, table: TableSchema, rows: DataFrame, batch: int) -> DataFrame:
        """Return rows with the columns of the table in their order."""
        return rows.withColumn("batch", _batch(batch)).select(*TABLES[table.name].arrow.names)

    def maintain(self) -> None:
        """Roll up the lag of hours that are over; once a day, merge small files and delete days that are too old."""
        now_ms = clock_ms()
        today = day_of(now_ms)
        with self._one_at_a_time:
            self._roll_up(now_ms)
            if today == self._maintained:
                return
            self._maintained = today
            done = self.state.last_done()
            for table in TABLES.values():
                if not table.is_snapshot:
                    self._maintain_table(table, today, -1 if done is None else done)

    def _maintain_table(self, table: TableSchema, today: date, last_done: int) -> None:
        keep_days, is_short = self._options.keep_days, False
        if table.name == schemas.LAG.name and self._options.keep_lag_hours is not None:
            keep_days, is_short = ceil(self._options.keep_lag_hours / 24), True
        if keep_days is not None:
            self.tables.expire(table.name, first_kept_day(today, keep_days))
        if is_short:
            return  # its measurements are deleted one by one
        order = [name for name in COMPACTED_ORDER if name in table.arrow.names]
        days = self.tables.compact(table.name, today, order, last_done=last_done)
        if days:
            self._say(f"{table.name}: small files of {days} days are merged")

    def _roll_up(self, now_ms: int) -> None:
        """Add the hours that are over to `lag_hours`, and delete measurements that are too old."""
        this_hour = now_ms - now_ms % tables.HOUR_MS
        if this_hour == self._rolled_up_ms:
            return
        self._rolled_up_ms = this_hour
        measured = self.tables.numbers(schemas.LAG.name, "at")
        last = int(self._files.read_text(_ROLLED_UP)) if self._files.exists(_ROLLED_UP) else -1
        hours = {at_ms - at_ms % tables.HOUR_MS for at_ms in measured}
        for hour_ms in sorted(hour for hour in hours if last < hour < this_hour):
            within = [at_ms for at_ms in measured if hour_ms <= at_ms < hour_ms + tables.HOUR_MS]
            lag = self.tables.entries(schemas.LAG.name, [Entry("at", at_ms, day_of(at_ms)) for at_ms in within])
            batch = lag.agg(F.max("batch")).collect()[0][0]
            rows = self._stored(schemas.LAG_HOURS, tables.lag_hours(lag), batch)
            self.tables.put(schemas.LAG_HOURS.name, Entry("hour", hour_ms, day_of(hour_ms)), rows)
            self._files.write_text(_ROLLED_UP, str(hour_ms))
        if self._options.keep_lag_hours is not None:
            oldest = this_hour - self._options.keep_lag_hours * tables.HOUR_MS
            for at_ms in measured:
                if at_ms < oldest:
                    self.tables.clear(schemas.LAG.name, Entry("at", at_ms, day_of(at_ms)))


def _entry(number: int) -> Entry:
    return Entry("batch", number, day_of(clock_ms()))


def _batch(number: int | None) -> Column:
    return F.lit(number).cast("bigint")


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
