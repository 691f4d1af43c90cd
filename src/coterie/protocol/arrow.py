"""Records of a fetch as Arrow columns, named and typed as those of Spark's Kafka source; no object for each record.

pyarrow is imported when it is first needed: who reads no columns need not have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.errors import MalformedError
from coterie.protocol.fetched import FetchedBatches
from coterie.protocol.records import Columns

if TYPE_CHECKING:
    import pyarrow as pa

    from coterie.protocol._pure_records import BinaryColumn, HeaderColumns

__all__ = ["ArrowReader"]

AT_MOST = 4 * 1024 * 1024


class ArrowReader:
    """Keep one for many fetches: it keeps the memory it gathers columns in, and the columns that repeat."""

    def __init__(self, *, with_headers: bool = False) -> None:
        import pyarrow as pa

        self._pa = pa
        self._columns = Columns(with_headers)
        self._repeated_for: tuple[str, int] | None = None
        self._topics: Any = None
        self._partitions: Any = None
        content = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
        self._headers_type = pa.list_(pa.field("element", content))
        fields = [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("topic", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64()),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
            pa.field("timestampType", pa.int32()),
        ]
        if with_headers:
            fields.append(pa.field("headers", self._headers_type))
        self.schema: pa.Schema = pa.schema(fields)

    def take(self, fetched: FetchedBatches, at_most_bytes: int = AT_MOST) -> pa.RecordBatch:
        """The next records of `fetched`: whole batches, until there are `at_most_bytes` or more.

        No rows say that the fetch is used up. What cannot be read raises `MalformedError`, once all that is before it
        has been taken; `fetched.next_offset` then is where it begins.
        """
        columns = self._columns
        try:
            while columns.plain_bytes < at_most_bytes and (batch := fetched.next_batch()) is not None:
                header, plain = batch
                columns.add(plain, header, fetched.next_offset, fetched.until_offset)
                fetched.passed(header)
        except MalformedError:
            if not columns.rows:
                raise
        return self._finish(fetched.topic, fetched.partition)

    def _finish(self, topic: str, partition: int) -> pa.RecordBatch:
        pa = self._pa
        found = self._columns.finish()
        rows = found.rows
        self._repeat(topic, partition, rows)
        arrays = [
            self._binary(pa.binary(), rows, found.keys),
            self._binary(pa.binary(), rows, found.values),
            self._topics.slice(0, rows),
            self._partitions.slice(0, rows),
            self._numbers(pa.int64(), rows, found.offsets),
            self._numbers(pa.timestamp("us", tz="UTC"), rows, found.timestamps),
            self._numbers(pa.int32(), rows, found.timestamp_types),
        ]
        if found.headers is not None:
            arrays.append(self._headers(rows, found.headers))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _repeat(self, topic: str, partition: int, rows: int) -> None:
        if self._repeated_for != (topic, partition) or len(self._topics) < rows:
            self._repeated_for = topic, partition
            self._topics = self._pa.repeat(self._pa.scalar(topic, self._pa.string()), rows)
            self._partitions = self._pa.repeat(self._pa.scalar(partition, self._pa.int32()), rows)

    def _numbers(self, kind: Any, rows: int, data: Any) -> Any:
        return self._pa.Array.from_buffers(kind, rows, [None, self._pa.py_buffer(data)])

    def _binary(self, kind: Any, rows: int, column: BinaryColumn) -> Any:
        buffer = self._pa.py_buffer
        validity = buffer(column.validity) if column.null_count else None
        buffers = [validity, buffer(column.ends), buffer(column.data)]
        return self._pa.Array.from_buffers(kind, rows, buffers, null_count=column.null_count)

    def _headers(self, rows: int, headers: HeaderColumns) -> Any:
        pa = self._pa
        count = len(headers.names.ends) // 4 - 1
        pairs = pa.StructArray.from_arrays(
            [
                self._binary(pa.string(), count, headers.names),
                self._binary(pa.binary(), count, headers.contents),
            ],
            fields=list(self._headers_type.value_type),
        )
        return pa.Array.from_buffers(self._headers_type, rows, [None, pa.py_buffer(headers.ends)], children=[pairs])
