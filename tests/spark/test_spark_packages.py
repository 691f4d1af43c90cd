"""Delta Lake, Iceberg, Avro and Protobuf, if Spark has their packages: `make pipeline-delta`, `pipeline-iceberg`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from coterie.client.producer.producer import Producer
from coterie.errors import CoterieError
from coterie.spark.pipeline import delta_tables, iceberg_tables
from coterie.spark.pipeline.delta_tables import DeltaTables
from coterie.spark.pipeline.hadoop_files import HadoopFiles
from coterie.spark.pipeline.iceberg_tables import IcebergTables
from coterie.spark.pipeline.parquet_tables import Entry
from coterie.spark.pipeline.submit import until_workers_start
from coterie.spark.pipeline.topics_pipeline import COTERIE, DEAD_LETTERS, KAFKA, TABLES, TopicsOptions, TopicsPipeline
from coterie.spark.pipeline.value_formats import ValueFormat, check_package, has_class, read_values
from spark.topics import Topic

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(400)]
CLASSES = {
    "delta": delta_tables.SETTINGS["spark.sql.extensions"],
    "iceberg": iceberg_tables.SETTINGS["spark.sql.extensions"],
}
DAYS = [date(2026, 11, day) for day in (16, 17, 18)]


@pytest.fixture(params=CLASSES)
def kind(request: pytest.FixtureRequest, spark: SparkSession) -> str:
    name: str = request.param
    if not has_class(spark, CLASSES[name]):
        pytest.skip(f"this Spark does not have {name}: make pipeline-{name} runs it")
    return name


def rows_in(spark: SparkSession, kind: str, out: Path, table: str) -> list[Any]:
    """Read a table by its path, as a user would."""
    return spark.read.format(kind).load(str(out / table)).collect()


def commits_of(spark: SparkSession, kind: str, out: Path, table: str) -> int:
    """Return how often rows were added to a table."""
    if kind == "delta":
        files = (out / table / "_delta_log").glob("*.json")
        log = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return sum("txn" in line for line in log)
    tables = IcebergTables(spark, HadoopFiles(spark, str(out)))
    return spark.table(f"{tables.catalog}.{table}.snapshots").where("summary['coterie-entry'] IS NOT NULL").count()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (DeltaTables, r"needs the package delta-spark.*io\.delta:delta-spark_4\.\d+_2\.13"),
        (
            IcebergTables,
            r"needs the package iceberg-spark-runtime.*This is Spark 4.*for Spark 4\.0 and 4\.1.*:1\.12\.0",
        ),
    ],
)
def test_without_its_package_it_is_said_which_one_is_missing(
    spark: SparkSession, tmp_path: Path, make: Callable[[SparkSession, HadoopFiles], object], named: str
) -> None:
    if has_class(spark, CLASSES["delta" if make is DeltaTables else "iceberg"]):
        pytest.skip("this Spark has the package")
    with pytest.raises(CoterieError, match=named):
        make(spark, HadoopFiles(spark, str(tmp_path)))


def test_an_entry_that_is_put_again_is_there_once(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    tables = TABLES[kind](spark, HadoopFiles(spark, str(tmp_path)))
    rows = spark.createDataFrame([(2,), (1,)], "id int")
    for number, day in enumerate([*DAYS[:2], DAYS[1]]):
        tables.put("t", Entry("batch", number, day), rows)
    tables.put("t", Entry("batch", 2, DAYS[2]), rows)  # again, on the next day
    tables.put("t", Entry("at", 2, DAYS[2]), rows)

    def count() -> int:
        return len(rows_in(spark, kind, tmp_path, "t"))

    assert (count(), commits_of(spark, kind, tmp_path, "t")) == (8, 4)
    assert tables.compact("t", DAYS[2], ["id"], last_done=5) == 1 and count() == 8
    assert tables.compact("t", DAYS[2], ["id"], last_done=5) == 0, "the day has one file"
    tables.put("t", Entry("batch", 2, DAYS[2]), rows)
    assert count() == 8, "also after its files were merged"
    assert tables.expire("t", DAYS[1]) == 1 and count() == 6
    tables.put("t", Entry("batch", 3, DAYS[2]), spark.createDataFrame([(3, "new")], "id int, more string"))
    assert sorted(row["more"] or "" for row in rows_in(spark, kind, tmp_path, "t")) == [*[""] * 6, "new"]
    tables.replace("now", Entry("batch", 9, DAYS[2]), rows)
    tables.replace("now", Entry("batch", 10, DAYS[2]), rows.where("id = 1"))
    assert [row["id"] for row in rows_in(spark, kind, tmp_path, "now")] == [1]
    assert (tables.compact("none", DAYS[2], ["id"], last_done=5), tables.expire("none", DAYS[1])) == (0, 0)


# --- from a topic to the table ----------------------------------------------------------------------------------------


@pytest.fixture
def orders() -> Iterator[Topic]:
    with Topic.on_a_broker(partitions=2) as topic:
        yield topic


def produce(topic: Topic, *values: bytes) -> None:
    with Producer(bootstrap_servers=topic.address) as producer:
        for number, value in enumerate(values):
            producer.send(topic.name, value, key=f"table {number % 3}")


def order(number: int) -> bytes:
    return json.dumps({"id": number}).encode()


def pipeline(spark: SparkSession, kind: str, topic: Topic, out: Path) -> TopicsPipeline:
    """Spark 4.1, for which Iceberg has a package, is too old for Coterie's source."""
    reader = COTERIE if tuple(map(int, spark.version.split(".")[:2])) >= (4, 2) else KAFKA
    kafka = {"kafka.bootstrap.servers": topic.address}
    soon = {"kafka.heartbeat.interval.ms": "200", "kafka.session.timeout.ms": "6000"} if reader == COTERIE else {}
    value = ValueFormat("id INT NOT NULL")
    options = TopicsOptions(str(out), kafka, ("orders",), "lake", value, tables=kind, reader=reader, source=soon)
    return TopicsPipeline(spark, options, print)


def test_a_batch_is_in_the_table_once_whenever_its_writer_is_killed(
    spark: SparkSession, kind: str, orders: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between its two tables; between the tables and the checkpoint; then repeated to its end."""
    produce(orders, *map(order, range(20)), b"{tea}")

    first = pipeline(spark, kind, orders, tmp_path)
    put = first.tables.put

    def put_one(table: str, entry: Entry, rows: DataFrame, *, files: int = 1) -> None:
        if table == DEAD_LETTERS:
            raise RuntimeError("killed between the tables")
        put(table, entry, rows, files=files)

    monkeypatch.setattr(first.tables, "put", put_one)
    with pytest.raises(PySparkException, match="killed between the tables"):
        first.once()
    assert len(rows_in(spark, kind, tmp_path, "records")) == 20 and not (tmp_path / "dead_letters").exists()

    second = pipeline(spark, kind, orders, tmp_path)
    store = second.batch

    def batch(records: DataFrame, number: int) -> None:
        store(records, number)
        raise RuntimeError("killed before the checkpoint")

    monkeypatch.setattr(second, "batch", batch)
    with pytest.raises(PySparkException, match="killed before the checkpoint"):
        second.once()
    assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")), "to Spark the batch is not done"

    until_workers_start(pipeline(spark, kind, orders, tmp_path).once, print)  # Spark 4.1 fails after a repeated batch
    produce(orders, *map(order, range(20, 30)))
    pipeline(spark, kind, orders, tmp_path).once()
    found = rows_in(spark, kind, tmp_path, "records")
    assert sorted(row["id"] for row in found) == [*range(30)]
    assert [bytes(row["value"]) for row in rows_in(spark, kind, tmp_path, "dead_letters")] == [b"{tea}"]
    assert commits_of(spark, kind, tmp_path, "records") == len({row["batch"] for row in found}) >= 2
    assert orders.committed("lake") == orders.records() == 31
    of_parquet = TopicsOptions(str(tmp_path), {}, ("orders",), "lake", ValueFormat("id INT NOT NULL"))
    with pytest.raises(CoterieError, match=f"has tables of {kind}: give --tables, or another --out"):
        TopicsPipeline(spark, of_parquet, print)._check_schema(spark.createDataFrame([], "id int").schema)


# --- values -----------------------------------------------------------------------------------------------------------

AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"]}],
    }
)
RECORD = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
REGISTERED = b"\0\0\0\0\7"
"""A schema registry puts this before each value."""


def protobuf_schema(folder: Path) -> str:
    """Write what protoc writes for a message with two fields; return the schema's name."""
    file = FileDescriptorSet().file.add(name="orders.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("id", "TYPE_INT64"), ("item", "TYPE_STRING")), 1):
        label = FieldDescriptorProto.LABEL_OPTIONAL
        order.field.add(name=name, number=number, type=FieldDescriptorProto.Type.Value(kind), label=label)
    (folder / "orders.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    return f"{folder / 'orders.desc'}#shop.Order"


@pytest.mark.parametrize(
    ("format_", "good", "bad", "problem"),
    [
        (
            "avro",
            [b"\x02\x02\x06tea", b"\x04\x00"],
            [b"", b"\x06", b'{"id": 1}'],
            "the value is not Avro of the schema, or all of it is null",
        ),
        (
            "protobuf",
            [b"\x08\x01\x12\x03tea", b"\x08\x02"],
            [b"\x08", b"\x12\x09tea", b'{"id": 1}'],
            "the value is not a shop.Order",
        ),
    ],
)
def test_values_are_read_by_their_schema_and_others_are_dead_letters(
    spark: SparkSession, tmp_path: Path, format_: str, good: list[bytes], bad: list[bytes], problem: str
) -> None:
    """Order 1 has tea, and order 2 has no item; a tombstone; bytes of no order; less than five bytes."""
    try:
        check_package(spark, format_)
    except CoterieError:
        pytest.skip(f"this Spark does not have spark-{format_}: docs/pipeline-topics.md says which does")
    values = [*(REGISTERED + each for each in (*good, *bad)), None, b"\0"]
    rows = [(b"k", value, "orders", 0, at, None) for at, value in enumerate(values)]
    records = spark.createDataFrame(rows, RECORD)
    schema = AVRO_SCHEMA if format_ == "avro" else protobuf_schema(tmp_path)
    how = ValueFormat(schema, format_, skip_bytes=5)
    read = read_values(records, how).collect()
    assert [row["problem"] for row in read] == [None, None, *[problem] * 3, None, "the value is shorter than 5 bytes"]
    assert [tuple(row["fields"]) for row in read[:2]] == [(1, "tea"), (2, None)]

    options = TopicsOptions(str(tmp_path), {}, ("orders",), "lake", how)
    TopicsPipeline(spark, options, print).batch(records, 0)
    kept = spark.read.parquet(str(tmp_path / "records")).orderBy("kafka_offset").collect()
    assert [(row["id"], row["item"], row["tombstone"]) for row in kept] == [
        (1, "tea", False),
        (2, None, False),
        (None, None, True),
    ]
    dead = spark.read.parquet(str(tmp_path / "dead_letters")).orderBy("kafka_offset").collect()
    assert [bytes(row["value"]) for row in dead] == [values[at] for at in (2, 3, 4, 6)]
