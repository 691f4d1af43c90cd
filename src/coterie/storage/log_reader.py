"""Reading from the segments of a log, by offset and by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.batch import BatchError
from coterie.storage.log_config import LogConfig
from coterie.storage.log_errors import LogReadError, RefusedError
from coterie.storage.segment import Segment, TimestampedOffset
from coterie.storage.segment_files import LOG
from coterie.storage.validation import OPENED_AT_ONCE


def slot_of(segments: Sequence[Segment], offset: int) -> int:
    """Return the index of the segment that has the offset, or would have it."""
    return max(bisect_right(segments, offset, key=attrgetter("base_offset")) - 1, 0)


def read_batches(
    segments: Sequence[Segment], path: str, from_offset: int, max_bytes: int, up_to: int, *, gapless: bool
) -> bytes:
    """Return whole batches from one segment, as `PartitionLog.read` does; the log has `from_offset`."""
    segment = segments[0]
    try:
        for slot in range(slot_of(segments, from_offset), len(segments)):
            segment = segments[slot]
            if segment.base_offset >= up_to:
                break
            data = segment.read(from_offset, max_bytes, up_to, gapless=gapless)
            if data or segment.next_offset >= up_to:
                return data
    except OSError as error:
        raise LogReadError.of(f"cannot read {path} at offset {from_offset}", error) from error
    except BatchError as error:
        raise RefusedError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{segment.path(LOG)} is damaged: {error}. Offset {from_offset} of {path} cannot be read; nothing is cut "
            "or skipped. Bring the file back from a copy, or stop the broker and run `coterie repair` on its data",
        ) from error
    return b""  # compaction may leave a segment with nothing at or after the offset: the next one has it


def find_timestamp(
    segments: Sequence[Segment], path: str, config: LogConfig, timestamp: int, log_start_offset: int
) -> TimestampedOffset | None:
    """Return the first record at or after `log_start_offset` that is not older than `timestamp`."""
    limit = min(config.max_decompressed_bytes, OPENED_AT_ONCE)
    try:
        for segment in segments:
            if segment.max_timestamp >= timestamp and segment.next_offset > log_start_offset:
                found = segment.find_timestamp(timestamp, log_start_offset, limit)
                if found is not None:
                    return found
    except OSError as error:
        raise LogReadError.of(f"cannot look for a timestamp in {path}", error) from error
    except MalformedError as error:  # records are not read on append, so a producer may have sent invalid ones
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, f"{path} has a batch without sense: {error}") from None
    return None
