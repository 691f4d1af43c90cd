"""The time, as a client lives by it."""

from __future__ import annotations

import time

__all__ = ["clock_ms"]

_WALL_NS = time.time_ns() - time.monotonic_ns()  # noqa: TID251


def clock_ms() -> int:
    """The time of day when we were started, and how long it has been since: nobody can set it back."""
    return (time.monotonic_ns() + _WALL_NS) // 1_000_000  # noqa: TID251
