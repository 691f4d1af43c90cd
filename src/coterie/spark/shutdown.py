"""What must be done before a process ends: once, and to its end, however often the process is told to go.

Spark ends the process of a query with SIGTERM, closes its socket and sends SIGTERM again, all within a millisecond or
two. The second signal finds the first one's handler waiting for the group's answer, or Spark's own stop() that the
closed socket has led to: it must not cut off what they have begun.
"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

__all__ = ["Shutdown"]


class Shutdown:
    """Of the main thread, where Python runs signal handlers: each step may be interrupted by `_told_to_go`."""

    def __init__(self, words: Callable[[], None]) -> None:
        self._words = words
        self._is_begun = False
        self._is_over = False
        self._must_go = False

    def before_the_end(self) -> None:
        """At exit, or at SIGTERM, which then ends the process as it would have without us."""
        atexit.register(self.say)
        with suppress(ValueError):  # not the main thread: at exit it is
            signal.signal(signal.SIGTERM, self._told_to_go)

    def say(self) -> None:
        """By whoever comes first; for all others there is nothing left to do."""
        if self._is_begun:
            return
        self._is_begun = True
        try:
            self._words()
        finally:
            self._is_over = True
            if self._must_go:
                _go()

    def _told_to_go(self, _signal: int, _frame: FrameType | None) -> None:
        self._must_go = True  # whoever is saying it, below us on the stack, goes when it is said
        self.say()
        if self._is_over:
            _go()


def _go() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
