"""What a sink takes; that it arrives is in test_on_spark.py."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from coterie.client.admin.admin_types import NewTopic
from coterie.client.consumer.consumer import Consumer
from coterie.client.producer.record_appender import partition_for_key
from coterie.errors import CoterieError
from coterie.protocol.records import Record
from coterie.settings import SettingsError
from coterie.spark.options import SinkOptions
from coterie.spark.sink import BatchWriter, WrittenRows, check_schema
from spark.topics import Topic

TEXT, BYTES, INT, LONG, TIME = StringType(), BinaryType(), IntegerType(), LongType(), TimestampType()
ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
HEADERS = ArrayType(StructType([StructField("key", TEXT, nullable=False), StructField("value", BYTES)]))


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("columns", "topic"),
    [
        ({"value": TEXT}, "t"),
        ({"key": BYTES, "value": BYTES, "topic": TEXT, "partition": INT}, None),
        ({"VALUE": TEXT, "headers": HEADERS}, "t"),
    ],
)
def test_what_sparks_kafka_sink_takes_is_taken(columns: dict[str, DataType], topic: str | None) -> None:
    check_schema(schema(**columns), topic)


@pytest.mark.parametrize(
    ("columns", "topic", "said"),
    [
        ({"key": TEXT}, "t", "there is no column value, only key"),
        ({"value": TEXT}, None, "neither the option topic nor a column topic"),
        ({"value": INT}, "t", "column value is int: must be string or binary. Cast it"),
        ({"value": TEXT, "partition": LONG}, "t", "column partition is bigint: must be int"),
        ({"value": TEXT, "timestamp": TIME}, "t", "column timestamp is not known"),
        ({"value": TEXT, "headers": MapType(TEXT, BYTES)}, "t", "column headers is map<string,binary>"),
    ],
)
def test_what_it_does_not_is_refused(columns: dict[str, DataType], topic: str | None, said: str) -> None:
    with pytest.raises(SettingsError) as found:
        check_schema(schema(**columns), topic)
    assert said in str(found.value)


def writer(topic: Topic, given: dict[str, str] | None = None, /, **columns: DataType) -> BatchWriter:
    options = {"kafka.bootstrap.servers": topic.address, "kafka.max.block.ms": "5000"}
    return BatchWriter(SinkOptions.of(options | (given or {})), schema(**columns))


def read(topic: Topic, name: str) -> list[Record]:
    """All there is, by partition and offset."""
    with Consumer(bootstrap_servers=topic.address, auto_offset_reset="earliest") as consumer:
        partitions = consumer.partitions_for(name)
        consumer.assign(partitions)
        ends = sum(consumer.end_offsets(partitions).values())
        found: list[Record] = []
        while len(found) < ends:
            found += consumer.poll(0.1)
    return sorted(found, key=lambda each: (each.partition, each.offset))


@pytest.mark.real_time
def test_a_task_ends_when_everything_is_acknowledged_or_with_the_error(topic: Topic) -> None:
    sink = writer(topic, {"topic": topic.name}, value=TEXT, partition=INT)
    rows = pa.record_batch({"value": ["a", "b"], "partition": pa.array([0, 3], pa.int32())})
    assert sink.write(iter([rows, rows])) == WrittenRows(4)
    assert sink.write(iter([])) == WrittenRows(0)
    assert [(each.partition, each.value) for each in read(topic, topic.name)] == [
        (0, b"a"),
        (0, b"a"),
        (3, b"b"),
        (3, b"b"),
    ]
    too_large = pa.record_batch({"value": ["x" * 2_000_000], "partition": pa.array([0], pa.int32())})
    with pytest.raises(CoterieError, match=r"1048576|larger|max\.request\.size"):
        sink.write(iter([too_large]))


@pytest.mark.real_time
def test_rows_go_where_kafkas_producer_would_send_them(topic: Topic) -> None:
    """Keys by murmur2, whatever the topic; a partition that is given counts more; the rest is spread."""
    topic.admin.create_topics([NewTopic("other", 3)])
    keys = [b"%d" % number if number % 3 else None for number in range(3_000)]
    rows = pa.record_batch(
        {
            "VALUE": [f"{number}:" + "x" * 100 for number in range(3_000)],
            "key": pa.array(keys, pa.binary()),
            "topic": ["orders" if number % 2 else "other" for number in range(3_000)],
            "partition": pa.array([2 if number % 500 == 1 else None for number in range(3_000)], pa.int32()),
        }
    )
    sink = writer(topic, {"kafka.batch.size": "1000"}, VALUE=TEXT, key=BYTES, topic=TEXT, partition=INT)
    assert sink.write(iter([rows.slice(0, 1_700), rows.slice(1_700)])) == WrittenRows(3_000)
    for name, partitions in (("orders", 4), ("other", 3)):
        found = read(topic, name)
        numbers = [int((each.value or b"").split(b":")[0]) for each in found]
        assert sorted(numbers) == list(range(name == "orders", 3_000, 2))
        for each, number in zip(found, numbers, strict=True):
            assert each.key == keys[number]
            if number % 500 == 1:
                assert each.partition == 2
            elif each.key is not None:
                assert each.partition == partition_for_key(each.key, partitions)
        without_key = {each.partition for each in found if each.key is None}
        assert len(without_key) > 1
        for partition in range(partitions):
            keyed = [n for each, n in zip(found, numbers, strict=True) if each.partition == partition and each.key]
            assert keyed == sorted(keyed), "the order of a key's rows is theirs in the log"


@pytest.mark.real_time
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_headers_and_tombstones_arrive(topic: Topic, compression: str) -> None:
    rows = pa.record_batch(
        {
            "value": pa.array([b"a", None], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b"x"}, {"key": "n", "value": None}], None], ARROW_HEADERS),
            "partition": pa.array([1, 1], pa.int32()),
        }
    )
    sink = writer(
        topic,
        {"topic": "orders", "kafka.compression.type": compression},
        value=BYTES,
        headers=HEADERS,
        partition=INT,
    )
    sink.write(iter([rows]))
    assert [(each.value, list(each.headers)) for each in read(topic, "orders")] == [
        (b"a", [("h", b"x"), ("n", None)]),
        (None, []),
    ]


@pytest.mark.real_time
def test_what_cannot_be_sent_is_said(topic: Topic) -> None:
    def said(columns: dict[str, pa.Array], name: str = "orders", **kinds: DataType) -> str:
        with pytest.raises(CoterieError) as found:
            writer(topic, {"topic": name, "kafka.max.block.ms": "500"}, value=TEXT, **kinds).write(
                iter([pa.record_batch({"value": ["a"]} | columns)])
            )
        return str(found.value)

    assert "it has 4 partitions" in said({"partition": pa.array([4], pa.int32())}, partition=INT)
    assert "it has 4 partitions" in said({"partition": pa.array([-1], pa.int32())}, partition=INT)
    unnamed = pa.array([[{"key": None, "value": b"x"}]], ARROW_HEADERS)
    assert "header whose key is null" in said({"headers": unnamed}, headers=HEADERS)
    assert "orders?" in said({}, "orders?")
