"""The thread with an event loop that the synchronous clients share: one a process, started when it is first needed."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from inspect import isfunction
from typing import Any, TypeVar

from coterie.errors import IllegalStateError

__all__ = ["FORKED", "Background", "background", "documented_by"]

FORKED = (
    "this client was made before the process forked, and its connections belong to the parent: make a new one in the "
    "child"
)
T = TypeVar("T")


class Background:
    """A daemon thread: it never keeps a process from ending."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="coterie-client", daemon=True)
        self._thread.start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def is_here(self) -> bool:
        """True if the caller is in that thread. Waiting here would stop all clients of the process."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for the coroutine and return its result. An interrupt (Ctrl-C) ends both."""
        problem = self._why_not()
        if problem:
            coroutine.close()
            raise IllegalStateError(problem)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _why_not(self) -> str:
        if os.getpid() != self._pid:
            return FORKED
        if self.is_here:
            return (
                "a synchronous client was called from the thread that does its work, which would wait for itself: "
                "use the Async class there"
            )
        return ""


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop: uvloop's if it is installed, else asyncio's own, which is slower."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def documented_by(other: type) -> Callable[[type[T]], type[T]]:
    """Complete the docstrings of a synchronous client, which are one line, by those of the asynchronous one."""

    def complete(kind: type[T]) -> type[T]:
        for name, method in vars(kind).items():
            whole = getattr(getattr(other, name, None), "__doc__", None) or ""
            if isfunction(method) and method.__doc__ and whole.startswith(method.__doc__):
                method.__doc__ = whole
        return kind

    return complete


_lock = threading.Lock()
_shared: Background | None = None


def background() -> Background:
    """The one of this process."""
    global _shared  # noqa: PLW0603  one a process is the point
    with _lock:
        if _shared is None:
            _shared = Background()
        return _shared


def _forget_in_child() -> None:
    """A fork copies memory and not threads: the child starts its own when it needs one."""
    global _lock, _shared  # noqa: PLW0603
    _lock = threading.Lock()
    _shared = None


os.register_at_fork(after_in_child=_forget_in_child)
