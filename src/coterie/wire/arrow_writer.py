"""Rows of Arrow columns into batches, each for its partition; no object for each row. The other way is `arrow.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from coterie.wire._pure_records import BinaryColumn
from coterie.wire.batch import Compression
from coterie.wire.records import BatchBuilder, append_rows, partitions_of_keys

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowWriter"]


class ArrowWriter:
    """Gathers rows for the partitions of one topic; hands out a batch when it is full."""

    def __init__(
        self, partitions: int, *, limit: int, compression: Compression = Compression.NONE, ratio: float = 1.0
    ) -> None:
        """`limit` and `ratio` are those of `BatchBuilder`."""
        self._how = limit, compression, ratio
        self._builders = [BatchBuilder(*self._how) for _ in range(partitions)]
        self._without_key = 0

    def add(
        self, keys: pa.Array, values: pa.Array, timestamps: pa.Array, partitions: pa.Array | None = None
    ) -> Iterator[tuple[int, BatchBuilder]]:
        """Take in rows; yield (partition, batch) for those that became full on the way. Exhaust it, or rows are left.

        Keys and values are binary or string, timestamps int64 milliseconds. Without `partitions` (int32, none null)
        the key decides as in Kafka's producers; rows without one go to one partition, the next time to another.
        """
        import pyarrow as pa

        rows = len(keys)
        if not rows == len(values) == len(timestamps) == len(partitions if partitions is not None else keys):
            raise ValueError("keys, values, timestamps and partitions of different lengths")
        key_column, value_column = _binary(keys), _binary(values)
        times = _numbers(timestamps, pa.int64(), "timestamps")
        if partitions is None:
            where = partitions_of_keys(key_column, rows, len(self._builders), self._without_key)
            self._without_key = (self._without_key + 1) % len(self._builders)
        else:
            where = _numbers(partitions, pa.int32(), "partitions")
        row = 0
        while (row := append_rows(self._builders, where, key_column, value_column, times, row, rows)) < rows:
            partition = memoryview(where).cast("i")[row]
            full, self._builders[partition] = self._builders[partition], BatchBuilder(*self._how)
            yield partition, full

    def rest(self) -> list[tuple[int, BatchBuilder]]:
        """What has been gathered and is not full; it starts anew."""
        found = [(partition, builder) for partition, builder in enumerate(self._builders) if builder.count]
        for partition, _ in found:
            self._builders[partition] = BatchBuilder(*self._how)
        return found


def _binary(array: Any) -> BinaryColumn:
    import pyarrow as pa

    if pa.types.is_null(array.type) or not pa.types.is_binary(array.type):
        array = array.cast(pa.binary())
    if array.offset:  # a slice: made an array of its own
        array = pa.concat_arrays([array, array.slice(0, 0)])
    validity, ends, data = array.buffers()
    if ends is None or len(ends) == 0:  # of no rows
        ends = bytes(4)
    return BinaryColumn(array.null_count, *(memoryview(buffer or b"") for buffer in (validity, ends, data)))


def _numbers(array: Any, kind: Any, what: str) -> bytes:
    import pyarrow as pa

    if array.null_count:
        raise ValueError(f"{array.null_count} of the {what} are null")
    if array.type != kind:
        array = array.cast(kind)
    if len(array) == 0:
        return b""
    start = array.offset * kind.bit_width // 8
    return memoryview(pa.py_buffer(array.buffers()[1]))[start : start + len(array) * kind.bit_width // 8].tobytes()
