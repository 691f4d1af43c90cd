"""The two times of a broker: its own, which timers go by, and the wall clock's, which it writes into logs and facts.

Its own time starts at the wall clock's time and follows the monotonic clock, so no session expires because the clock
was set. It stands still while the loop cannot run: the process was stopped, the machine slept (the monotonic clock does
not count that by itself), or a disk hung. So every session, and every other deadline, is longer by that time.

For tests, `COTERIE_TEST_CLOCK=OFFSET_MS` or `OFFSET_MS,PPM` in the environment makes the wall clock of the broker, and
only of the broker, wrong by that many milliseconds, and faster by that many parts in a million:

    COTERIE_TEST_CLOCK=36000000,500 make test

As with Kafka, a clock that is a day ahead forgets idempotent producers (`producer.id.expiration.ms`), and one that is
more than an hour behind refuses records (`message.timestamp.after.max.ms`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

from coterie.coordinator.wall_clock import WallClock

__all__ = ["AWAY_MS", "LOOK_EVERY_MS", "Clock", "wall_ms"]

LOOK_EVERY_MS = 200
"""The loop reads its clock at least this often, if it can do anything at all."""
AWAY_MS = 1_000
"""The process was suspended if the loop has not read the clock for this long."""
_monotonic_ns = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
_OFFSET_MS, _PPM = [*map(int, os.environ.get("COTERIE_TEST_CLOCK", "0").split(",")), 0][:2]
_BEGAN_NS = _monotonic_ns()


def wall_ms() -> int:
    true_ms = time.time_ns() // 1_000_000
    if not (_OFFSET_MS or _PPM):
        return true_ms
    return true_ms + _OFFSET_MS + (_monotonic_ns() - _BEGAN_NS) * _PPM // 10**12


class Clock:
    """The clock of one event loop. Other threads must not read it."""

    __slots__ = ("_ahead_ms", "_last_ms", "_monotonic_ns", "_wall_ms", "wall")

    def __init__(self, monotonic_ns: Callable[[], int] = _monotonic_ns, wall_ms: Callable[[], int] = wall_ms) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ms = wall_ms
        self.wall = WallClock()
        self._last_ms = monotonic_ns() // 1_000_000
        self._ahead_ms = wall_ms() - self._last_ms
        """The difference between the broker's time and the monotonic clock."""

    def now_ms(self) -> int:
        """The broker's own time."""
        at_ms = self._monotonic_ns() // 1_000_000
        if at_ms - self._last_ms > AWAY_MS:
            self._was_away(at_ms - self._last_ms)
        self._last_ms = at_ms
        return at_ms + self._ahead_ms

    def seconds_until(self, at_ms: int) -> float:
        """Return how long the loop has to wait for a time of the broker; 0 if it has passed."""
        return max(0, at_ms - self.now_ms()) / 1000

    def _was_away(self, ms: int) -> None:
        self._ahead_ms -= ms
        self.wall.was_away(ms)

    def look(self) -> int:
        """Follow the wall clock. Return by how much it was set since the last call; 0 if it was not."""
        now_ms = self.now_ms()
        return self.wall.read(self._wall_ms() - now_ms, now_ms)
