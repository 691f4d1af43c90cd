"""Rows of Arrow columns into batches, each for its partition; no object for each row. The other way is `arrow.py`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from coterie.protocol._pure_records import ANYWHERE, BinaryColumn
from coterie.protocol.records import BatchBuilder, Header, append_rows, partitions_of_keys

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowWriter"]


class ArrowWriter:
    """Gathers rows for the partitions of one topic; hands out a batch when it is full."""

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
        """The topic has so many by now; it never has less."""
        self._builders += [self._new_batch() for _ in range(partitions - len(self._builders))]

    def add(
        self,
        keys: pa.Array,
        values: pa.Array,
        timestamps: pa.Array | int,
        partitions: pa.Array | None = None,
        headers: Sequence[Sequence[Header]] | None = None,
    ) -> Iterator[tuple[int, BatchBuilder]]:
        """Take in rows; yield (partition, batch) for those that became full on the way. Exhaust it, or rows are left.

        Keys and values are binary or string, timestamps int64 milliseconds or one for all. Where `partitions` (int32)
        says nothing, the key decides as in Kafka's producers.
        """
        rows = len(keys)
        columns = (values, timestamps, partitions, headers)
        if any(len(each) != rows for each in columns if each is not None and not isinstance(each, int)):
            raise ValueError("keys, values, timestamps, partitions and headers of different lengths")
        key_column, value_column = _binary(keys), _binary(values)
        times = array("q", [timestamps]).tobytes() * rows if isinstance(timestamps, int) else _times(timestamps)
        where = self._places(key_column, rows, partitions)
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
        """What has been gathered and is not full; it starts again."""
        found = [(partition, builder) for partition, builder in enumerate(self._builders) if builder.count]
        for partition, _ in found:
            self._builders[partition] = self._new_batch()
        return found

    def _places(self, keys: BinaryColumn, rows: int, partitions: pa.Array | None) -> bytes:
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
