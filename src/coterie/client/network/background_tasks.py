"""The tasks and timers of one client on an event loop, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from coterie.errors import RequestTimedOutError

__all__ = ["BackgroundTasks", "within"]


async def within(timeout_ms: float, asked: Coroutine[Any, Any, Any]) -> Any:
    """The answer; the time it takes to connect counts too."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await asked
    except TimeoutError:
        raise RequestTimedOutError(f"no answer within {timeout_ms:.0f} ms") from None


class BackgroundTasks:
    """The tasks of one client. It must be created in the event loop that it runs on."""

    def __init__(self, clock_ms: Callable[[], int], on_mistake: Callable[[Exception], None]) -> None:
        """`on_mistake` is called with the error of a task that failed: it would look like a topic without records."""
        self.loop = asyncio.get_running_loop()
        self._clock_ms = clock_ms
        self.is_closed = False
        self._on_mistake = on_mistake
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        if self.is_closed:
            work.close()
            return
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not self.is_closed:
            self._on_mistake(error)

    def arm(self, key: str, at_ms: float, then: Callable[[], None]) -> None:
        """Start a timer. A timer with the same key is replaced."""
        self.disarm(key)
        if not self.is_closed:
            self._timers[key] = self.loop.call_later(max(at_ms - self._clock_ms(), 0) / 1000, self._rang, key, then)

    def _rang(self, key: str, then: Callable[[], None]) -> None:
        del self._timers[key]
        then()

    def disarm(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def close(self) -> None:
        """Cancel all tasks and timers."""
        self.is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
