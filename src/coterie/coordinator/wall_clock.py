"""The wall clock, as far as rules know it: how far it is ahead of the time that events come with.

Rules count by `now_ms`, which never jumps: sessions, timers and durations. Records and facts are stamped with
`at(now_ms)`, the wall clock's time. What is deleted for its age is judged by `surely(now_ms)`: the clock may have been
set forward by mistake, and what was deleted does not come back when it is set right.
"""

from __future__ import annotations

STEP_MS = 1_000
"""A clock that jumps by more than this between two readings was set; one that is slewed moves less."""
DOUBT_MS = 60 * 60 * 1_000
"""The time for which a clock that was set forward is not trusted where data would be deleted."""


class WallClock:
    __slots__ = ("_ahead_before_ms", "_doubted_until_ms", "ahead_ms")

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms
        self._ahead_before_ms = ahead_ms
        self._doubted_until_ms: int | None = None

    def at(self, now_ms: int) -> int:
        return now_ms + self.ahead_ms

    def surely(self, now_ms: int) -> int:
        """Return a time that has passed for certain, even if the clock was set forward by mistake in the last hour."""
        if self._doubted_until_ms is not None and now_ms < self._doubted_until_ms:
            return now_ms + min(self.ahead_ms, self._ahead_before_ms)
        return now_ms + self.ahead_ms

    def read(self, ahead_ms: int, now_ms: int) -> int:
        """Follow the wall clock, which is so far ahead now. By how much it was set; 0 if it was not."""
        by_ms = ahead_ms - self.ahead_ms
        is_doubted = self._doubted_until_ms is not None and now_ms < self._doubted_until_ms
        if by_ms > STEP_MS:
            if not is_doubted:
                self._ahead_before_ms = self.ahead_ms
            self._doubted_until_ms = now_ms + DOUBT_MS
        self.ahead_ms = ahead_ms
        return by_ms if abs(by_ms) > STEP_MS else 0

    def was_away(self, ms: int) -> None:
        """Note that `now_ms` stood still for this long while the wall clock ran."""
        self.ahead_ms += ms
        self._ahead_before_ms += ms
