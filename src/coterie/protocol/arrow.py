"""Records as Arrow columns, without an object for each: `ArrowReader` reads a fetch, `ArrowWriter` fills batches.

The columns are named and typed as those of Spark's Kafka source. pyarrow is imported when it is first needed, so that
it is optional.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from coterie.errors import MalformedError
from coterie.protocol._pure_records import ANYWHERE, BinaryColumn
from coterie.protocol.fetched import FetchedBatches
from coterie.protocol.records import BatchBuilder, Columns, Header, append_rows, partitions_of_keys

if TYPE_CHECKING:
    import pyarrow as pa

    from coterie.protocol._pure_records import HeaderColumns


AT_MOST = 4 * 1024 * 1024


class ArrowReader:
    """Reads fetches as columns; one for many fetches reuses its memory and the columns that repeat."""

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
        """Return the next records of `fetched`: whole batches, until there are `at_most_bytes` or more.

        No rows are returned when the fetch is used up. A batch that cannot be read raises `MalformedError` when all
        before it were taken; `fetched.next_offset` is then where it begins.
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


class ArrowWriter:
    """Gathers rows in batches for the partitions of one topic, and returns a batch when it is full."""

    def __init__(
        self,
        partitions: int,
        new_batch: Callable[[], BatchBuilder],
        draw: Callable[[], int],
        *,
        ignores_keys: bool = False,
    ) -> None:
        """`draw` says where rows without a key go next: to one partition until its batch is full (KIP-480)."""
        self._ignores_keys = ignores_keys
        self._new_batch = new_batch
        self._draw = draw
        self._builders = [new_batch() for _ in range(partitions)]
        self._anywhere: int | None = None

    def grow(self, partitions: int) -> None:
        """Raise the number of partitions of the topic."""
        self._builders += [self._new_batch() for _ in range(partitions - len(self._builders))]

    def add(
        self,
        keys: pa.Array,
        values: pa.Array,
        timestamps: pa.Array | int,
        partitions: pa.Array | None = None,
        headers: Sequence[Sequence[Header]] | None = None,
    ) -> Iterator[tuple[int, BatchBuilder]]:
        """Add rows; yield (partition, batch) for each that became full. Exhaust the iterator, or rows are left out.

        Keys and values are binary or string, timestamps int64 milliseconds or one for all. Where `partitions` (int32)
        is null, the key decides as in Kafka's producers.
        """
        rows = len(keys)
        columns = (values, timestamps, partitions, headers)
        if any(len(each) != rows for each in columns if each is not None and not isinstance(each, int)):
            raise ValueError("keys, values, timestamps, partitions and headers of different lengths")
        key_column, value_column = _binary(keys), _binary(values)
        times = array("q", [timestamps]).tobytes() * rows if isinstance(timestamps, int) else _times(timestamps)
        where = self._choose_partitions(key_column, rows, partitions)
        row = 0
        while True:
            if self._anywhere is None:
                self._anywhere = self._draw()
            row = append_rows(
                self._builders,
                where,
                key_column,
                value_column,
                times,
                row,
                rows,
                anywhere=self._anywhere,
                headers=headers,
            )
            if row == rows:
                return
            partition = memoryview(where).cast("i")[row]
            if partition in {ANYWHERE, self._anywhere}:
                partition, self._anywhere = self._anywhere, None
            full, self._builders[partition] = self._builders[partition], self._new_batch()
            yield partition, full

    def rest(self) -> list[tuple[int, BatchBuilder]]:
        """Return the batches that are not full, and start new ones."""
        found = [(partition, builder) for partition, builder in enumerate(self._builders) if builder.count]
        for partition, _ in found:
            self._builders[partition] = self._new_batch()
        return found

    def _choose_partitions(self, keys: BinaryColumn, rows: int, partitions: pa.Array | None) -> bytes:
        import pyarrow as pa
        from pyarrow import compute

        if partitions is not None and not partitions.null_count:
            return _numbers(partitions, pa.int32())
        if self._ignores_keys:
            decided = array("i", [ANYWHERE]).tobytes() * rows
        else:
            decided = partitions_of_keys(keys, rows, len(self._builders), ANYWHERE)
        if partitions is None:
            return decided
        as_column = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(decided)])
        return _numbers(compute.coalesce(partitions.cast(pa.int32()), as_column), pa.int32())


def _binary(column: Any) -> BinaryColumn:
    import pyarrow as pa

    if pa.types.is_null(column.type) or not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    if column.offset:  # a slice: made an array of its own
        column = pa.concat_arrays([column, column.slice(0, 0)])
    validity, ends, data = column.buffers()
    if ends is None or len(ends) == 0:  # of no rows
        ends = bytes(4)
    return BinaryColumn(column.null_count, *(memoryview(buffer or b"") for buffer in (validity, ends, data)))


def _times(column: Any) -> bytes:
    import pyarrow as pa

    if column.null_count:
        raise ValueError(f"{column.null_count} of the timestamps are null")
    return _numbers(column, pa.int64())


def _numbers(column: Any, kind: Any) -> bytes:
    import pyarrow as pa

    if column.type != kind:
        column = column.cast(kind)
    if len(column) == 0:
        return b""
    start = column.offset * kind.bit_width // 8
    return memoryview(pa.py_buffer(column.buffers()[1]))[start : start + len(column) * kind.bit_width // 8].tobytes()
