"""The threads that compute target assignments of consumer groups, so that an assignor does not stop the event loop."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from coterie.broker.broker_effects import Computation

COMPUTATIONS_AT_ONCE = 4
"""The number of threads that compute. A computation that cannot be interrupted occupies its thread for ever."""


class AssignorThreads:
    """Runs each `Computation` on a thread, and calls `handle` in the event loop with the event that it returns.

    `on_end` is called after each. The threads do not keep the process from ending.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, handle: Callable[[str, Any], None], on_end: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._handle = handle
        self._on_end = on_end
        self._waiting: deque[Computation] = deque()
        self._running = 0

    @property
    def is_busy(self) -> bool:
        """Return whether a computation runs or waits for a thread."""
        return bool(self._running or self._waiting)

    def run(self, computation: Computation) -> None:
        """Run it now, or when a thread is free."""
        self._waiting.append(computation)
        self._start_some()

    def _start_some(self) -> None:
        while self._waiting and self._running < COMPUTATIONS_AT_ONCE:
            self._running += 1
            computation = self._waiting.popleft()
            thread = threading.Thread(target=self._compute, args=(computation,), daemon=True)
            thread.start()
            self._loop.call_later(computation.timeout_ms / 1_000, _interrupt, thread)

    def _compute(self, computation: Computation) -> None:
        ended = None
        with suppress(SystemExit):
            ended = computation.run()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._computed, ended)

    def _computed(self, ended: Any) -> None:
        """Handle the event of a computation that has ended; an interrupted one has none."""
        self._running -= 1
        if ended is not None:
            self._handle("what follows a computation", ended)
        self._start_some()
        self._on_end()


def _interrupt(thread: threading.Thread) -> None:
    """Have a thread that still runs raise SystemExit, which ends it as soon as it runs Python code again."""
    if thread.is_alive() and thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
