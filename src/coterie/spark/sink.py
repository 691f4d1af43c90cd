"""Rows go to topics, as with Spark's Kafka sink: columns value, and if there are any key, headers, topic, partition.

Each task has a producer of its own, idempotent, and ends when every record is acknowledged. A task or a batch that
Spark runs again sends again: across that it is at least once, as Spark's own sink is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructField, StructType

from coterie.client.producer import Producer
from coterie.errors import CoterieError
from coterie.settings import SettingsError
from coterie.spark.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from coterie.client.delivery import RecordMetadata

__all__ = ["BatchWriter", "StreamWriter", "Written", "check_schema"]

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_COLUMNS: dict[str, Sequence[DataType]] = {
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (_HEADERS,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
}


def check_schema(schema: StructType, topic: str | None) -> None:
    """Before anything is sent: a line for each thing that is wrong."""
    problems = []
    given = {field.name.lower(): field for field in schema.fields}
    if "value" not in given:
        problems.append(f"there is no column value, only {', '.join(schema.names) or 'none at all'}")
    if topic is None and "topic" not in given:
        problems.append("neither the option topic nor a column topic says where the rows go")
    for name, field in given.items():
        kinds = _COLUMNS.get(name)
        if kinds is None:
            allowed = ", ".join(_COLUMNS)
            problems.append(f"column {field.name} means nothing here: allowed are {allowed}. Drop it, or rename it")
        elif not any(_is_like(field.dataType, kind) for kind in kinds):
            wanted = " or ".join(kind.simpleString() for kind in kinds)
            problems.append(f"column {field.name} is {field.dataType.simpleString()}: allowed is {wanted}. Cast it")
    if problems:
        raise SettingsError("\n".join(problems))


def _is_like(one: DataType, other: DataType) -> bool:
    """The same but for whether it may be null."""
    return one.simpleString() == other.simpleString()


@dataclass
class Written(WriterCommitMessage):
    records: int


def _write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    sent = 0
    failed: list[Exception] = []

    def told(_metadata: RecordMetadata | None, error: Exception | None) -> None:
        if error is not None and not failed:
            failed.append(error)

    with Producer(options.client) as producer:
        for batch in batches:
            for topic, partition, key, value, headers in _rows(batch, options.topic):
                producer.send(topic, value, key=key, partition=partition, headers=headers, on_delivery=told)
            sent += batch.num_rows
            if failed:
                break
        producer.flush()
    if failed:
        raise CoterieError(f"records could not be delivered: {failed[0]}") from failed[0]
    return Written(sent)


def _rows(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, int | None, Any, Any, Any]]:
    names = {name.lower(): at for at, name in enumerate(batch.schema.names)}

    def column(name: str) -> list[Any]:
        return batch.column(names[name]).to_pylist() if name in names else [None] * batch.num_rows

    topics = [topic] * batch.num_rows if topic is not None else column("topic")
    if None in topics:
        raise CoterieError(
            "a row has null in its column topic, and there is no option topic: say where it goes, or filter it out"
        )
    headers = [[(each["key"], each["value"]) for each in row or ()] for row in column("headers")]
    return zip(topics, column("partition"), column("key"), column("value"), headers, strict=True)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Everything is acknowledged by the time a task ends."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was sent stays: a topic has no way back."""
