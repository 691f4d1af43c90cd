"""Batches of which compaction takes records away, as Kafka leaves them (magic 2).

Where a batch begins and ends in the log, and in its producer's sequence, stays as it was, even if the first or the last
record is gone; so do the offsets of those that stay. When tombstones are met for the first time, the batch is marked
with the time from which they may go: it takes the place of the base timestamp (KIP-534).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coterie.errors import MalformedError
from coterie.protocol.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, TimestampType, pack_header
from coterie.protocol.buffer import Buffer, uvarint
from coterie.protocol.compression import compress, decompress
from coterie.protocol.records import MAX_DECOMPRESSED, MAX_OFFSET, Record, read_records

__all__ = ["OpenBatch", "emptied"]


class OpenBatch:
    """A batch whose records are looked at, to keep some; `MalformedError` if they make no sense."""

    def __init__(self, data: Buffer, header: BatchHeader, at: int = 0, limit: int = MAX_DECOMPRESSED) -> None:
        self.header = header
        plain: Buffer = data[at + HEADER_SIZE : at + header.size]
        if header.is_compressed:
            plain = decompress(header.compression, plain, limit)
        self._plain = bytes(plain)
        self.records: list[Record] = read_records(self._plain, header, "", 0, -MAX_OFFSET, MAX_OFFSET)

    def keep(self, kept: Sequence[bool], horizon_ms: int | None = None) -> bytearray:
        """The batch with those records for which `kept` says so, one at least; `horizon_ms` is a new delete horizon."""
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
    """A batch that is kept though none of its records is."""
    return pack_header(header.without_records(), b"")


def _each(plain: bytes) -> Iterator[bytes]:
    """The records one by one, as they are, with their lengths."""
    at = 0
    while at < len(plain):
        length, content_at = _varint(plain, at)
        yield plain[at : content_at + length]
        at = content_at + length


def _moved(content: bytes, ms: int) -> bytes:
    """A record whose timestamp is the same when it is counted from a base that is `ms` earlier."""
    _, at = _varint(content, 0)
    delta, rest_at = _varint(content, at + 1)
    body = content[at : at + 1] + _zigzag(delta + ms) + content[rest_at:]
    return _zigzag(len(body)) + body


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Of records that were read before: so it is there, and whole."""
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
