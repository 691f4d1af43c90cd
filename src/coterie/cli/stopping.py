"""Signals that end a loop after its step, so that Ctrl-C loses nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Stop:
    def __init__(self) -> None:
        self.asked = False

    def __call__(self, _number: int, _frame: object) -> None:
        self.asked = True


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Let SIGINT and SIGTERM end a loop after its step."""
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
