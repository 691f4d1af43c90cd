"""The thread that waits for the disk: flushes and changes of the data directory, in the order of asking.

An executor makes a future and a lock for each of them, which costs more CPU than what a small flush has to do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

_Work = tuple[Callable[[], Any], Callable[[Any], None]]


class DiskThread:
    """Runs work on one thread, and hands what it returns to a function in the event loop.

    Work must not raise; if it does, the event loop hears of it, and the thread goes on. The thread starts with the
    first work, and does not keep the process from ending.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Have `work` done after all that was asked for before; then `then` is called with what it returned."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="coterie-disk", daemon=True)
            self._thread.start()
        self._waiting.put((work, then))

    def finish(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Have `work` done after all that was asked for before. The future has its end, or the error that it raised."""
        done: asyncio.Future[None] = self._loop.create_future()

        def ended(error: Exception | None) -> None:
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.run(lambda: _error_of(work), ended)
        return done

    def shutdown(self) -> None:
        """Wait until all is done that was asked for. What is asked for later is not done."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()

    def _run(self) -> None:
        soon, waiting = self._loop.call_soon_threadsafe, self._waiting
        while (item := waiting.get()) is not None:
            work, then = item
            try:
                result = work()
            except Exception as error:  # noqa: BLE001
                then, result = self._failed, error
            with suppress(RuntimeError):  # the loop is closed
                soon(then, result)

    def _failed(self, error: Exception) -> None:
        self._loop.call_exception_handler({"message": "work of the disk failed", "exception": error})


def _error_of(work: Callable[[], None]) -> Exception | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001  raised again where it is waited for
        return error
    return None
