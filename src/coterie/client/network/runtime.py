"""Everything that a client runs on: the event loop and its thread, tasks and timers, the time, the random source, and
the class of connections.

The simulator gives a client another `Runtime`, and an event loop with a virtual clock (`sim/event_loop.py`), and so
runs the code that is shipped.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from inspect import isfunction
from math import ceil
from random import Random  # noqa: TID251  jitter: so that clients that failed together do not return together
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from coterie.client.network.connection import BrokerConnection
from coterie.errors import IllegalStateError, RequestTimedOutError
from coterie.structs import DataStruct

_WALL_NS = time.time_ns() - time.monotonic_ns()  # noqa: TID251


def clock_ms() -> int:
    """Return the time of day when the process started, plus the time since: setting the clock does not change it."""
    return (time.monotonic_ns() + _WALL_NS) // 1_000_000  # noqa: TID251


class Runtime(DataStruct, frozen=True):
    clock_ms: Callable[[], int]
    """Never goes back: timers and deadlines count by it."""
    wall_ms: Callable[[], int]
    """The time of day, as the system has it now: records carry it."""
    rng: Random
    connection: type[BrokerConnection]


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


REAL = Runtime(clock_ms, _wall_ms, Random(), BrokerConnection)  # noqa: S311  not the module's own, which users may have seeded


# --- tasks and timers -------------------------------------------------------------------------------------------------


async def within(timeout_ms: float, asked: Coroutine[Any, Any, Any]) -> Any:
    """The answer; the time it takes to connect counts too."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await asked
    except TimeoutError:
        raise RequestTimedOutError(f"no answer within {timeout_ms:.0f} ms") from None


TICK_MS = 100
LONG_MS = 2_000
"""A timer this long may ring up to `TICK_MS` late."""


class SharedTicks:
    """The long timers of all clients on an event loop. They ring at multiples of `TICK_MS`, many at one wake-up.

    To wake up costs more than a heartbeat: a thousand members would wake up for each of theirs. While no timer is due
    nothing wakes up.
    """

    def __init__(self) -> None:
        self._ticks: dict[int, list[Tick]] = {}

    def call_after(self, delay_s: float, then: Callable[..., None], *args: object) -> Tick:
        """Call it after the delay, and up to `TICK_MS` later."""
        loop = asyncio.get_running_loop()
        number = ceil((loop.time() + delay_s) * 1000 / TICK_MS)
        timer = Tick(then, args)
        those = self._ticks.get(number)
        if those is not None:
            those.append(timer)
        else:
            self._ticks[number] = [timer]
            loop.call_at(number * TICK_MS / 1000, self._ring, number)
        return timer

    def _ring(self, number: int) -> None:
        for timer in self._ticks.pop(number):
            if timer.then is not None:
                try:
                    timer.then(*timer.args)
                except Exception as error:  # noqa: BLE001  the other timers are not to blame
                    context = {"message": f"a timer failed: {timer.then!r}", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(context)


class Tick:
    """A timer of `SharedTicks`."""

    __slots__ = ("args", "then")

    def __init__(self, then: Callable[..., None], args: tuple[object, ...]) -> None:
        self.then: Callable[..., None] | None = then
        self.args = args

    def cancel(self) -> None:
        self.then, self.args = None, ()


_ticks: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedTicks] = WeakKeyDictionary()


def shared_ticks() -> SharedTicks:
    """Return those of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _ticks.get(loop)
    if found is None:
        found = _ticks[loop] = SharedTicks()
    return found


class BackgroundTasks:
    """The tasks of one client. It must be created in the event loop that it runs on."""

    def __init__(
        self, clock_ms: Callable[[], int], on_mistake: Callable[[Exception], None], ticks: SharedTicks | None = None
    ) -> None:
        """`on_mistake` is called with the error of a task that failed: it would look like a topic without records.

        With `ticks`, timers of `LONG_MS` and more are those.
        """
        self.loop = asyncio.get_running_loop()
        self._ticks = ticks
        self._clock_ms = clock_ms
        self.is_closed = False
        self._on_mistake = on_mistake
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timers: dict[str, asyncio.TimerHandle | Tick] = {}

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

    def arm(self, key: str, at_ms: float, then: Callable[..., None], *about: object) -> None:
        """Start a timer, which calls `then(*about)`. A timer with the same key is replaced."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if self.is_closed:
            return
        delay_ms = at_ms - self._clock_ms()
        if self._ticks is not None and delay_ms >= LONG_MS:
            self._timers[key] = self._ticks.call_after(delay_ms / 1000, self._rang, key, then, *about)
        else:
            self._timers[key] = self.loop.call_later(max(delay_ms, 0) / 1000, self._rang, key, then, *about)

    def _rang(self, key: str, then: Callable[..., None], *about: object) -> None:
        del self._timers[key]
        then(*about)

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


# --- the thread that the synchronous clients share --------------------------------------------------------------------

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
