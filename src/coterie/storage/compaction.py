"""Which logs are worth compacting, how far, and which of their segments become one: Kafka's rules.

The segment that is written to is never compacted. Nor is what is not durable, what a transaction that is open may still
undo, and what is younger than `min.compaction.lag.ms`. A log is worth it when enough of the rest was never compacted
(`min.cleanable.dirty.ratio`), or when that has waited for too long (`max.compaction.lag.ms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from coterie.protocol.batch import HEADER_SIZE
from coterie.storage.index import TIME_ROW
from coterie.storage.log_config import UNLIMITED, LogConfig
from coterie.storage.segment import MAX_RELATIVE, Segment

__all__ = ["Compactable", "compactable", "first_dirty_offset", "grouped", "is_worth_rolling"]


@dataclass(frozen=True, slots=True)
class Compactable:
    segments: list[Segment]
    """From the log's beginning; they reach to before `bound`."""
    first_dirty: int
    bound: int
    dirty_ratio: float
    is_worth_it: bool


def first_dirty_offset(compacted_to: int, log_start: int, log_end: int) -> int:
    """Where compaction has to go on: where it ended, unless the log was cut back behind that or begins later now."""
    return compacted_to if log_start <= compacted_to <= log_end else log_start


def compactable(
    segments: Sequence[Segment], config: LogConfig, first_dirty: int, stable_end: int, now_ms: int
) -> Compactable | None:
    """What of a log can be compacted; None if that is nothing. Before `stable_end` it is durable and decided upon."""

    def may_be(segment: Segment) -> bool:
        is_young = config.min_compaction_lag_ms and segment.max_timestamp > now_ms - config.min_compaction_lag_ms
        is_dirty = segment.next_offset > first_dirty
        return not segment.is_open and segment.next_offset <= stable_end and not (is_young and is_dirty)

    ready = list(takewhile(may_be, segments[:-1]))
    dirty = [segment for segment in ready if segment.next_offset > first_dirty]
    size = sum(segment.size for segment in ready)
    dirty_size = sum(segment.size for segment in dirty)
    if not dirty_size:
        return None
    ratio = dirty_size / size
    is_worth_it = ratio > config.min_cleanable_dirty_ratio or _has_waited(dirty, config, now_ms)
    return Compactable(ready, first_dirty, ready[-1].next_offset, ratio, is_worth_it)


def _has_waited(dirty: Sequence[Segment], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms >= now_ms:
        return False
    since = [stamp for stamp in (segment.first_stamp() for segment in dirty) if stamp > 0]
    return bool(since) and min(since) < now_ms - config.max_compaction_lag_ms


def is_worth_rolling(segments: Sequence[Segment], config: LogConfig, first_dirty: int) -> bool:
    """Ours: whether the segment that is written to should end, so that it can be compacted.

    It should if compaction would be worth it then, and there is something to gain.
    """
    active = segments[-1]
    if config.roll_dirty_bytes == UNLIMITED or active.size < config.roll_dirty_bytes:
        return False
    dirty_size = sum(segment.size for segment in segments if segment.next_offset > first_dirty)
    return dirty_size / sum(segment.size for segment in segments) > config.min_cleanable_dirty_ratio


def grouped(segments: Sequence[Segment], config: LogConfig) -> list[list[Segment]]:
    """Neighbours that fit into one segment together, even if nothing of them goes."""
    groups: list[list[Segment]] = []
    for segment in segments:
        if groups and _fit([*groups[-1], segment], config):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fit(segments: Sequence[Segment], config: LogConfig) -> bool:
    size = sum(segment.size for segment in segments)
    rows = size // max(config.index_interval_bytes, HEADER_SIZE) + 2  # never more, and one when it is sealed
    offsets = segments[-1].next_offset - segments[0].base_offset
    return (
        size <= config.segment_bytes and rows * TIME_ROW.size <= config.segment_index_bytes and offsets <= MAX_RELATIVE
    )
