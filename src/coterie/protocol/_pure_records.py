"""The records of a batch in plain Python: the twin of `_fast_records.pyx`, which does the same compiled.

`records.py` decides which of the two is used; the same tests hold both. What is malformed is described here alone: the
compiled one, when it meets bytes it cannot read, has them read again here for the error.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Never

from coterie.errors import MalformedError
from coterie.protocol.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, TimestampType
from coterie.protocol.buffer import Buffer, uvarint

_SMALLEST_RECORD = 7  # a length and six fields of one byte
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1
_ZIGZAGS = [uvarint(value << 1) for value in range(256)]
_MAX_MILLISECONDS = _MAX_INT64 // 1000
_MAX_PLAIN = (1 << 31) - 1 - HEADER_SIZE
"""The largest int32, which bounds the size of a batch and of an Arrow column."""

Header = tuple[str, bytes | None]
RawHeader = tuple[bytes, bytes | None]
RawRecord = tuple[int, int, bytes | None, bytes | None, Sequence[RawHeader]]
"""Offset and timestamp as differences to the batch's first; key; value; headers, their names as they came."""


@dataclass(slots=True)
class Record:
    """A record as a consumer gets it. Without a timestamp or a leader epoch it has -1 there."""

    topic: str
    partition: int
    offset: int
    timestamp: int = NO_TIMESTAMP
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    leader_epoch: int = -1

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return restored_record, tuple([getattr(self, name) for name in self.__match_args__])


def restored_record(*fields: Any) -> Any:
    """Make a record from a pickle: compiled or not, as this process uses them."""
    from coterie.protocol import records

    return records.Record(*fields)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_records(plain: Buffer, header: BatchHeader, topic: str, partition: int, first: int, end: int) -> list[Record]:
    """Return the records of a batch, decompressed, whose offsets are in [first, end)."""
    found = []
    kind, epoch = header.timestamp_type, header.leader_epoch
    for offset, timestamp, key, value, raw in _placed(plain, header):
        if first <= offset < end:
            headers = tuple([(_header_name(name), content) for name, content in raw]) if raw else ()
            found.append(Record(topic, partition, offset, timestamp, kind, key, value, headers, epoch))
    return found


def _placed(plain: Buffer, header: BatchHeader) -> Iterator[RawRecord]:
    """The records with their own offset and timestamp; both within what the batch and 64 bits allow."""
    base_offset, last_delta, base_timestamp = header.base_offset, header.last_offset_delta, header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    if not _MIN_INT64 <= base_offset + last_delta <= _MAX_INT64:
        raise MalformedError(f"a batch whose offsets begin at {base_offset} and end {last_delta} later")
    for delta, timestamp, key, value, headers in _raw_records(bytes(plain), header.record_count):
        if not 0 <= delta <= last_delta:
            raise MalformedError(f"a record {delta} offsets into a batch that ends after {last_delta}")
        if append_time is not None:
            timestamp = append_time  # noqa: PLW2901
        else:
            timestamp += base_timestamp  # noqa: PLW2901
            if not _MIN_INT64 <= timestamp <= _MAX_INT64:
                raise MalformedError(f"a record of time {timestamp}; a timestamp has 64 bits")
        yield base_offset + delta, timestamp, key, value, headers


def _raw_records(plain: bytes, count: int) -> Iterator[RawRecord]:
    """The `count` records in `plain`, and nothing after them; raises where they make no sense."""
    if count < 0 or count * _SMALLEST_RECORD > len(plain):
        raise MalformedError(f"a batch counts {count} records in {len(plain)} bytes; each takes {_SMALLEST_RECORD}")
    at = 0
    for _ in range(count):
        length, at = _varint(plain, at)
        end = at + length
        if length < _SMALLEST_RECORD - 1 or end > len(plain):
            raise MalformedError(f"a record of {length} bytes at byte {at} of {len(plain)}")
        timestamp_delta, at = _varint(plain, at + 1)  # one byte of attributes that nothing uses
        offset_delta, at = _varint(plain, at)
        key, at = _nullable_bytes(plain, at, end)
        value, at = _nullable_bytes(plain, at, end)
        if at == end - 1 and plain[at] == 0:  # as nearly all are
            at = end
            yield offset_delta, timestamp_delta, key, value, ()
            continue
        header_count, at = _varint(plain, at)
        if not 0 <= header_count * 2 <= end - at:
            raise MalformedError(f"a record counts {header_count} headers in {end - at} bytes")
        headers = []
        for _ in range(header_count):
            name, at = _nullable_bytes(plain, at, end)
            content, at = _nullable_bytes(plain, at, end)
            if name is None:
                raise MalformedError("a record has a header without a name")
            headers.append((name, content))
        if at != end:
            raise MalformedError(f"a record ends at byte {at}, its length says {end}")
        yield offset_delta, timestamp_delta, key, value, headers
    if at != len(plain):
        raise MalformedError(f"{len(plain) - at} bytes follow the last of {count} records in a batch")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and where it ends."""
    if at < len(data) - 1:  # nearly all are of one byte or two
        first = data[at]
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), at + 1
        second = data[at + 1]
        if second < 0x80:
            return (first >> 1 & 0x3F | second << 6) ^ -(first & 1), at + 2
    value = shift = 0
    while shift < 70:
        try:
            byte = data[at]
        except IndexError:
            raise MalformedError(f"a batch ends within a varint at byte {at}") from None
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and not value >> 64:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise MalformedError(f"a varint of more than 64 bits before byte {at}")


def _nullable_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    if length < 0:
        return None, at
    if at + length > end:
        raise MalformedError(f"{length} bytes at byte {at} of a record that ends at {end}")
    return data[at : at + length], at + length


def _header_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise MalformedError("a record has a header whose name is not UTF-8") from None


# --- reading into columns ---------------------------------------------------------------------------------------------


class BinaryColumn(NamedTuple):
    """Byte strings in Arrow's layout: which are there (a bit each), where each ends (int32, from 0), all of them."""

    null_count: int
    validity: Buffer
    ends: Buffer
    data: Buffer


class HeaderColumns(NamedTuple):
    """Lists of pairs: where the list of each row ends (int32, from 0), all names, all contents."""

    ends: Buffer
    names: BinaryColumn
    contents: BinaryColumn


class ColumnBuffers(NamedTuple):
    """A column as Arrow has it in memory, in the machine's byte order."""

    rows: int
    offsets: Buffer
    """int64"""
    timestamps: Buffer
    """int64, microseconds"""
    timestamp_types: Buffer
    """int32"""
    keys: BinaryColumn
    values: BinaryColumn
    headers: HeaderColumns | None


class _Binary:
    def __init__(self) -> None:
        self.validity, self.ends, self.data = bytearray(), array("i", [0]), bytearray()
        self.null_count = 0

    def append(self, content: bytes | None) -> None:
        row = len(self.ends) - 1
        if row % 8 == 0:
            self.validity.append(0)
        if content is None:
            self.null_count += 1
        else:
            self.validity[-1] |= 1 << row % 8
            self.data += content
        self.ends.append(len(self.data))

    def finish(self) -> BinaryColumn:
        return BinaryColumn(self.null_count, bytes(self.validity), self.ends.tobytes(), bytes(self.data))


class Columns:
    """The records of batches as columns, without an object for each."""

    def __init__(self, with_headers: bool) -> None:
        self._with_headers = with_headers
        self._start()

    def _start(self) -> None:
        self.rows = 0
        """The number of records so far."""
        self.plain_bytes = 0
        """The number of bytes that they were read from."""
        self._offsets, self._timestamps, self._types = array("q"), array("q"), array("i")
        self._keys, self._values, self._names, self._contents = (_Binary() for _ in range(4))
        self._header_ends = array("i", [0])

    def add(self, plain: Buffer, header: BatchHeader, first: int, end: int) -> None:
        """Add those records of a batch, decompressed, whose offsets are in [first, end); all of them or an error."""
        if self.plain_bytes + len(plain) > _MAX_PLAIN:
            raise OverflowError(f"columns of more than {_MAX_PLAIN} bytes; finish them before the next batch")
        found = [record for record in _placed(plain, header) if first <= record[0] < end]
        for _, timestamp, _, _, headers in found:
            if not -_MAX_MILLISECONDS <= timestamp <= _MAX_MILLISECONDS:
                raise MalformedError(f"a record of time {timestamp}; in microseconds it has no room in 64 bits")
            if self._with_headers:
                for name, _ in headers:
                    _header_name(name)
        self.rows += len(found)
        self.plain_bytes += len(plain) if found else 0
        for offset, timestamp, key, value, headers in found:
            self._offsets.append(offset)
            self._timestamps.append(1000 * timestamp)
            self._types.append(header.timestamp_type)
            self._keys.append(key)
            self._values.append(value)
            if self._with_headers:
                for name, content in headers:
                    self._names.append(name)
                    self._contents.append(content)
                self._header_ends.append(len(self._names.ends) - 1)

    def finish(self) -> ColumnBuffers:
        """Return what was added, and start again."""
        headers = None
        if self._with_headers:
            headers = HeaderColumns(self._header_ends.tobytes(), self._names.finish(), self._contents.finish())
        columns = ColumnBuffers(
            self.rows,
            self._offsets.tobytes(),
            self._timestamps.tobytes(),
            self._types.tobytes(),
            self._keys.finish(),
            self._values.finish(),
            headers,
        )
        self._start()
        return columns


# --- offsets of a commit ----------------------------------------------------------------------------------------------

ROW_SIZE = 18
MOST_ROWS = 10_000  # of a commit that stay as they came


def offset_pairs(rows: bytes, key: bytes, tail: bytes) -> list[tuple[bytes, bytes | None]]:
    """Key and value of each row of a commit (see `commit_rows.py`), which ends as `key` and begins before `tail`."""
    return [
        (key + rows[at : at + 4], b"\x00\x04" + rows[at + 4 : at + 16] + tail)
        for at in range(0, len(rows) - len(rows) % ROW_SIZE, ROW_SIZE)
    ]


# --- writing ----------------------------------------------------------------------------------------------------------


class RecordWriter:
    """Records one after the other in the bytes of a batch, as long as the batch stays within `limit`.

    `ratio` is what compression is expected to leave of them: 1.0 if there is none, and then `size` is exact.
    """

    def __init__(self, limit: int, ratio: float = 1.0) -> None:
        check_ratio(ratio)
        self._limit, self._ratio = limit, ratio
        self._plain = bytearray()
        self.count = 0
        self.base_timestamp = self.max_timestamp = NO_TIMESTAMP

    @property
    def plain_size(self) -> int:
        """The records alone, not compressed."""
        return len(self._plain)

    @property
    def size(self) -> int:
        """The whole batch: exactly, or with compression as it is expected."""
        return HEADER_SIZE + int(len(self._plain) * self._ratio)

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        timestamp: int,
        headers: Iterable[tuple[str, Buffer | None]] = (),
    ) -> bool:
        """Add a record; return whether there was room for it, which the first always has."""
        if not NO_TIMESTAMP <= timestamp < _MAX_INT64:
            check_timestamp(timestamp)
        key = key if type(key) is bytes else as_bytes(key, "key")
        value = value if type(value) is bytes else as_bytes(value, "value")
        count, before = self.count, len(self._plain)
        base = self.base_timestamp if count else timestamp
        start = b"\x00" + _zigzag(timestamp - base) + _zigzag(count) + _size_of(key)
        middle = _size_of(value)
        end = _headers(headers) if headers else b"\x00"
        key, value = key or b"", value or b""
        length = len(start) + len(key) + len(middle) + len(value) + len(end)
        prefix = _zigzag(length)
        size = before + len(prefix) + length
        if count and HEADER_SIZE + int(size * self._ratio) > self._limit:
            return False
        if size > _MAX_PLAIN:
            refuse_size(size)
        self._plain += b"".join((prefix, start, key, middle, value, end))
        self.base_timestamp = base
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.count = count + 1
        return True

    def extend(self, pairs: Iterable[tuple[bytes, bytes | None]], timestamp: int) -> bool:
        """Keys and values of one time; whether there was room for all of them."""
        return all(self.append(key, value, timestamp) for key, value in pairs)

    def extend_offsets(self, rows: bytes, key: bytes, tail: bytes, timestamp: int) -> bool:
        """Append what `offset_pairs` would return, without making it."""
        return self.extend(offset_pairs(rows, key, tail), timestamp)

    def plain(self) -> Buffer:
        """The records as they are in a batch that is not compressed."""
        return bytes(self._plain)


def check_ratio(ratio: float) -> None:
    if not 0 < ratio <= 100:
        raise ValueError(f"of 1 byte compression leaves 1 or less, now and then a little more; not {ratio}")


def check_timestamp(timestamp: int) -> None:
    if not NO_TIMESTAMP <= timestamp < _MAX_INT64:
        raise MalformedError(f"a timestamp is -1 or milliseconds since 1970 below 2^63 - 1, not {timestamp}")


def refuse_size(size: int) -> Never:
    raise MalformedError(f"a batch of {size} bytes; its length has to fit into 31 bits")


def as_bytes(content: Buffer | None, what: str) -> bytes | None:
    if content is None or type(content) is bytes:
        return content
    try:
        return bytes(memoryview(content))
    except TypeError:
        raise TypeError(f"the {what} of a record is bytes or None, not {type(content).__name__}") from None


def raw_headers(headers: Iterable[tuple[str, Buffer | None]]) -> list[RawHeader]:
    return [(name.encode(), as_bytes(content, "header")) for name, content in headers]


def _headers(headers: Iterable[tuple[str, Buffer | None]]) -> bytes:
    encoded = raw_headers(headers)
    parts = [_zigzag(len(encoded))]
    for name, content in encoded:
        parts += _size_of(name), name, _size_of(content), content or b""
    return b"".join(parts)


def _size_of(content: bytes | None) -> bytes:
    return b"\x01" if content is None else _zigzag(len(content))


def _zigzag(value: int) -> bytes:
    return _ZIGZAGS[value] if 0 <= value < 256 else uvarint((value << 1) ^ (value >> 63))


ANYWHERE = -(1 << 31)
"""The partition number that means: choose the partition in turn. No wrong number can be equal to it."""


def append_rows(
    writers: Sequence[RecordWriter],
    partitions: Buffer,
    keys: BinaryColumn,
    values: BinaryColumn,
    timestamps: Buffer,
    first: int,
    end: int,
    *,
    anywhere: int = 0,
    headers: Sequence[Iterable[tuple[str, Buffer | None]]] | None = None,
) -> int:
    """Append the rows [first, end), each to the writer of its partition; the row for which there is no room, or `end`.

    `partitions` are int32, and ANYWHERE goes to `anywhere`; `timestamps` are int64 in milliseconds.
    """
    where, when = memoryview(partitions).cast("B").cast("i"), memoryview(timestamps).cast("B").cast("q")
    rows = min(len(where), len(when), len(where) if headers is None else len(headers))
    if not 0 <= first <= end <= rows:
        raise ValueError(f"rows {first} to {end} of {len(where)} partitions and {len(when)} timestamps")
    for row in range(first, end):
        partition = anywhere if where[row] == ANYWHERE else where[row]
        if not 0 <= partition < len(writers):
            raise ValueError(f"row {row} goes to partition {partition}; there are {len(writers)}")
        more = () if headers is None else headers[row]
        if not writers[partition].append(row_of(keys, row), row_of(values, row), when[row], more):
            return row
    return end


def row_of(column: BinaryColumn, row: int) -> bytes | None:
    """Read an array whose length another process has written; check that it is there."""
    ends, validity = memoryview(column.ends).cast("B").cast("i"), memoryview(column.validity).cast("B")
    if row + 1 >= len(ends) or (column.null_count and row // 8 >= len(validity)):
        raise ValueError(f"a column without row {row}")
    if column.null_count and not validity[row // 8] >> row % 8 & 1:
        return None
    if not 0 <= ends[row] <= ends[row + 1] <= len(column.data):
        raise ValueError(f"row {row} from byte {ends[row]} to {ends[row + 1]} of a column of {len(column.data)} bytes")
    return bytes(column.data[ends[row] : ends[row + 1]])


# --- choosing a partition ---------------------------------------------------------------------------------------------


def murmur2(data: Buffer) -> int:
    """The hash by which Kafka's producers choose the partition of a key; unsigned, 32 bits."""
    data = bytes(memoryview(data))
    size = len(data)
    value = 0x9747B28C ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        part = (part ^ part >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        value = value * 0x5BD1E995 & 0xFFFFFFFF ^ part
    if size > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return value ^ value >> 15


def partitions_of_keys(keys: BinaryColumn, rows: int, partitions: int, without_key: int) -> bytes:
    """Return the partition that Kafka's producers choose for each key, as int32; a null key gives `without_key`."""
    if partitions < 1:
        raise ValueError(f"keys cannot be spread over {partitions} partitions")
    found = array("i")
    for row in range(rows):
        key = row_of(keys, row)
        found.append(without_key if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions)
    return found.tobytes()
