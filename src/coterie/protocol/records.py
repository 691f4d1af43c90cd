"""The records within a batch v2: read one by one, built into a new batch, or compacted. The header is in `batch.py`.

Offsets and timestamps of records are differences to the batch's first; all numbers are zigzag varints. What is done
for each record is in `_pure_records.py` and, compiled, in `_fast_records.pyx`; this module decides which is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from struct import Struct, error
from typing import TYPE_CHECKING, Any, NamedTuple

from coterie.errors import MalformedError
from coterie.protocol._pure_iteration import AsyncRecordIterator, RecordBuffer, RecordIterator
from coterie.protocol._pure_quick_append import QuickAppend, SentRecord
from coterie.protocol._pure_records import (
    Columns,
    Header,
    Record,
    RecordWriter,
    append_rows,
    murmur2,
    offset_pairs,
    partitions_of_keys,
    read_records,
)
from coterie.protocol.batch import (
    HEADER_SIZE,
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    OF_MARKER,
    OF_TRANSACTION,
    BatchHeader,
    BatchWriter,
    Compression,
    TimestampType,
    attributes_of,
    pack_header,
    pack_placed,
)
from coterie.protocol.buffer import Buffer, uvarint
from coterie.protocol.compression import compress, decompress

__all__ = [
    "IS_COMPILED",
    "MAX_DECOMPRESSED",
    "MAX_OFFSET",
    "NO_LIMIT",
    "AsyncRecordIterator",
    "BatchBuilder",
    "BatchRecord",
    "Columns",
    "EndMarker",
    "Header",
    "OffsetPairs",
    "OpenBatch",
    "QuickAppend",
    "Record",
    "RecordBuffer",
    "RecordIterator",
    "RecordWriter",
    "SentRecord",
    "append_rows",
    "build_batch",
    "build_placed_batch",
    "build_placed_marker",
    "emptied",
    "joined",
    "marker_of",
    "murmur2",
    "partitions_of_keys",
    "raw_records",
    "read_records",
    "records",
]


if not TYPE_CHECKING and os.environ.get("COTERIE_PURE", "0") in {"", "0"}:
    with suppress(ImportError):  # built where there was no compiler
        fast = import_module("coterie.protocol._fast_records")
        Columns, Record, RecordWriter = fast.Columns, fast.Record, fast.RecordWriter
        murmur2, read_records = fast.murmur2, fast.read_records
        append_rows, partitions_of_keys = fast.append_rows, fast.partitions_of_keys
        RecordBuffer, RecordIterator = fast.RecordBuffer, fast.RecordIterator
        AsyncRecordIterator = fast.AsyncRecordIterator
        QuickAppend, SentRecord = fast.QuickAppend, fast.SentRecord


MAX_DECOMPRESSED = 128 * 1024 * 1024
"""The most a batch may decompress to unless the caller says otherwise: far above what clients send, far below harm."""

IS_COMPILED = Record.__module__ == "coterie.protocol._fast_records"
"""True if `_fast_records.pyx` reads and writes records; COTERIE_PURE=1 in the environment turns it off."""

MAX_OFFSET = (1 << 63) - 1
NO_LIMIT = (1 << 31) - 1

_MARKER_KEY, _MARKER_VALUE = Struct(">hh"), Struct(">hi")
_MARKER_RECORD = Struct(">BxxxBhhBhiB")  # its size, three zeros, size and content of key and value, no headers
_ABORT, _COMMIT = 0, 1


class BatchRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[Header] = ()
    offset: int = 0
    """Its offset in the log; `build_batch` assigns offsets itself."""


class EndMarker(NamedTuple):
    """The end of a transaction, as its only record in a control batch."""

    committed: bool
    coordinator_epoch: int = 0


# --- reading ----------------------------------------------------------------------------------------------------------


def records(data: Buffer, header: BatchHeader, at: int = 0, limit: int = MAX_DECOMPRESSED) -> Iterator[BatchRecord]:
    """The records of the batch at `at`, decompressed to at most `limit` bytes; raises where they make no sense.

    The checksum is the caller's to check, once, where the bytes come in.
    """
    for each in raw_records(data, header, at, limit):
        yield BatchRecord(each.key, each.value, each.timestamp, list(each.headers), each.offset)


def raw_records(data: Buffer, header: BatchHeader, at: int = 0, limit: int = MAX_DECOMPRESSED) -> list[Record]:
    """The same as they are read, of no topic: for those who read very many."""
    plain = decompress(header.compression, memoryview(data)[at + HEADER_SIZE : at + header.size], limit)
    return read_records(plain, header, "", 0, -MAX_OFFSET, MAX_OFFSET)


# --- building ---------------------------------------------------------------------------------------------------------


class BatchBuilder(RecordWriter):
    """A batch that grows: `append(key, value, timestamp, headers=()) -> bool` until it is full, then `finish`.

    `size` is how large the batch is so far, exactly; with compression, as large as `ratio` lets expect (how much of its
    content is left when it is compressed).
    """

    def __init__(
        self, limit: int, compression: Compression = Compression.NONE, ratio: float = 1.0, level: int | None = None
    ) -> None:
        super().__init__(limit, 1.0 if compression is Compression.NONE else ratio)
        self.compression = compression
        self.level = level

    def finish(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> bytearray:
        """The batch, from offset 0, to be given its place by the log."""
        if not self.count:
            raise MalformedError("a batch needs one record at least")
        header = BatchHeader(
            base_offset=0,
            length=0,
            leader_epoch=-1,
            magic=2,
            crc=0,
            attributes=attributes_of(
                self.compression,
                TimestampType.CREATE_TIME,
                is_transactional=is_transactional,
                is_control=is_control,
            ),
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.count,
        )
        return pack_header(header, compress(self.compression, self.plain(), self.level))


def build_batch(
    content: Iterable[BatchRecord],
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """A batch of these records from offset 0, however large."""
    builder = BatchBuilder(NO_LIMIT, compression)
    for record in content:
        builder.append(record.key, record.value, record.timestamp, record.headers)
    return builder.finish(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
    )


Pair = tuple[bytes, bytes | None]


class OffsetPairs(Sequence[Pair]):
    """Keys and values of commits (see `commit_rows.py`), made only when one is used."""

    __slots__ = ("_count", "pieces")

    def __init__(self, count: int, pieces: list[tuple[bytes, bytes, bytes]]) -> None:
        self._count = count
        self.pieces = pieces
        """The rows of each commit, with the start of its keys and the end of its values."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Pair]:
        return (pair for piece in self.pieces for pair in offset_pairs(*piece))

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


def joined(many: Sequence[Sequence[Pair]]) -> Sequence[Pair]:
    """Return the parts one after the other."""
    pieces: list[tuple[bytes, bytes, bytes]] = []
    for each in many:
        if type(each) is not OffsetPairs:
            return [pair for every in many for pair in every]
        pieces += each.pieces
    return OffsetPairs(sum(map(len, many)), pieces)


def build_placed_batch(
    pairs: Iterable[Pair],
    timestamp: int,
    base_offset: int,
    leader_epoch: int,
    producer: tuple[int, int] | None = None,
) -> tuple[bytearray, BatchHeader]:
    """A batch of keys and values of one time, in its place in the log: nothing of it needs to be looked at again.

    `producer` is the id and the epoch of the producer whose transaction it is part of.
    """
    writer = RecordWriter(NO_LIMIT)
    if type(pairs) is OffsetPairs:
        for rows, key, tail in pairs.pieces:
            writer.extend_offsets(rows, key, tail, timestamp)
    else:
        writer.extend(pairs, timestamp)
    of = NO_PRODUCER if producer is None else BatchWriter(OF_TRANSACTION, *producer, base_sequence=0)
    return pack_placed(bytes(writer.plain()), writer.count, timestamp, base_offset, leader_epoch, of)


# --- transaction markers ----------------------------------------------------------------------------------------------


def build_placed_marker(
    marker: EndMarker, producer: tuple[int, int], timestamp: int, base_offset: int, leader_epoch: int
) -> tuple[bytearray, BatchHeader]:
    """The control batch that ends the transaction of a producer id and epoch, in its place in the log (TL1)."""
    kind = _COMMIT if marker.committed else _ABORT
    record = _MARKER_RECORD.pack(0x20, 0x08, 0, kind, 0x0C, 0, marker.coordinator_epoch, 0)
    return pack_placed(record, 1, timestamp, base_offset, leader_epoch, BatchWriter(OF_MARKER, *producer))


def marker_of(data: Buffer, header: BatchHeader, at: int = 0) -> EndMarker | None:
    """The marker in a control batch; None if it is of another kind, or compaction has emptied the batch."""
    for record in records(data, header, at):
        try:
            _version, kind = _MARKER_KEY.unpack_from(record.key or b"")
            if kind not in {_ABORT, _COMMIT}:
                return None
            _version, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
        except error:
            raise MalformedError("a control batch whose record is too short to be a transaction marker") from None
        return EndMarker(kind == _COMMIT, coordinator_epoch)
    return None


# --- compaction -------------------------------------------------------------------------------------------------------


class OpenBatch:
    """A batch from which compaction removes records, as Kafka does; `MalformedError` if they cannot be read.

    Where the batch begins and ends in the log and in its producer's sequence stays as it was, even without the first or
    the last record; so do the offsets of the others. When tombstones are met for the first time, the batch gets the
    time from which they may be removed in place of its base timestamp (KIP-534).
    """

    def __init__(self, data: Buffer, header: BatchHeader, at: int = 0, limit: int = MAX_DECOMPRESSED) -> None:
        self.header = header
        plain: Buffer = data[at + HEADER_SIZE : at + header.size]
        if header.is_compressed:
            plain = decompress(header.compression, plain, limit)
        self._plain = bytes(plain)
        self.records: list[Record] = read_records(self._plain, header, "", 0, -MAX_OFFSET, MAX_OFFSET)

    def keep(self, kept: Sequence[bool], horizon_ms: int | None = None) -> bytearray:
        """Return the batch with the records that `kept` names, at least one; `horizon_ms` is a new delete horizon."""
        header = self.header
        if header.timestamp_type is TimestampType.CREATE_TIME:
            stamps = (record.timestamp for record, stays in zip(self.records, kept, strict=True) if stays)
            header = header._replace(max_timestamp=max(stamps, default=NO_TIMESTAMP))
        header = header._replace(record_count=sum(kept))
        slices = [content for content, stays in zip(_each(self._plain), kept, strict=True) if stays]
        if horizon_ms is not None:
            slices = [_moved(content, header.base_timestamp - horizon_ms) for content in slices]
            header = header.with_delete_horizon(horizon_ms)
        return pack_header(header, compress(header.compression, b"".join(slices)))


def emptied(header: BatchHeader) -> bytearray:
    """Return a batch without its records."""
    return pack_header(header.without_records(), b"")


def _each(plain: bytes) -> Iterator[bytes]:
    """Yield the bytes of each record, with its length."""
    at = 0
    while at < len(plain):
        length, content_at = _varint(plain, at)
        yield plain[at : content_at + length]
        at = content_at + length


def _moved(content: bytes, ms: int) -> bytes:
    """Return a record with the same timestamp, relative to a base that is `ms` earlier."""
    _, at = _varint(content, 0)
    delta, rest_at = _varint(content, at + 1)
    body = content[at : at + 1] + _zigzag(delta + ms) + content[rest_at:]
    return _zigzag(len(body)) + body


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint of records that were read before, so it is whole."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _zigzag(value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 63:
        raise MalformedError(f"a difference of {value} ms between two timestamps; there are 64 bits for it")
    return uvarint((value << 1) ^ (value >> 63))
