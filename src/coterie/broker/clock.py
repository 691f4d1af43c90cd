"""The time, as a broker lives by it."""

from __future__ import annotations

import time
from time import clock_gettime_ns as _gettime_ns

__all__ = ["clock_ms"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_WALL_NS = time.time_ns() - time.clock_gettime_ns(_CLOCK)


def clock_ms() -> int:
    """The time of day when we were started, and how long it has been since.

    So records have real timestamps, and nobody's session ends because somebody has set the clock.
    """
    return (_gettime_ns(_CLOCK) + _WALL_NS) // 1_000_000
