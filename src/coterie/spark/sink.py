"""The sink: rows go to topics, as with Spark's Kafka sink. Columns are value and, optionally, key, headers, topic and
partition.

Each task has an idempotent producer of its own, and ends when every record is acknowledged. A task or a batch that
Spark runs again sends its records again: at least once, as with Spark's own sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructField, StructType

from coterie.client.producer.arrow_columns import ColumnProducer
from coterie.errors import CoterieError
from coterie.settings import SettingsError
from coterie.spark.options import SinkOptions
from coterie.spark.worker_memory import settle

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchWriter", "StreamWriter", "WrittenRows", "check_schema", "columns_of", "headers_of", "send_rows"]

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_COLUMNS: dict[str, Sequence[DataType]] = {
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (_HEADERS,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
}


def check_schema(schema: StructType, topic: str | None) -> None:
    """Check the columns before anything is sent. SettingsError has a line for each thing that is wrong."""
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
            problems.append(f"column {field.name} is not known: allowed are {allowed}. Drop it, or rename it")
        elif not any(_is_like(field.dataType, kind) for kind in kinds):
            wanted = " or ".join(kind.simpleString() for kind in kinds)
            problems.append(f"column {field.name} is {field.dataType.simpleString()}: must be {wanted}. Cast it")
    if problems:
        raise SettingsError("\n".join(problems))


def _is_like(one: DataType, other: DataType) -> bool:
    """Compare types, but not whether they may be null."""
    return one.simpleString() == other.simpleString()


@dataclass
class WrittenRows(WriterCommitMessage):
    records: int


def _write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> WrittenRows:
    settle()
    sent = 0
    with ColumnProducer(options.client) as producer:
        for batch in batches:
            for topic, rows in _by_topic(columns_of(batch), options.topic):
                send_rows(producer, topic, rows)
            sent += batch.num_rows
        producer.deliver()
    return WrittenRows(sent)


def columns_of(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns by their names in lower case, as in `check_schema`."""
    return {name.lower(): batch.column(at) for at, name in enumerate(batch.schema.names)}


def send_rows(producer: ColumnProducer, topic: str, columns: Mapping[str, pa.Array]) -> None:
    producer.send_columns(
        topic,
        columns["value"],
        keys=columns.get("key"),
        partitions=columns.get("partition"),
        headers=headers_of(columns["headers"]) if "headers" in columns else None,
    )


def _by_topic(columns: Mapping[str, pa.Array], topic: str | None) -> Iterator[tuple[str, Mapping[str, pa.Array]]]:
    """Yield the rows of each topic, in their order."""
    from pyarrow import compute

    if topic is not None:
        yield topic, columns
        return
    if columns["topic"].null_count:
        raise CoterieError(
            "a row has null in its column topic, and there is no option topic: say where it goes, or filter it out"
        )
    names = columns["topic"].unique()
    for name in names:
        mine = compute.equal(columns["topic"], name)
        yield name.as_py(), columns if len(names) == 1 else {each: rows.filter(mine) for each, rows in columns.items()}


def headers_of(column: pa.Array) -> list[list[tuple[str, bytes | None]]] | None:
    """Return the headers of rows; None if no row has one."""
    if not len(column.flatten()):
        return None
    found = [[(each["key"], each["value"]) for each in row or ()] for row in column.to_pylist()]
    if any(name is None for row in found for name, _ in row):
        raise CoterieError("a row has a header whose key is null: a header needs a name. Name it, or leave it out")
    return found


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
        """Do nothing: everything is acknowledged when a task ends."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: what was sent stays in its topic."""
