"""Runs `coterie pipeline topics`: records of topics to a table, by a query that is a member of a group.

A batch is read by its schema and put into two tables, one of rows and one of dead letters, each whole. A batch that is
repeated replaces itself, so there is no row twice. Meanwhile lag and rebalances of the group are sampled by the clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from math import ceil
from threading import Lock
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the usual name
from pyspark.sql.types import StructType

from coterie.client.admin import Admin
from coterie.client.network.runtime import clock_ms
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import CoterieError, ErrorCode, KafkaError
from coterie.spark.offset_committer import OffsetCommitter, reached
from coterie.spark.offsets import LATEST
from coterie.spark.options import admin_settings
from coterie.spark.pipeline import delta_tables, iceberg_tables, schemas
from coterie.spark.pipeline.cluster import lookup_options, time_of
from coterie.spark.pipeline.delta_tables import DeltaTables
from coterie.spark.pipeline.group_samples import GroupSamples, lag_rows
from coterie.spark.pipeline.hadoop_files import HadoopFiles
from coterie.spark.pipeline.iceberg_tables import IcebergTables
from coterie.spark.pipeline.parquet_tables import Entry, ParquetTables, Tables, day_of, first_kept_day
from coterie.spark.pipeline.partition_owners import Row
from coterie.spark.pipeline.value_formats import STRING, ValueFormat, check_package, read_values

ROWS_PER_FILE = 1_000_000
LOOKED_UP = 100
"""In how many partitions the age of the next record is looked up, those with the most lag first."""
RECORDS, DEAD_LETTERS, LAG, REBALANCES = "records", "dead_letters", "lag", "rebalances"
_PLACE = ("kafka_topic", "kafka_partition", "kafka_offset")
_ORDER: Mapping[str, tuple[str, ...]] = {
    RECORDS: _PLACE,
    DEAD_LETTERS: _PLACE,
    LAG: ("group_id", "topic", "partition", "at_ms"),
    REBALANCES: ("ended_ms",),
}
SCHEMA_VERSION = 1
_OF_KAFKA = {"startingOffsets": "earliest"}
"""Options of Spark's own source. Coterie's begins there too, if the group has no offsets."""
TABLES: Mapping[str, Callable[[SparkSession, HadoopFiles], Tables]] = {
    "parquet": ParquetTables,
    "delta": DeltaTables,
    "iceberg": IcebergTables,
}
COTERIE, KAFKA = "coterie", "kafka"
"""The sources: Coterie's own, a member of the group, and Spark's own, whose progress is committed to the group."""


def session_settings(tables: str, master: str | None) -> dict[str, str]:
    """Return the settings of a session for tables of a kind; without `master` it is one for this machine."""
    of_delta = delta_tables.SETTINGS | ({} if master and "local" not in master else delta_tables.LOCAL_SETTINGS)
    return {"delta": of_delta, "iceberg": iceberg_tables.SETTINGS}.get(tables, {})


@dataclass(frozen=True)
class TopicsOptions:
    out: str
    """The place of the tables: a directory, or a URI that Spark can write to."""
    kafka: Mapping[str, str] = field(repr=False)
    """Settings of the client, as `kafka.bootstrap.servers`; some are passwords."""
    topics: tuple[str, ...]
    group_id: str
    value: ValueFormat
    tables: str = "parquet"
    """A key of `TABLES`."""
    reader: str = COTERIE
    """`COTERIE` or `KAFKA`."""
    records_per_batch: int = 1_000_000
    every_s: float = 10.0
    """The interval of batches and of samples of the group."""
    keep_days: int | None = None
    """How many days are kept; None keeps all."""
    source: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More options of the source."""


class TopicsPipeline:
    """Reads topics as a member of a group and keeps their records in tables."""

    def __init__(self, spark: SparkSession, options: TopicsOptions, say: Callable[[str], None]) -> None:
        self._spark = spark
        self._options = options
        self._say = say
        self._files = HadoopFiles(spark, options.out)
        self.tables: Tables = TABLES[options.tables](spark, self._files)
        self._samples = GroupSamples(options.group_id)
        self._one_at_a_time = Lock()
        """The lock of a batch or a compaction; Spark runs the batch on a thread of its own."""
        self._maintained: date | None = None
        """The day on which the tables were last maintained."""

    def once(self) -> None:
        """Read all that is there now, then take a sample of the group."""
        query = self._query().trigger(availableNow=True).start()
        self._watch(query, lambda: False)
        if self._options.reader == KAFKA and query.lastProgress is not None:  # listeners may be late
            with closing(self._committer()) as committer:
                committer.commit(reached(query.lastProgress.sources[0].endOffset))
        self.sample()
        self.maintain()

    def follow(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Read what is written, and take samples of the group, until it is stopped."""
        query = self._query().trigger(processingTime=f"{self._options.every_s} seconds").start()
        self._watch(query, is_over)

    def _watch(self, query: Any, is_over: Callable[[], bool]) -> None:
        listener = self._committer() if self._options.reader == KAFKA else None
        if listener is not None:
            self._spark.streams.addListener(listener)
        try:
            while not query.awaitTermination(self._options.every_s) and not is_over():
                self.sample()
                self.maintain()
        finally:
            query.stop()
            if listener is not None:
                self._spark.streams.removeListener(listener)
                listener.close()

    def _committer(self) -> OffsetCommitter:
        return OffsetCommitter({**self._options.kafka, "groupId": self._options.group_id})

    def _query(self) -> Any:
        options = self._options
        check_package(self._spark, options.value.format)
        self._check_checkpoint()
        self.tables.recover()
        checkpoint = self._files.full("checkpoint")
        is_member = options.reader == COTERIE
        own = {"groupId": options.group_id, "checkpointLocation": checkpoint} if is_member else _OF_KAFKA
        records = (
            self._spark.readStream.format(options.reader)
            .options(**options.kafka)
            .option("subscribe", ",".join(options.topics))
            .options(**own)
            .option("maxOffsetsPerTrigger", str(options.records_per_batch))
            .options(**options.source)
            .load()
        )
        self._check_schema(rows_of(read_values(records, options.value), options.value, 0).schema)
        what = f"joining group {options.group_id} to read" if is_member else "reading"
        self._say(f"{what} {', '.join(options.topics)}")
        return records.writeStream.foreachBatch(self.batch).option("checkpointLocation", checkpoint)

    # --- a batch ------------------------------------------------------------------------------------------------------

    def batch(self, records: DataFrame, number: int) -> None:
        """Store a batch. One that is repeated may have fewer records than before: other members have read the rest."""
        with self._one_at_a_time:
            began_ms = clock_ms()
            entry = Entry("batch", number, day_of(began_ms))
            read = read_values(records, self._options.value).persist(StorageLevel.MEMORY_AND_DISK)
            try:
                is_row = F.col("problem").isNull()
                counts = read.agg(F.count_if(is_row).alias("rows"), F.count_if(~is_row).alias("dead")).collect()[0]
                rows, dead = rows_of(read, self._options.value, number), dead_letters_of(read, number)
                self._put(RECORDS, entry, rows, counts["rows"])
                self._put(DEAD_LETTERS, entry, dead, counts["dead"])
            finally:
                read.unpersist()
            dead_text = f", {counted(counts['dead'], 'dead letter')}" if counts["dead"] else ""
            took_s = (clock_ms() - began_ms) / 1000
            self._say(f"batch {number}: {counted(counts['rows'], 'record')}{dead_text} in {took_s:.1f} s")

    def _put(self, table: str, entry: Entry, rows: DataFrame, count: int) -> None:
        if not count:
            self.tables.clear(table, entry)
            return
        files = ceil(count / ROWS_PER_FILE)
        self.tables.put(table, entry, rows.coalesce(files).sortWithinPartitions(*_PLACE), files=files)

    # --- beside it ----------------------------------------------------------------------------------------------------

    def sample(self) -> None:
        """Store lag and rebalances of the group now. A cluster that does not answer is reported and asked again."""
        try:
            with Admin(admin_settings(self._options.kafka)) as admin:
                at_ms = clock_ms()
                group, committed, ends = self._ask(admin)
        except CoterieError as error:
            if not isinstance(error, KafkaError) or error.code != ErrorCode.GROUP_ID_NOT_FOUND:  # it has not joined yet
                self._say(f"lag is unknown: {error}")
            return
        waiting = sorted(
            (each for each, offset in committed.items() if offset is not None and offset < ends.get(each, 0)),
            key=lambda each: (committed[each] or 0) - ends[each],
        )
        source = lookup_options(self._options.kafka)
        times = {
            each: time_of(source, {**each._asdict(), "committed": committed[each], "log_end": ends[each]})
            for each in waiting[:LOOKED_UP]
        }
        rows = lag_rows(group, at_ms, committed, ends, times)
        rebalance = self._samples.add(group, at_ms)
        last = self._last_done()
        self._put_rows(LAG, at_ms, [row | {"batch": last} for row in rows])
        if rebalance is not None:
            self._put_rows(REBALANCES, at_ms, [rebalance | {"batch": last}])
            self._say(f"rebalance: {rebalance['cause']}; {counted(rebalance['members'], 'member')} now")
        behind = sum(row.get("records_behind") or 0 for row in rows)
        place = f"{counted(len(rows), 'partition')}, {counted(len(group.members), 'member')}"
        self._say(f"lag {counted(behind, 'record')} in {place}")

    def _ask(self, admin: Admin) -> tuple[Any, dict[TopicPartition, int | None], dict[TopicPartition, int]]:
        """Return the group, the committed offset of each partition, and the end of each."""
        options = self._options
        (group,) = admin.describe_groups([options.group_id]).values()
        if isinstance(group, KafkaError):
            raise group
        described = admin.describe_topics(options.topics)
        partitions = [
            TopicPartition(name, part.partition)
            for name, about in described.items()
            if not isinstance(about, KafkaError)
            for part in about.partitions
        ]
        found = admin.list_group_offsets(options.group_id)
        offsets = {each: one.offset for each, one in found.items() if isinstance(one, OffsetAndMetadata)}
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST)) if partitions else {}
        known = {each: one.offset for each, one in ends.items() if not isinstance(one, KafkaError)}
        return group, {each: offsets.get(each) for each in partitions}, known

    def _put_rows(self, table: str, at_ms: int, rows: list[Row]) -> None:
        if rows:
            schema = schemas.TABLES[table]
            full = [tuple(row.get(name) for name in schema.arrow.names) for row in rows]
            frame = self._spark.createDataFrame(full, schema.ddl)
            self.tables.put(table, Entry("at", at_ms, day_of(at_ms)), frame)

    def maintain(self) -> None:
        """Once a day, merge the small files of days that are over, and delete days that are too old."""
        today = day_of(clock_ms())
        if today == self._maintained:
            return
        self._maintained = today
        with self._one_at_a_time:
            for table, order in _ORDER.items():
                if self._options.keep_days is not None:
                    self.tables.expire(table, first_kept_day(today, self._options.keep_days))
                days = self.tables.compact(table, today, order, last_done=self._last_done())
                if days:
                    self._say(f"{table}: small files of {days} days are merged")

    def _last_done(self) -> int:
        """Return the number of the last batch that Spark has logged as done; -1 if there is none."""
        return max((int(name) for name in self._files.names("checkpoint/commits") if name.isdigit()), default=-1)

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check_checkpoint(self) -> None:
        """Raise if there are tables without their checkpoint: batches would begin at 0 again and replace others."""
        has_rows = any(self._files.names(table) for table in (RECORDS, DEAD_LETTERS))
        if has_rows and not self._files.names("checkpoint/offsets"):
            raise CoterieError(
                f"{self._files.root} holds tables, but its checkpoint is gone: the numbers of new batches would be "
                "those of old ones. Read into an empty directory"
            )

    def _check_schema(self, new: StructType) -> None:
        """Raise if the rows of the table have other columns. New ones may be added: they are null in older rows."""
        place = f"schemas/{RECORDS}.json"
        if self._files.exists(place):
            before = json.loads(self._files.read_text(place))
            if before["tables"] != self._options.tables:
                raise CoterieError(
                    f"{self._files.root} has tables of {before['tables']}: give --tables, or another --out"
                )
            kept = StructType.fromJson(before["schema"])
            types = {field.name: field.dataType for field in new.fields}
            for field_ in kept.fields:
                if types.get(field_.name) != field_.dataType:
                    now = f"is {types[field_.name].simpleString()}" if field_.name in types else "is missing"
                    raise CoterieError(
                        f"column {field_.name} of table {RECORDS} is {field_.dataType.simpleString()}, and "
                        f"{now} in --schema. Columns can be added, but not changed: give another --out"
                    )
        self._files.write_text(
            place, json.dumps({"version": SCHEMA_VERSION, "tables": self._options.tables, "schema": new.jsonValue()})
        )


# --- rows -------------------------------------------------------------------------------------------------------------


def rows_of(read: DataFrame, how: ValueFormat, number: int) -> DataFrame:
    """Return the rows of a batch: the columns of the schema, then where each record was."""
    fields = read.schema["fields"].dataType
    assert isinstance(fields, StructType)
    place = {
        "kafka_topic": F.col("topic"),
        "kafka_partition": F.col("partition"),
        "kafka_offset": F.col("offset"),
        "kafka_timestamp": F.col("timestamp"),
        "kafka_key": F.col("key").cast(STRING) if how.key == STRING else F.col("key"),
        "tombstone": F.col("value").isNull(),
        "batch": F.lit(number).cast("bigint"),
    }
    taken = sorted(set(fields.names) & (place.keys() | {"date"}))
    if taken:
        raise CoterieError(f"field {taken[0]} of --schema has the name of a column of the pipeline: rename it")
    values = [F.col("fields")[name].alias(name) for name in fields.names]
    good = read.where(F.col("problem").isNull())
    return good.select(*values, *(column.alias(name) for name, column in place.items()))


def dead_letters_of(read: DataFrame, number: int) -> DataFrame:
    """Return the records that could not be read, with the reason and all of their bytes."""
    return read.where(F.col("problem").isNotNull()).select(
        F.col("topic").alias("kafka_topic"),
        F.col("partition").alias("kafka_partition"),
        F.col("offset").alias("kafka_offset"),
        F.col("timestamp").alias("kafka_timestamp"),
        F.col("problem").alias("reason"),
        "key",
        "value",
        F.lit(number).cast("bigint").alias("batch"),
    )


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
