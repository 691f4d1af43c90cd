"""A batch that comes in gets its place in the log: offset, leader epoch and, if the topic wants that, the time."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.protocol.batch import BatchHeader, MutableBuffer, TimestampType, assign, parse_header, stamp_time
from coterie.storage.log_config import LogConfig
from coterie.storage.validation import Incoming

__all__ = ["place"]


def place(
    buffer: MutableBuffer, incoming: Sequence[Incoming], config: LogConfig, offset: int, epoch: int, now_ms: int
) -> list[BatchHeader]:
    """Batches that follow each other from `offset` on; the headers as they are now."""
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
