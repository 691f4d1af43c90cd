"""A change of what is on disk, in two steps, so that whoever serves clients need not wait for it.

    change = directory.create_topic(topic, now_ms)     # what is to be done, captured now
    change.run()                                       # slow, on any thread, one change at a time
    change.done()                                      # what follows in memory, on the thread that owns the logs

If `run` raises, the disk refused and nothing has changed: `done` is not called then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Change"]

T = TypeVar("T")
R = TypeVar("R")


class Change(Generic[T]):
    __slots__ = ("_found", "_take", "_work")

    def __init__(self, work: Callable[[], R], take: Callable[[R], T]) -> None:
        """`take` gets what `work` returned."""
        self._work = work
        self._take: Callable[[Any], T] = take
        self._found: Any = None

    def run(self) -> None:
        self._found = self._work()

    def done(self) -> T:
        return self._take(self._found)
