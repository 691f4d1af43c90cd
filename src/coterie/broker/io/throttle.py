"""Long work of one thread that leaves the interpreter to others: a little work, then a rest, twice as long.

Python runs one thread at a time, and hands over only every five milliseconds unless a thread stops by itself. So who
works in the background stops much earlier: nobody who is to be answered waits for more than a step or two.
"""

from __future__ import annotations

import time

__all__ = ["Throttle"]

WORK_S = 0.001
REST_S = 0.002


class Throttle:
    """Called between steps, by the thread that works."""

    def __init__(self) -> None:
        self._rested_at = 0.0

    def __call__(self) -> None:
        if time.thread_time() - self._rested_at >= WORK_S:
            time.sleep(REST_S)
            self._rested_at = time.thread_time()
