"""`coterie pipeline topics` on real Spark: records of a topic to a table, with dead letters, lag and rebalances."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from coterie.client.producer.producer import Producer
from coterie.errors import CoterieError
from coterie.spark.pipeline.hadoop_files import HadoopFiles
from coterie.spark.pipeline.parquet_tables import Entry, ParquetTables
from coterie.spark.pipeline.topics_pipeline import TopicsOptions, TopicsPipeline
from coterie.spark.pipeline.value_formats import BINARY, ValueFormat, check_package, read_values, schema_text
from spark.conftest import in_the_soak
from spark.tables import table
from spark.topics import Plain, Topic

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(400)]
SCHEMA = "id BIGINT NOT NULL, item STRING, place STRUCT<city: STRING NOT NULL>"
RECORD = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"


def records(spark: SparkSession, *values: bytes | None, key: bytes | None = b"k", first: int = 0) -> DataFrame:
    rows = [(key, value, "orders", 0, first + at, None) for at, value in enumerate(values)]
    return spark.createDataFrame(rows, RECORD)


def order(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, "item": f"item {number}"} | more).encode()


def pipeline(
    spark: SparkSession, address: str, out: Path, schema: str = SCHEMA, said: list[str] | None = None, **how: Any
) -> TopicsPipeline:
    say = print if said is None else said.append
    quick = {"kafka.heartbeat.interval.ms": "200", "startingOffsets": "earliest"}
    kafka = {"kafka.bootstrap.servers": address}
    options = TopicsOptions(str(out), kafka, ("orders",), "lake", ValueFormat(schema), source=quick, **how)
    return TopicsPipeline(spark, options, say)


# --- values -----------------------------------------------------------------------------------------------------------


def test_a_value_that_is_not_of_the_schema_has_a_reason(spark: SparkSession) -> None:
    expected: dict[bytes | None, str | None] = {
        order(1): None,
        order(2, place={"city": "Oslo"}, extra=[1]): None,
        b'{"id": 3, "item": null}': None,
        None: None,
        b"": "the value is empty",
        b'{"id": 1': "the value is not JSON",
        b"{'id': 1}": "the value is not JSON",
        b"[1]": "the value is JSON, but not an object",
        b"null": "the value is JSON, but not an object",
        b'{"id": 1, "item": "\xff"}': "the value is not UTF-8",
        b'{"item": "tea"}': "field id is missing",
        b'{"id": null}': "field id is missing",
        b'{"ID": 1}': "field id is missing",
        b'{"id": 1, "place": {}}': "field place.city is missing",
        b'{"id": "one"}': "field id is not bigint",
        b'{"id": 1.5}': "field id is not bigint",
        b'{"id": 99999999999999999999}': "field id is not bigint",
        b'{"id": 1, "place": 7}': "field place is not struct<city:string>",
    }
    read = read_values(records(spark, *expected), ValueFormat(SCHEMA)).collect()
    assert {row["value"] and bytes(row["value"]): row["problem"] for row in read} == expected
    assert [row["fields"]["id"] for row in read[:3]] == [1, 2, 3]


def test_keys_and_bytes_before_the_value(spark: SparkSession) -> None:
    """A schema registry puts five bytes before each value; a key may be any bytes."""
    registered = records(spark, b"\0\0\0\0\7" + order(4), b"\0", None, key=b"\xff")
    text, any_bytes = (ValueFormat(SCHEMA, skip_bytes=5, key=kind) for kind in ("string", BINARY))
    assert [row["problem"] for row in read_values(registered, any_bytes).collect()] == [
        None,
        "the value is shorter than 5 bytes",
        None,
    ]
    assert read_values(registered, text).collect()[0]["problem"] == "the key is not UTF-8: --key binary takes any key"


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_a_package_that_spark_does_not_have_is_named(spark: SparkSession, format_: str) -> None:
    with pytest.raises(CoterieError, match=rf"spark\.jars\.packages=org\.apache\.spark:spark-{format_}_2\.13:"):
        check_package(spark, format_)


def test_a_schema_is_text_or_a_file(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "orders.ddl").write_text(SCHEMA)
    assert schema_text(str(tmp_path / "orders.ddl"), "json") == schema_text(SCHEMA, "json") == SCHEMA
    with pytest.raises(CoterieError, match=r"none\.ddl: there is no such file"):
        schema_text(str(tmp_path / "none.ddl"), "json")
    with pytest.raises(CoterieError, match=r"orders\.desc: name the message too"):
        schema_text("orders.desc", "protobuf")
    as_json = StructType.fromDDL(SCHEMA).json()
    read = read_values(records(spark, b"{}"), ValueFormat(as_json))
    assert read.collect()[0]["problem"] == "field id is missing"
    with pytest.raises(CoterieError, match=r"--schema cannot be read: .*It is columns as in CREATE TABLE"):
        read_values(records(spark, b"{}"), ValueFormat("id BIGNIT ???"))


# --- from a topic to the table ----------------------------------------------------------------------------------------


@pytest.fixture
def orders() -> Iterator[Topic]:
    with Topic.on_a_broker(partitions=2) as topic:
        yield topic


def produce(topic: Topic, *values: bytes | None) -> None:
    """Three keys in turn."""
    with Producer(bootstrap_servers=topic.address) as producer:
        for number, value in enumerate(values):
            producer.send(topic.name, value, key=f"table {number % 3}")


def in_order_by_key(out: Path) -> dict[str, list[int]]:
    found = defaultdict(list)
    for row in sorted(table(out, "records"), key=lambda row: (row["kafka_partition"], row["kafka_offset"])):
        found[row["kafka_key"]].append(row["id"])
    return dict(found)


def test_every_record_is_a_row_or_a_dead_letter_once_and_a_second_run_goes_on(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    out, said = tmp_path / "out", list[str]()
    produce(orders, *(order(number) for number in range(30)), b"{tea}", None)
    pipeline(spark, orders.address, out, said=said, records_per_batch=20).once()
    assert len([line for line in said if line.startswith("batch ")]) >= 2, "it was to be several batches"
    assert in_order_by_key(out).keys() == {"table 0", "table 1", "table 2"}
    assert in_order_by_key(out)["table 0"] == [*range(0, 30, 3)], "in the order of the topic"
    (tombstone,) = [row for row in table(out, "records") if row["tombstone"]]
    assert (tombstone["kafka_key"], tombstone["id"]) == ("table 1", None)
    (dead,) = table(out, "dead_letters")
    assert (dead["reason"], dead["key"], dead["value"]) == ("the value is not JSON", b"table 0", b"{tea}")
    assert (dead["kafka_topic"], dead["kafka_offset"]) == ("orders", 10)

    assert orders.committed("lake") == orders.records() == 32
    lag = table(out, "lag")
    assert [(row["partition"], row["records_behind"], row["seconds_from"]) for row in lag[-2:]] == [
        (0, 0, "nothing waits"),
        (1, 0, "nothing waits"),
    ]

    produce(orders, *(order(number, price=1.5) for number in range(30, 33)))
    pipeline(spark, orders.address, out, f"{SCHEMA}, price DOUBLE").once()
    rows = table(out, "records")
    assert sorted(row["id"] for row in rows if row["id"] is not None) == [*range(33)]
    assert spark.read.option("mergeSchema", True).parquet(str(out / "records")).where("price = 1.5").count() == 3
    with pytest.raises(CoterieError, match="column id of table records is bigint, and is string in --schema"):
        pipeline(spark, orders.address, out, "id STRING").once()
    with pytest.raises(CoterieError, match="column price of table records is double, and is missing in --schema"):
        pipeline(spark, orders.address, out).once()
    shutil.rmtree(out / "checkpoint")
    with pytest.raises(CoterieError, match="its checkpoint is gone"):
        pipeline(spark, orders.address, out).once()


@in_the_soak
def test_followed_it_shows_the_rebalance_of_a_second_member(spark: SparkSession, orders: Topic, tmp_path: Path) -> None:
    """It is a member like any other: an ordinary consumer joins, and gets one of the two partitions."""
    produce(orders, b"1", b"2", b"3")
    one = pipeline(spark, orders.address, tmp_path, every_s=0.5)
    others: list[Plain] = []

    def is_over() -> bool:
        if not others and orders.members("lake") == 1 and table(tmp_path, "lag"):
            others.append(Plain(orders, "lake"))
        return any(row["moved"] for row in table(tmp_path, "rebalances"))

    try:
        one.follow(is_over)
    finally:
        for other in others:
            other.stop()
    joined, *_ = seen = sorted(table(tmp_path, "rebalances"), key=lambda row: row["ended_ms"])
    assert (joined["evidence"], joined["cause"], joined["members"]) == ("sampled", "1 member joined", 2)
    (moved,) = seen[-1]["moved"]  # a cooperative rebalance may be seen in two steps
    assert joined["came"] == [moved["new_owner"]] and moved["old_owner"] not in joined["came"]
    assert {row["cause"] for row in seen[1:]} <= {"partitions have moved; the members are the same"}
    assert {row["reason"] for row in table(tmp_path, "dead_letters")} == {"the value is JSON, but not an object"}
    assert len({row["member_id"] for row in table(tmp_path, "lag")} - {None}) >= 1


# --- batches that are repeated ----------------------------------------------------------------------------------------


class Killed(BaseException):
    """As kill -9: nothing after it runs."""


def test_a_repeated_batch_replaces_itself_as_a_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between its two tables; when it is repeated, another member has read a part of it."""
    one = pipeline(spark, "127.0.0.1:1", tmp_path)
    one.batch(records(spark, order(1), b"?"), 0)
    before = [table(tmp_path, name) for name in ("records", "dead_letters")]
    really_move = HadoopFiles.move

    def killed(self: HadoopFiles, source: str, target: str) -> None:
        if target.startswith("dead_letters"):
            raise Killed
        really_move(self, source, target)

    monkeypatch.setattr(HadoopFiles, "move", killed)
    with pytest.raises(Killed):
        one.batch(records(spark, order(2), b"!", order(3), first=2), 1)
    monkeypatch.setattr(HadoopFiles, "move", really_move)
    assert [row["id"] for row in table(tmp_path, "records")] == [1, 2, 3]
    one.batch(records(spark, order(2), b"!", first=2), 1)
    assert [(row["id"], row["batch"]) for row in table(tmp_path, "records")] == [(1, 0), (2, 1)]
    assert [row["value"] for row in table(tmp_path, "dead_letters")] == [b"?", b"!"]
    one.batch(records(spark, order(2), first=2), 1)
    assert [row["value"] for row in table(tmp_path, "dead_letters")] == [b"?"]
    one.batch(records(spark), 1)
    assert [table(tmp_path, name) for name in ("records", "dead_letters")] == before


@in_the_soak
def test_days_that_are_over_are_merged_and_old_ones_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = HadoopFiles(spark, str(tmp_path))
    tables = ParquetTables(spark, files)
    days = [date(2026, 11, day) for day in (16, 17, 18)]
    for number, day in enumerate([*days, *days]):
        frame = spark.createDataFrame([(5 - number, number)], "id int, batch int")
        tables.put("t", Entry("batch", number, day), frame)
    tables.put("t", Entry("batch", 5, days[1]), spark.createDataFrame([(0, 5)], "id int, batch int"))
    rows = table(tmp_path, "t")
    assert len(rows) == 6, "an entry that is put on another day is not there twice"
    assert tables.compact("t", days[2], ["id"], last_done=4) == 1, "batch 5 may be put again, and today is not over"

    class AfterTheFirst:
        """The first rename of a compaction happens, and not the second."""

        moves = 0

        def __call__(self, source: str, target: str) -> None:
            if self.moves:
                raise Killed
            self.moves += 1
            HadoopFiles.move(files, source, target)

    monkeypatch.setattr(files, "move", AfterTheFirst())
    with pytest.raises(Killed):
        tables.compact("t", days[2], ["id"], last_done=5)
    monkeypatch.undo()
    assert len(table(tmp_path, "t")) < 6
    tables.recover()
    assert sorted(map(repr, table(tmp_path, "t"))) == sorted(map(repr, rows)) and not (tmp_path / "_aside").exists()
    assert tables.compact("t", days[2], ["id"], last_done=5) == 1
    assert tables.compact("t", days[2], ["id"], last_done=5) == 0
    assert [row["id"] for row in table(tmp_path / "t", "date=2026-11-17")] == [0, 1, 4]
    assert len(list((tmp_path / "t").glob("date=2026-11-1[67]/compacted/*.parquet"))) == 2
    assert spark.read.parquet(str(tmp_path / "t")).where("date = '2026-11-16'").count() == 2
    assert tables.expire("t", days[1]) == 1
    assert {row["batch"] for row in table(tmp_path, "t")} == {1, 2, 4, 5}
