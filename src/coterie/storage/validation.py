"""Validation of batches that are appended to a log, and their offsets: Kafka's checks in Kafka's order.

Headers and checksums are checked. Records are read only where a rule needs them: a compacted topic requires a key in
each. Then a batch gets its offset, its leader epoch and, if the topic uses append time, its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import islice
from typing import NamedTuple

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    InvalidBatchError,
    MutableBuffer,
    TimestampType,
    assign,
    batches,
    check_from_client,
    parse_header,
    stamp_time,
)
from coterie.protocol.buffer import Buffer
from coterie.protocol.compression import decompress
from coterie.protocol.records import Columns, EndMarker, marker_of
from coterie.storage.log_config import LogConfig
from coterie.storage.log_errors import RefusedError


class LogAppendInfo(NamedTuple):
    """The offsets of a batch in the log; those of the first write if it is a duplicate."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 unless the topic uses append time."""
    log_start_offset: int
    is_duplicate: bool = False


OPENED_AT_ONCE = 16 << 20
"""The most bytes that a batch may decompress to while all other requests wait: 50 ms of the slowest codec."""
_ANY_OFFSET = (1 << 63) - 1
MOST_NAMED = 1_000
"""The most records without a key that an error lists."""


class Origin(Enum):
    """The writer of a batch."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    """The group coordinator: several batches at once, transaction markers, and no sequence numbers."""


class Incoming(NamedTuple):
    """A valid batch: where it begins, its header, and its marker if it is a control batch."""

    at: int
    header: BatchHeader
    marker: EndMarker | None


def too_large(size: int, limit: int) -> RefusedError:
    return RefusedError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes; max.message.bytes allows {limit}")


def check_batches(data: Buffer, config: LogConfig, origin: Origin, now_ms: int) -> list[Incoming]:
    """Return the batches in `data`; raise `BatchError` or `RefusedError` if one of them is not valid."""
    found = []
    for at, header in batches(data):
        is_marker = header.is_control and origin is Origin.COORDINATOR  # which must be written, whatever its size
        if header.size > config.max_message_bytes and not is_marker:
            raise too_large(header.size, config.max_message_bytes)
        if origin is Origin.CLIENT:
            check_from_client(header, config.max_decompressed_bytes)
            _check_timestamps(header, config, now_ms)
            if config.compacts:
                _check_keys(data, at, header, min(config.max_decompressed_bytes, OPENED_AT_ONCE))
        marker = marker_of(data, header, at) if header.is_control else None
        found.append(Incoming(at, header, marker))
    if not found or (origin is Origin.CLIENT and len(found) > 1):
        raise InvalidBatchError(f"a producer sends exactly one batch for a partition, this one sent {len(found)}")
    if len(data) > config.segment_bytes:
        raise RefusedError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{len(data)} bytes in one append; segment.bytes allows {config.segment_bytes}",
        )
    return found


def _check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if config.message_timestamp_type is TimestampType.CREATE_TIME and header.max_timestamp != NO_TIMESTAMP:
        oldest = now_ms - config.message_timestamp_before_max_ms
        newest = now_ms + config.message_timestamp_after_max_ms
        if header.max_timestamp > newest or header.base_timestamp < oldest:
            raise RefusedError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamps from {header.base_timestamp} to {header.max_timestamp}; between {oldest} and {newest} is "
                "allowed (message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
            )
    elif header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise RefusedError(ErrorCode.INVALID_TIMESTAMP, "append time is for the broker to set, not for a producer")


def _check_keys(data: Buffer, at: int, header: BatchHeader, limit: int) -> None:
    """Check that all records have a key. They are read as columns: a million objects would take a second."""
    columns = Columns(with_headers=False)
    try:
        plain = decompress(header.compression, memoryview(data)[at + HEADER_SIZE : at + header.size], limit)
        columns.add(plain, header, -_ANY_OFFSET, _ANY_OFFSET)
    except MalformedError as error:
        raise InvalidBatchError(str(error)) from None
    keys = columns.finish().keys
    if keys.null_count:
        refusal = InvalidBatchError(
            f"{keys.null_count} of {header.record_count} records have no key; a compacted topic needs one in each"
        )
        without_key = (n for n in range(header.record_count) if not keys.validity[n >> 3] >> (n & 7) & 1)
        refusal.records = list(islice(without_key, MOST_NAMED))
        raise refusal


def assign_offsets(
    buffer: MutableBuffer, incoming: Sequence[Incoming], config: LogConfig, offset: int, epoch: int, now_ms: int
) -> list[BatchHeader]:
    """Write offsets from `offset` on, leader epoch and append time into batches; return their new headers."""
    placed = []
    for at, header, _ in incoming:
        assign(buffer, at, offset, epoch)
        if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            stamp_time(buffer, at, TimestampType.LOG_APPEND_TIME, now_ms)
        elif header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            stamp_time(buffer, at, TimestampType.CREATE_TIME, header.max_timestamp)
        placed.append(parse_header(buffer, at))
        offset = placed[-1].next_offset
    return placed
