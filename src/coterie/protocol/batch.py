"""The header of a record batch, format v2 (magic 2): read, checked and stamped in place, its records untouched.

A broker needs no more than this to store and to serve batches: offsets, epochs and checksums are in the first 61
bytes, and what follows passes through as the producer sent it, compressed or not. The records are in `records.py`.

The checksum covers everything from the attributes on. Base offset and leader epoch lie before it, so that a broker
can assign both without reading the batch again; only a change of timestamps asks for a new checksum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import ClassVar, NamedTuple

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.buffer import Buffer
from coterie.protocol.checksums import crc32c

MutableBuffer = bytearray | memoryview

_HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = _HEADER.size  # 61
_BEFORE_CRC, _AFTER_CRC = Struct(">qiibI"), Struct(">hiqqqhii")  # with the checksum; what the checksum is of
_PREFIX = 12  # base offset and length: what `length` does not count
_LENGTH_AT = 8
_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43
_INT16, _INT32, _UINT32, _INT64 = (Struct(">" + code) for code in "hiIq")
_PRODUCER = Struct(">qhi")
_MAGIC = 2
_SMALLEST_RECORD = 7
"""Bytes: its length, attributes, time, offset, key, value and headers, each in one."""

_COMPRESSION_BITS = 0x07
_APPEND_TIME_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_DELETE_HORIZON_BIT = 0x40

MAX_SEQUENCE = 2**31 - 1
NO_TIMESTAMP = NO_PRODUCER_ID = NO_PRODUCER_EPOCH = NO_SEQUENCE = -1
OF_TRANSACTION, OF_MARKER = _TRANSACTIONAL_BIT, _TRANSACTIONAL_BIT | _CONTROL_BIT
"""The attributes of a batch in a transaction, and of the marker that ends one; neither is compressed."""


class BatchError(MalformedError):
    """A batch cannot be accepted; `code` is the error that the producer gets."""

    code: ClassVar[ErrorCode] = ErrorCode.INVALID_RECORD
    records: Sequence[int] = ()
    """The indexes of the records that are wrong; empty if it is the batch as a whole."""


class CorruptBatchError(BatchError):
    """The bytes are not what the sender wrote: cut short, or the checksum differs."""

    code = ErrorCode.CORRUPT_MESSAGE


class MisplacedBatchError(CorruptBatchError):
    """The batch is whole, but it does not continue the log: a base offset, which no checksum covers, is wrong."""

    def __init__(self, why: str, base_offset: int) -> None:
        super().__init__(why)
        self.base_offset = base_offset


class InvalidBatchError(BatchError):
    """Intact, but it contradicts itself or claims what a client may not."""


class OldMagicError(BatchError):
    """Message format v0 or v1, from before Kafka 0.11; as Kafka 4 does, we neither store nor convert it."""


class UnknownCompressionError(BatchError):
    """The attributes name a compression that does not exist."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_COMPRESSIONS = {one.value: one for one in Compression}  # to call the enum takes ten times as long


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The 61 bytes as they are on the wire, in their order; what follows from them as properties."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The whole batch in bytes, header included."""
        return self.length + _PREFIX

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; after 2^31 - 1 comes 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def compression(self) -> Compression:
        try:
            return _COMPRESSIONS[self.attributes & _COMPRESSION_BITS]
        except KeyError:
            raise UnknownCompressionError(
                f"the batch names compression {self.attributes & _COMPRESSION_BITS}; Kafka knows 0 to 4 "
                "(none, gzip, snappy, lz4, zstd)"
            ) from None

    @property
    def is_compressed(self) -> bool:
        return bool(self.attributes & _COMPRESSION_BITS)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & _APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may remove its tombstones or its marker; None if it has met none."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON_BIT else None

    def with_delete_horizon(self, horizon_ms: int) -> BatchHeader:
        """The records' timestamps are differences to the horizon then."""
        return self._replace(attributes=self.attributes | _DELETE_HORIZON_BIT, base_timestamp=horizon_ms)

    def without_records(self) -> BatchHeader:
        """Return the header of the batch without its records: offsets and producer stay (KAFKA-5490)."""
        attributes = self.attributes & ~_COMPRESSION_BITS & ~_DELETE_HORIZON_BIT
        return self._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)


def parse_header(data: Buffer, at: int = 0) -> BatchHeader:
    """The header at position `at`, if its shape is that of a batch; neither the checksum nor the end is looked at."""
    if len(data) - at < HEADER_SIZE or data[at + _MAGIC_AT] != _MAGIC:
        raise _no_header(data, at)
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(data, at))  # `_make` counts the fields again
    if header.length < HEADER_SIZE - _PREFIX:
        raise CorruptBatchError(
            f"the batch at byte {at} says it has {header.size} bytes, its header alone has {HEADER_SIZE}"
        )
    return header


def _no_header(data: Buffer, at: int) -> BatchError:
    left = max(len(data) - at, 0)
    magic = int.from_bytes(data[at + _MAGIC_AT : at + _MAGIC_AT + 1], "big", signed=True) if left > _MAGIC_AT else None
    if magic in {0, 1}:
        return OldMagicError(
            f"a batch in message format v{magic}; only v2 (Kafka 0.11 and later) is stored: "
            "use a client that speaks Produce version 3 or later"
        )
    if left < HEADER_SIZE:
        return CorruptBatchError(f"a batch header has {HEADER_SIZE} bytes; {left} are left at byte {at}")
    return CorruptBatchError(f"the batch at byte {at} has magic {magic}; there are 0, 1 and 2")


def check_sum(data: Buffer, header: BatchHeader, at: int = 0) -> None:
    """The batch is wholly there, and its checksum is right."""
    end = at + header.size
    if end > len(data):
        raise CorruptBatchError(f"the batch at byte {at} says it has {header.size} bytes; {len(data) - at} are there")
    computed = crc32c(memoryview(data)[at + _ATTRIBUTES_AT : end])
    if computed != header.crc:
        raise CorruptBatchError(
            f"the batch at byte {at} has checksum {header.crc:#010x} in its header and {computed:#010x} over its bytes"
        )


def check_from_client(header: BatchHeader, max_decompressed: int = MAX_SEQUENCE) -> None:
    """Raise unless a producer's batch is as Kafka demands, beyond its checksum. A compacted batch may differ.

    The records are not opened. It is only checked that their number can fit into the bytes, also when decompressed.
    """
    _ = header.compression
    if header.base_offset != 0:
        raise InvalidBatchError(f"a producer's batch starts at offset 0, this one at {header.base_offset}")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidBatchError(
            f"the batch counts {header.record_count} records and offsets 0 to {header.last_offset_delta}; "
            "there must be one offset for each record, and one record at least"
        )
    room = max_decompressed if header.is_compressed else header.size - HEADER_SIZE
    if header.record_count * _SMALLEST_RECORD > room:
        raise InvalidBatchError(
            f"the batch counts {header.record_count} records in {room} bytes; one takes {_SMALLEST_RECORD} at least"
        )
    if header.is_control:
        raise InvalidBatchError("control batches (transaction markers) are written by brokers, not by clients")
    if header.has_producer and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidBatchError(
            f"the batch of producer {header.producer_id} has epoch {header.producer_epoch} and sequence "
            f"{header.base_sequence}; neither can be negative"
        )
    if header.is_transactional and not header.has_producer:
        raise InvalidBatchError("the batch is transactional and has no producer id")


def batches(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch, each wholly there with a right checksum; anything else raises."""
    at = 0
    while at < len(data):
        header = parse_header(data, at)
        check_sum(data, header, at)
        yield at, header
        at += header.size


def transactional_producer(data: Buffer | None) -> tuple[int, int] | None:
    """Return the producer id and the epoch of a batch of a transaction; None of other batches, and if there is none.

    The rest of the batch is not looked at: it may be invalid.
    """
    if data is None or len(data) < HEADER_SIZE or data[_MAGIC_AT] != _MAGIC:
        return None
    if not data[_ATTRIBUTES_AT + 1] & _TRANSACTIONAL_BIT:
        return None
    producer_id, epoch, _ = _PRODUCER.unpack_from(data, _PRODUCER_AT)
    return producer_id, epoch


def end_of(data: Buffer) -> int:
    """Return the offset after the last of whole batches that were read from a log; 0 if there are none."""
    at = end = 0
    while at < len(data):
        header = parse_header(data, at)
        at, end = at + header.size, header.next_offset
    return end


def assign(data: MutableBuffer, at: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch its place in the log. Both fields lie before the checksum, which stays right."""
    _INT64.pack_into(data, at, base_offset)
    _INT32.pack_into(data, at + _EPOCH_AT, leader_epoch)


def writable(data: Buffer) -> MutableBuffer:
    """Itself if it can be changed in place, else a copy."""
    if isinstance(data, bytes) or (isinstance(data, memoryview) and data.readonly):
        return bytearray(data)
    return data


def stamp_time(data: MutableBuffer, at: int, timestamp_type: TimestampType, max_timestamp: int) -> None:
    """Set whose clock the timestamps are from, and the latest of them; with a new checksum.

    With append time, readers take the batch's latest timestamp for each of its records, so the records stay as they
    are.
    """
    (length,) = _INT32.unpack_from(data, at + _LENGTH_AT)
    (attributes,) = _INT16.unpack_from(data, at + _ATTRIBUTES_AT)
    attributes &= ~_APPEND_TIME_BIT
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= _APPEND_TIME_BIT
    _INT16.pack_into(data, at + _ATTRIBUTES_AT, attributes)
    _INT64.pack_into(data, at + _MAX_TIMESTAMP_AT, max_timestamp)
    _UINT32.pack_into(data, at + _CRC_AT, crc32c(memoryview(data)[at + _ATTRIBUTES_AT : at + _PREFIX + length]))


def stamp_producer(data: MutableBuffer, at: int, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Set whose batch it is and where in its sequence it belongs; with a new checksum."""
    (length,) = _INT32.unpack_from(data, at + _LENGTH_AT)
    _PRODUCER.pack_into(data, at + _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _UINT32.pack_into(data, at + _CRC_AT, crc32c(memoryview(data)[at + _ATTRIBUTES_AT : at + _PREFIX + length]))


def pack_header(header: BatchHeader, body: bytes) -> bytearray:
    """The batch of `header` and `body`; length and checksum are computed, whatever the header says of them."""
    data = bytearray(_HEADER.pack(*header._replace(length=HEADER_SIZE - _PREFIX + len(body), magic=_MAGIC, crc=0)))
    data += body
    _UINT32.pack_into(data, _CRC_AT, crc32c(memoryview(data)[_ATTRIBUTES_AT:]))
    return data


class BatchWriter(NamedTuple):
    """The writer of a batch: the attributes, the producer and the sequence in its header."""

    attributes: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


NO_PRODUCER = BatchWriter()


def pack_placed(
    body: bytes, count: int, timestamp: int, base_offset: int, leader_epoch: int, writer: BatchWriter = NO_PRODUCER
) -> tuple[bytearray, BatchHeader]:
    """A batch of records of one time, not compressed, in its place in the log; and its header."""
    attributes, producer_id, producer_epoch, base_sequence = writer
    after = (
        _AFTER_CRC.pack(attributes, count - 1, timestamp, timestamp, producer_id, producer_epoch, base_sequence, count)
        + body
    )
    length, crc = len(after) + _CRC_AT + 4 - _PREFIX, crc32c(after)
    header = BatchHeader(
        base_offset, length, leader_epoch, _MAGIC, crc, attributes, count - 1, timestamp, timestamp,
        producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    data = bytearray(_BEFORE_CRC.pack(base_offset, length, leader_epoch, _MAGIC, crc))
    data += after
    return data, header


def attributes_of(
    compression: Compression, timestamp_type: TimestampType, *, is_transactional: bool, is_control: bool
) -> int:
    return (
        compression
        | (_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (_TRANSACTIONAL_BIT if is_transactional else 0)
        | (_CONTROL_BIT if is_control else 0)
    )
