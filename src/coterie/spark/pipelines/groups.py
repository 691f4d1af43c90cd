"""The log of the groups to tables: each micro-batch is decoded, folded and put away; in between, lag and health.

The tables of a batch are written first and its state last (`store.py`): whatever is killed in between is done over. A
group that does not commit makes no records, and so no batch: its lag is measured by the clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from threading import Lock
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it
from pyspark.sql.streaming.query import StreamingQuery

from coterie.client.network.runtime import clock_ms
from coterie.client.types import TopicPartition
from coterie.spark import schemas, transforms
from coterie.spark.batch_plan import BatchPlan
from coterie.spark.decoding import FACTS_TOPIC, OFFSETS_TOPIC
from coterie.spark.decoding.decode import COMMIT, FACT, GROUP
from coterie.spark.pipelines import asking
from coterie.spark.pipelines.store import Store
from coterie.spark.source import GroupLogSource

__all__ = ["GroupsPipeline", "Wanted", "still_to_read"]

ROWS_PER_FILE = 1_000_000
LOOKED_AT = 10_000
"""So many records are looked at for their age, those of the largest lag first; the others are told by their commit."""


@dataclass(frozen=True)
class Wanted:
    """`kafka` are the client's settings, as `kafka.bootstrap.servers`."""

    out: str
    kafka: Mapping[str, str]
    records_per_batch: int = 5_000_000
    every_s: float = 60.0
    """With follow: how often a batch begins, and lag is measured."""
    looked_at: int = LOOKED_AT
    source: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""


class GroupsPipeline:
    def __init__(self, spark: SparkSession, wanted: Wanted, say: Callable[[str], None]) -> None:
        self._spark = spark
        self._wanted = wanted
        self._say = say
        self.store = Store(spark, wanted.out)
        self._one_at_a_time = Lock()
        """A batch and a measurement: Spark calls the first on a thread of its own."""

    def once(self) -> None:
        """All that is there now; then lag and health."""
        self._run(self._query().trigger(availableNow=True).start())
        self.measure()

    def follow(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Until it is stopped."""
        query = self._query().trigger(processingTime=f"{self._wanted.every_s} seconds").start()
        try:
            while not query.awaitTermination(self._wanted.every_s) and not is_over():
                if self._is_near_the_end(query):
                    self.measure()
        finally:
            query.stop()

    def _is_near_the_end(self, query: StreamingQuery) -> bool:
        """While it catches up, what was committed last is of the past, and would look like lag."""
        status, progress = query.status, query.lastProgress
        if progress is None:  # before Spark has looked for the first time there seems to be nothing, too
            return bool(status["message"].startswith("Waiting for"))
        if not status["isDataAvailable"]:
            return True
        source = progress.sources[0]
        return still_to_read(source.endOffset, source.latestOffset) <= self._wanted.records_per_batch // 10

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
            .options(**self._wanted.kafka)
            .option("kafka.exclude.internal.topics", "false")
            .option("subscribePattern", f"{OFFSETS_TOPIC}|{FACTS_TOPIC}")
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", "false")  # compaction and retention are this log's way of life
            .option("maxOffsetsPerTrigger", str(self._wanted.records_per_batch))
            .options(**self._wanted.source)
            .load()
        )
        return decoded.writeStream.foreachBatch(self.batch).option("checkpointLocation", self.store.checkpoint)

    # --- a batch ------------------------------------------------------------------------------------------------------

    def batch(self, decoded: DataFrame, number: int) -> None:
        with self._one_at_a_time:
            if self.store.is_done(number):
                return  # it was killed after the last rename and before Spark had noted it
            began_ms = clock_ms()
            decoded = decoded.persist(StorageLevel.MEMORY_AND_DISK)
            try:
                kind = F.coalesce("other.kind", F.lit(COMMIT))
                counts = {row["kind"]: row["count"] for row in decoded.groupBy(kind.alias("kind")).count().collect()}
                self._put(decoded, counts, number)
            finally:
                decoded.unpersist()
            self._say(_said(number, counts, clock_ms() - began_ms))

    def _put(self, decoded: DataFrame, counts: Mapping[str, int], number: int) -> None:
        before = self.store.state(number - 1)
        known = {row["topic_id"]: row["topic"] for row in before["topics"].collect()}
        names = known | asking.topic_names(self._wanted.kafka)
        changed: dict[str, DataFrame] = {}
        if names != known:
            changed["topics"] = self._spark.createDataFrame(sorted(names.items()), schemas.TOPICS_STATE.ddl)
        commits, commit_count = transforms.commits(decoded), counts.get(COMMIT, 0)
        self._put_table(schemas.COMMITS, number, commits, commit_count)
        if commit_count:
            changed["commits"] = transforms.last_commits(before["commits"], commits)
        strange = sum(count for kind, count in counts.items() if kind not in {COMMIT, GROUP, FACT})
        if GROUP not in counts and FACT not in counts:  # the most frequent case by far, and the cheapest
            for table in (schemas.GENERATIONS, schemas.OWNERSHIP, schemas.REBALANCES):
                self.store.clear(table, number)
            self._put_table(schemas.SKIPPED, number, transforms.skipped(decoded, None), strange)
            self.store.put_state(number, changed)
            return
        folded = transforms.folded(decoded, before["groups"], names).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            found = folded.select(*(F.count(name).alias(name) for name in schemas.FOLDED.arrow.names)).collect()[0]
            self._put_table(schemas.GENERATIONS, number, transforms.generations(folded), found["generation"])
            self._put_table(schemas.OWNERSHIP, number, transforms.ownership(folded), found["interval"])
            self._put_table(schemas.REBALANCES, number, transforms.rebalances(folded), found["rebalance"])
            skipped = transforms.skipped(decoded, folded)
            self._put_table(schemas.SKIPPED, number, skipped, found["skipped"] + strange)
            told = folded.where(F.col("state").isNotNull()).select("state.*")
            groups = before["groups"].join(told.select("group_id"), "group_id", "left_anti").unionByName(told)
            self.store.put(schemas.OWNERS, number, transforms.owners(groups))
            self.store.put_state(number, changed | {"groups": groups})
        finally:
            folded.unpersist()

    def _put_table(self, table: schemas.Table, number: int, rows: DataFrame, count: int) -> None:
        if count:
            self.store.put(table, number, rows, files=ceil(count / ROWS_PER_FILE))
        else:
            self.store.clear(table, number)

    # --- lag and health -----------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """As of now, by what the last batch left."""
        with self._one_at_a_time:
            done = self.store.last_done()
            if done is None:
                self._say("nothing has been read yet: the cluster has no log of groups")
                return
            state, at_ms = self.store.state(done), clock_ms()
            last = state["commits"]
            places = [
                (row["topic"], row["partition"]) for row in last.select("topic", "partition").distinct().collect()
            ]
            found = asking.log_ends(self._wanted.kafka, places)
            ends = self._spark.createDataFrame(found, asking.ENDS)
            waiting = transforms.waiting(last, ends).limit(self._wanted.looked_at)
            times = asking.record_times(waiting, self._wanted.kafka)
            owners = transforms.owners(state["groups"])
            lag = transforms.lag(last, ends, times, owners, at_ms).persist(StorageLevel.MEMORY_AND_DISK)
            try:
                rows = lag.count()
                if rows:
                    self.store.put(schemas.LAG, at_ms, lag, files=ceil(rows / ROWS_PER_FILE))
                health = transforms.health(state["groups"], lag, at_ms)
                self.store.put(schemas.HEALTH, at_ms, health)
            finally:
                lag.unpersist()
            self._say(f"lag of {rows} partitions measured in {(clock_ms() - at_ms) / 1000:.1f} s")


def still_to_read(read: str, there: str) -> int:
    """Records between what the source has planned and where the log ended, both as Spark reports them."""
    positions = BatchPlan.from_json(json.loads(read)).ends()
    ends = json.loads(there) or {}
    return sum(
        max(end - positions.get(TopicPartition(topic, int(number)), 0), 0)
        for topic, partitions in ends.items()
        for number, end in partitions.items()
    )


def _said(number: int, counts: Mapping[str, int], took_ms: int) -> str:
    total = sum(counts.values())
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
    return f"batch {number}: {total:,} records in {took_ms / 1000:.1f} s ({kinds or 'none'})"
