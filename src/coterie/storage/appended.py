"""What whoever appends to a log is told."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Appended"]


class Appended(NamedTuple):
    """Where a batch is in the log, or was before if it is a duplicate."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 unless the topic uses append time."""
    log_start: int
    is_duplicate: bool = False
