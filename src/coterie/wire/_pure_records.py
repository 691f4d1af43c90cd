"""The records of a batch in plain Python: the twin of `_fast_records.pyx`, which does the same compiled.

`records.py` decides which of the two is used; the same tests hold both. What is malformed is described here alone: the
compiled one, when it meets bytes it cannot read, has them read again here for the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coterie.errors import MalformedError
from coterie.wire.batch import NO_TIMESTAMP, BatchHeader, TimestampType
from coterie.wire.buffer import Buffer

__all__ = ["Header", "RawRecord", "Record", "header_name", "raw_records", "read_records"]

_SMALLEST_RECORD = 7  # a length and six fields of one byte
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1

Header = tuple[str, bytes | None]
RawHeader = tuple[bytes, bytes | None]
RawRecord = tuple[int, int, bytes | None, bytes | None, list[RawHeader]]
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


def read_records(plain: Buffer, header: BatchHeader, topic: str, partition: int, first: int, end: int) -> list[Record]:
    """Those records of a batch, decompressed, whose offsets are in [first, end)."""
    found = []
    kind, epoch = header.timestamp_type, header.leader_epoch
    for offset, timestamp, key, value, raw in _placed(plain, header):
        headers = tuple([(header_name(name), content) for name, content in raw])
        if first <= offset < end:
            found.append(Record(topic, partition, offset, timestamp, kind, key, value, headers, epoch))
    return found


def _placed(plain: Buffer, header: BatchHeader) -> Iterator[RawRecord]:
    """The records with their own offset and timestamp; both within what the batch and 64 bits allow."""
    base_offset, last_delta, base_timestamp = header.base_offset, header.last_offset_delta, header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    for delta, timestamp, key, value, headers in raw_records(bytes(plain), header.record_count):
        if not 0 <= delta <= last_delta:
            raise MalformedError(f"a record {delta} offsets into a batch that ends after {last_delta}")
        if append_time is not None:
            timestamp = append_time  # noqa: PLW2901
        else:
            timestamp += base_timestamp  # noqa: PLW2901
            if not _MIN_INT64 <= timestamp <= _MAX_INT64:
                raise MalformedError(f"a record of time {timestamp}; a timestamp has 64 bits")
        yield base_offset + delta, timestamp, key, value, headers


def raw_records(plain: bytes, count: int) -> Iterator[RawRecord]:
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


def header_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise MalformedError("a record has a header whose name is not UTF-8") from None
