"""Runs the pipeline: each micro-batch is decoded, folded and stored; in between, lag and health are measured.

The tables of a batch are written first and its state last (`ParquetStore`), so a batch that was killed in between
is run again. A group that does not commit writes no records, and so causes no batch: its lag is measured by the clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from threading import Lock
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
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
from coterie.spark.pipeline.schemas import STATES, TableSchema
from coterie.spark.source import GroupLogSource

KEPT_STATES = 2
"""The last state, and the one before it in case the last batch has to run again."""
_BATCH = re.compile(r"batch=(\d+)")


class ParquetStore:
    """Tables as directories of Parquet. A batch is written to a directory aside, which is then renamed.

        OUT/commits/batch=0/*.parquet       rows of batch 0, all of them or none
        OUT/state/batch=0/groups/...        the state for the next batch; it is written last: then the batch is done
        OUT/_aside/...                      what is being written

    A batch that runs again overwrites its own directories, so no row is there twice. Paths are Hadoop's: a local
    directory, hdfs:// or whatever else Spark can write to.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self.root = root.rstrip("/")
        self._jvm: Any = spark._jvm  # noqa: SLF001  there is no other way to Hadoop's file systems
        configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._files = self._path("").getFileSystem(configuration)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}" if name else self.root)

    @property
    def checkpoint(self) -> str:
        return f"{self.root}/checkpoint"

    def check(self) -> None:
        """Check that tables and checkpoint belong together. If not, rows would be lost or there twice."""
        done, has_checkpoint = self.last_done(), self._files.exists(self._path("checkpoint/offsets"))
        if done is not None and not has_checkpoint:
            raise CoterieError(
                f"{self.root} holds tables up to batch {done}, but its checkpoint is gone: where to read on is not "
                "known. Read the log again into an empty directory"
            )
        if self._files.exists(self._path("rounds")):
            raise CoterieError(
                f"{self.root} holds tables of release 0.1.0, among them `rounds`, which is called `rebalances` now. "
                "Read the log again into an empty directory"
            )

    # --- tables -------------------------------------------------------------------------------------------------------

    def put(self, table: TableSchema, number: int, rows: DataFrame, *, files: int = 1) -> None:
        aside = f"_aside/{table.name}-{number}"
        self._write(rows, aside, files)
        self._move(aside, f"{table.name}/batch={number}")
        if table.is_snapshot:
            self._drop_before(table.name, number)

    def clear(self, table: TableSchema, number: int) -> None:
        """Delete the rows of an earlier attempt: the batch has none."""
        self._files.delete(self._path(f"{table.name}/batch={number}"), True)

    def _write(self, rows: DataFrame, name: str, files: int) -> None:
        rows.coalesce(files).write.mode("overwrite").parquet(f"{self.root}/{name}")

    def _move(self, source: str, target: str) -> None:
        place = self._path(target)
        self._files.delete(place, True)
        self._files.mkdirs(place.getParent())
        if not self._files.rename(self._path(source), place):
            raise CoterieError(f"{self.root}/{source} could not be renamed to {target}: is the directory writable?")

    def _batches(self, name: str) -> list[int]:
        place = self._path(name)
        if not self._files.exists(place):
            return []
        names = [each.getPath().getName() for each in self._files.listStatus(place)]
        return sorted(int(found[1]) for found in map(_BATCH.fullmatch, names) if found)

    def _drop_before(self, name: str, number: int) -> None:
        for each in self._batches(name):
            if each < number:
                self._files.delete(self._path(f"{name}/batch={each}"), True)

    # --- state --------------------------------------------------------------------------------------------------------

    def last_done(self) -> int | None:
        done = self._batches("state")
        return done[-1] if done else None

    def is_done(self, number: int) -> bool:
        return self._files.exists(self._path(f"state/batch={number}"))  # type: ignore[no-any-return]

    def state(self, number: int) -> dict[str, DataFrame]:
        """Return the state after that batch; before the first it is empty."""
        if number < 0:
            return {name: self._spark.createDataFrame([], table.ddl) for name, table in STATES.items()}
        if not self.is_done(number):
            raise CoterieError(
                f"the checkpoint goes on after batch {number}, but {self.root}/state does not have that batch: tables "
                "and checkpoint are not of the same run. Read the log again into an empty directory"
            )
        folder = f"{self.root}/state/batch={number}"
        return {name: self._spark.read.schema(table.ddl).parquet(f"{folder}/{name}") for name, table in STATES.items()}

    def put_state(self, number: int, changed: Mapping[str, DataFrame]) -> None:
        """Store the state in one rename; from then on the batch is done. Tables that have not changed are copied."""
        aside = f"_aside/state-{number}"
        self._files.delete(self._path(aside), True)
        for name in STATES:
            if name in changed or number == 0:
                rows = changed.get(name)
                self._write(rows if rows is not None else self.state(-1)[name], f"{aside}/{name}", 1)
            else:
                self._copy(f"state/batch={number - 1}/{name}", f"{aside}/{name}")
        self._move(aside, f"state/batch={number}")
        self._drop_before("state", number - KEPT_STATES + 1)

    def _copy(self, source: str, target: str) -> None:
        copy = self._jvm.org.apache.hadoop.fs.FileUtil.copy
        copy(self._files, self._path(source), self._files, self._path(target), False, self._files.getConf())


ROWS_PER_FILE = 1_000_000
LOOKED_UP = 10_000
"""The number of records whose age is looked up, those with the most lag first; others get the age of the commit."""


@dataclass(frozen=True)
class PipelineOptions:
    out: str
    """The place of the tables: a directory, or a URI that Spark can write to."""
    kafka: Mapping[str, str]
    """Settings of the client, as `kafka.bootstrap.servers`."""
    records_per_batch: int = 5_000_000
    every_s: float = 60.0
    """The interval of batches and of lag measurements, when the pipeline follows the log."""
    source: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""


class GroupsPipeline:
    def __init__(self, spark: SparkSession, options: PipelineOptions, say: Callable[[str], None]) -> None:
        self._spark = spark
        self._options = options
        self._say = say
        self.store = ParquetStore(spark, options.out)
        self._one_at_a_time = Lock()
        """The lock of a batch or a measurement; Spark runs the batch on a thread of its own."""

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
            found = log_ends(self._options.kafka, partitions)
            ends = self._spark.createDataFrame(found, tables.ENDS)
            waiting = tables.waiting(last, ends).limit(LOOKED_UP)
            times = record_times(waiting, self._options.kafka)
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
