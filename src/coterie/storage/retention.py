"""Which segments a log need not keep: those before its start, those beyond its size, those past their time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from coterie.storage.log_config import UNLIMITED, LogConfig
from coterie.storage.segment import Segment

__all__ = ["reasons_to_drop"]


def reasons_to_drop(
    segments: Sequence[Segment], config: LogConfig, log_start: int, up_to: int, now_ms: int
) -> list[str]:
    """One reason for each segment to go, from the oldest on; the last one may go too, if it is not empty."""
    last = len(segments) - 1
    size_from = [*accumulate((segment.size for segment in reversed(segments)), initial=0)][::-1]

    def is_before_start(slot: int) -> bool:
        return slot < last and segments[slot].next_offset <= log_start

    def is_too_much(slot: int) -> bool:
        return config.retention_bytes != UNLIMITED and size_from[slot + 1] >= config.retention_bytes

    def is_too_old(slot: int) -> bool:
        since = segments[slot].max_timestamp
        if since < 0:
            since = segments[slot].quiet_since_ms
        return config.retention_ms != UNLIMITED and now_ms - since > config.retention_ms

    rules: dict[str, Callable[[int], bool]] = {"before the log start": is_before_start}
    if config.deletes:
        rules |= {"retention.bytes": is_too_much, "retention.ms": is_too_old}
    reasons: list[str] = []
    for why, applies in rules.items():
        while (
            (slot := len(reasons)) <= last
            and segments[slot].next_offset <= up_to
            and (slot < last or segments[slot].size)
            and applies(slot)
        ):
            reasons.append(why)
    return reasons
