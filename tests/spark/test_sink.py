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

from coterie.errors import CoterieError
from coterie.settings import SettingsError
from coterie.spark.options import SinkOptions
from coterie.spark.sink import BatchWriter, Written, check_schema
from spark.topics import Topic

TEXT, BYTES, INT, LONG, TIME = StringType(), BinaryType(), IntegerType(), LongType(), TimestampType()
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
        ({"value": INT}, "t", "column value is int: allowed is string or binary. Cast it"),
        ({"value": TEXT, "partition": LONG}, "t", "column partition is bigint: allowed is int"),
        ({"value": TEXT, "timestamp": TIME}, "t", "column timestamp means nothing here"),
        ({"value": TEXT, "headers": MapType(TEXT, BYTES)}, "t", "column headers is map<string,binary>"),
    ],
)
def test_what_it_does_not_is_refused(columns: dict[str, DataType], topic: str | None, said: str) -> None:
    with pytest.raises(SettingsError) as found:
        check_schema(schema(**columns), topic)
    assert said in str(found.value)


@pytest.mark.real_time
def test_a_task_ends_when_everything_is_acknowledged_or_with_the_error(topic: Topic) -> None:
    writer = BatchWriter(
        SinkOptions.of({"kafka.bootstrap.servers": topic.address, "topic": topic.name}),
        schema(value=TEXT, partition=INT),
    )
    rows = pa.record_batch({"value": ["a", "b"], "partition": pa.array([0, 3], pa.int32())})
    assert writer.write(iter([rows, rows])) == Written(4)
    assert writer.write(iter([])) == Written(0)
    too_large = pa.record_batch({"value": ["x" * 2_000_000], "partition": pa.array([0], pa.int32())})
    with pytest.raises(CoterieError, match=r"1048576|larger|max\.request\.size"):
        writer.write(iter([too_large]))
