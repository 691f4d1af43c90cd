"""The threads that wait for the disk: flushes and changes of the data directory, in the order of asking.

An executor makes a future and a lock for each of them, which costs more CPU than what a small flush has to do.

Most flushes are one write of the journal. The compiled `DiskWriter` makes it on a thread that never waits for the
interpreter's lock, while the Python thread has nothing to do. Where it was not compiled, the Python thread does all.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from queue import SimpleQueue
from typing import Any, Protocol

from coterie.broker.broker_effects import Flush, FlushEnded
from coterie.storage import PreparedWrite

_Work = tuple[Callable[[], Any], Callable[[Any], None]]


class DiskWriter(Protocol):
    """The class of that name in `storage/_fast_disk.pyx`."""

    @property
    def fileno(self) -> int: ...

    def begin(self, synced: PreparedWrite, unsynced: PreparedWrite | None) -> None: ...

    def ended(self) -> tuple[int, int]: ...

    def close(self) -> None: ...


def _new_disk_writer() -> DiskWriter | None:
    if os.environ.get("COTERIE_PURE", "0") in {"", "0"}:
        with suppress(ImportError):  # built where there was no compiler
            return import_module("coterie.storage._fast_disk").DiskWriter()  # type: ignore[no-any-return]
    return None


class DiskThread:
    """Runs work on one thread, and hands what it returns to a function in the event loop.

    Work must not raise; if it does, the event loop hears of it, and the thread goes on. The thread starts with the
    first work, and does not keep the process from ending.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._in_thread = 0
        """Work that the Python thread has, or will have."""
        self._writer = _new_disk_writer()
        self._writing: tuple[Flush, Callable[[FlushEnded], None]] | None = None
        """The flush whose journal the writer is writing."""
        self._held: list[_Work] = []
        """Work that was asked for since; it comes after that flush."""
        if self._writer is not None:
            loop.add_reader(self._writer.fileno, self._written)

    def flush(self, flush: Flush, then: Callable[[FlushEnded], None]) -> None:
        """Have a flush done after all that was asked for before; then `then` is called with its end."""
        if self._writer is not None and not self._in_thread and self._writing is None:
            prepared = None
            with suppress(OSError):  # `run` meets the same error, and reports it
                prepared = flush.prepare()
            if prepared is not None:
                self._writing = flush, then
                self._writer.begin(*prepared)
                return
        self.run(flush.run, then)

    def _written(self) -> None:
        assert self._writer is not None and self._writing is not None, "a write that nobody asked for"
        flush, then = self._writing
        ended = flush.ended(*self._writer.ended())
        self._writing = None
        held, self._held = self._held, []
        for work, afterwards in held:
            self.run(work, afterwards)
        then(ended)

    def run(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Have `work` done after all that was asked for before; then `then` is called with what it returned."""
        if self._writing is not None:
            self._held.append((work, then))
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="coterie-disk", daemon=True)
            self._thread.start()
        self._in_thread += 1
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
        if self._writer is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.remove_reader(self._writer.fileno)
            self._writer.close()
            self._writer = self._writing = None
            for work, then in self._held:
                self.run(work, then)
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
                soon(self._ended, then, result)

    def _ended(self, then: Callable[[Any], None], result: Any) -> None:
        self._in_thread -= 1
        then(result)

    def _failed(self, error: Exception) -> None:
        self._loop.call_exception_handler({"message": "work of the disk failed", "exception": error})


def _error_of(work: Callable[[], None]) -> Exception | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001  raised again where it is waited for
        return error
    return None
