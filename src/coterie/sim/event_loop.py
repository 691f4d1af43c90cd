"""An event loop of asyncio for one simulated process: its time is the host's virtual clock, its sockets are wires.

The clients that are shipped run on it as they are: tasks, timers, timeouts and cancellation are asyncio's own. A turn
of the loop is what follows from one event, until nothing is ready any more; it takes no time. What is ready runs in the
order in which it was asked for, so that the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from errno import ECONNREFUSED, ECONNRESET
from heapq import heapify, heappop, heappush
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

from coterie.sim.network import VirtualWire

if TYPE_CHECKING:
    from coterie.sim.clients import Client

T = TypeVar("T")
MOST_STEPS = 100_000
"""The most steps of a turn; one with more never ends."""
MOST_TURNS = 10_000
"""The most turns within one millisecond; a process with more waits in a busy loop."""
MOST_CANCELLED = 100
LAST_WORDS = 10
"""The number of times that the tasks of an ended process are cancelled: a task may wait again while it ends."""
_running_loop, _set_running_loop = asyncio._get_running_loop, asyncio._set_running_loop  # noqa: SLF001  as asyncio's loops
ROUNDING_MS = 0.01
"""Times are seconds in floating point here, and milliseconds everywhere else."""


class VirtualHandle:
    """A call that is to be made: what asyncio knows as a Handle.

    It runs in no context of its own, as nothing here has context variables.
    """

    __slots__ = ("about", "act")

    def __init__(self, act: Callable[..., object], about: Sequence[Any]) -> None:
        self.act: Callable[..., object] | None = act
        """None: it was cancelled."""
        self.about = about

    def cancel(self) -> None:
        self.act = None
        self.about = ()

    def cancelled(self) -> bool:
        return self.act is None


class VirtualTimer(VirtualHandle):
    """A call at a time: what asyncio knows as a TimerHandle."""

    __slots__ = ("_when_s", "loop")

    def __init__(self, act: Callable[..., object], about: Sequence[Any], loop: VirtualEventLoop, when_s: float) -> None:
        self.act = act
        self.about = about
        self.loop: VirtualEventLoop | None = loop
        """None: it is not among the loop's timers any more."""
        self._when_s = when_s

    def when(self) -> float:
        return self._when_s

    def cancel(self) -> None:
        if self.act is not None:
            self.act = None
            self.about = ()
            if self.loop is not None:
                self.loop.timer_cancelled()


class VirtualEventLoop(asyncio.AbstractEventLoop):
    def __init__(self, client: Client) -> None:
        self.client = client
        self._ready: deque[VirtualHandle] = deque()
        self._timers: list[tuple[int, int, VirtualTimer]] = []
        self._timers_made = 0
        self._cancelled = 0
        """The number of timers that were cancelled."""
        self._alarm_ms: int | None = None
        self._failure: BaseException | None = None
        self._is_ended = False
        self._turn_ms: int | None = None
        """The time of the turn that is taken now."""
        self._last_turn_ms = 0
        self._turns = 0
        """The number of turns at the time of the last one."""

    def __len__(self) -> int:
        """Return the number of timers that are set."""
        return len(self._timers) - self._cancelled

    # --- turns --------------------------------------------------------------------------------------------------------

    def run(self, act: Callable[..., object] | None = None, *about: Any) -> None:
        """Take a turn: do this, then what is due, then all that follows from it."""
        if self._is_ended:
            return
        client, timers, ready = self.client, self._timers, self._ready
        now_ms = client.now_ms
        if now_ms != self._last_turn_ms:
            self._last_turn_ms, self._turns = now_ms, 0
        self._turns += 1
        if self._turns > MOST_TURNS:
            client.world.fails("time goes on", f"{client.name} took {self._turns} turns within a millisecond")
        before, outer_ms = _running_loop(), self._turn_ms
        _set_running_loop(self)
        self._turn_ms = now_ms
        try:
            if act is not None:
                act(*about)
            while timers and timers[0][0] <= now_ms:
                timer = heappop(timers)[2]
                timer.loop = None
                if timer.act is not None:
                    ready.append(timer)
                else:
                    self._cancelled -= 1
            if ready:
                self._run_ready()
        finally:
            self._turn_ms = outer_ms
            _set_running_loop(before)
        if client.world.broken is not None:
            raise client.world.broken
        if self._failure is not None:
            raise self._failure
        while timers and timers[0][2].act is None:
            heappop(timers)[2].loop = None
            self._cancelled -= 1
        if timers and (self._alarm_ms is None or timers[0][0] < self._alarm_ms):
            self._alarm_ms = at_ms = timers[0][0]
            client.at(at_ms, self._ring, at_ms)

    def _run_ready(self) -> None:
        ready, steps = self._ready, 0
        while ready:
            handle = ready.popleft()
            act = handle.act
            if act is not None:
                try:
                    act(*handle.about)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001  as asyncio's handles do
                    self.call_exception_handler({"exception": error})
            steps += 1
            if steps > MOST_STEPS:
                self.client.world.fails("turns end", f"{self.client.name} took {steps} steps in one turn: {act!r}")

    def _ring(self, at_ms: int) -> None:
        if self.client.is_paused:
            self.client.misses(self._ring, at_ms)
        elif at_ms == self._alarm_ms:  # else one that rang earlier took its place
            self._alarm_ms = None
            self.run()

    def end(self) -> None:
        """The process has ended. End its tasks now, so that none is left to the garbage collector."""
        before = _running_loop()
        assert before is not self, "a process is ended from outside"
        self._is_ended = True
        _set_running_loop(self)
        try:
            for _ in range(LAST_WORDS):
                tasks = asyncio.all_tasks(self)
                for task in tasks:
                    task.cancel()
                self._run_ready()
                if not tasks:
                    break
        finally:
            _set_running_loop(before)
            self._timers.clear()
            self._cancelled = 0

    # --- what asyncio asks of a loop ----------------------------------------------------------------------------------

    def time_ms(self) -> int:
        """Return the process's time, which stands still during a turn."""
        return self.client.now_ms if self._turn_ms is None else self._turn_ms

    def time(self) -> float:
        return (self.client.now_ms if self._turn_ms is None else self._turn_ms) / 1000

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,  # noqa: ARG002
    ) -> VirtualHandle:
        handle = VirtualHandle(callback, args)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,  # noqa: ARG002
    ) -> VirtualTimer:
        now_ms = self.client.now_ms if self._turn_ms is None else self._turn_ms
        return self._set_timer(now_ms / 1000 + delay, callback, args)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,  # noqa: ARG002
    ) -> VirtualTimer:
        return self._set_timer(when, callback, args)

    def _set_timer(self, when: float, callback: Callable[..., object], args: Sequence[Any]) -> VirtualTimer:
        timer = VirtualTimer(callback, args, self, when)
        self._timers_made = number = self._timers_made + 1
        heappush(self._timers, (ceil(when * 1000 - ROUNDING_MS), number, timer))
        return timer

    def timer_cancelled(self) -> None:
        """Drop cancelled timers when they are more than the others, as asyncio's own loops do."""
        self._cancelled += 1
        if self._cancelled > MOST_CANCELLED and self._cancelled > len(self._timers) / 2:
            self._timers[:] = [each for each in self._timers if each[2].act is not None]
            heapify(self._timers)
            self._cancelled = 0

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, T], **how: Any) -> asyncio.Task[T]:  # type: ignore[override]
        return asyncio.Task(coro, loop=self, **how)

    def is_running(self) -> bool:
        return _running_loop() is self

    def is_closed(self) -> bool:
        return self._is_ended

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An exception that was not caught is a bug of the shipped code: the run ends with it."""
        if not self._is_ended and self._failure is None:
            self._failure = context.get("exception") or AssertionError(context["message"])

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], _host: str, port: int, **_how: Any
    ) -> tuple[Transport, asyncio.BaseProtocol]:
        client = self.client
        wire = client.world.network.open(client, client.world.machine, port)
        transport = Transport(self, wire)
        try:
            await transport.connecting
        except BaseException:
            transport.abort()
            raise
        transport.protocol = protocol_factory()
        transport.protocol.connection_made(transport)
        return transport, transport.protocol


class Transport(asyncio.Transport):
    """A process's side of a connection."""

    def __init__(self, loop: VirtualEventLoop, wire: VirtualWire) -> None:
        super().__init__()
        self._loop = loop
        self._wire = wire
        self._network = loop.client.world.network
        self._is_closing = False
        self.connecting = loop.create_future()
        self.protocol: Any = None
        wire.transport = self

    # what the client does

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing and self._loop.client.is_alive:
            self._network.send(self._wire, bytes(data))

    def writelines(self, list_of_data: Sequence[bytes | bytearray | memoryview]) -> None:  # type: ignore[override]
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self._loop.client.is_alive:
            self._network.hang_up(self._wire)
        if self.connecting.done():
            self._loop.call_soon(self._lost, None)

    abort = close

    def _lost(self, error: Exception | None) -> None:
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    # what the network does, in a turn of the loop

    def connected(self) -> None:
        if not self.connecting.done():
            self.connecting.set_result(None)

    def received(self, data: bytes) -> None:
        protocol = self.protocol
        if not self._is_closing:
            buffer = protocol.get_buffer(-1)
            size = len(data)
            if size <= len(buffer):  # as most do
                buffer[:size] = data
                protocol.buffer_updated(size)
                return
        rest = memoryview(data)
        while rest and not self._is_closing:
            buffer = protocol.get_buffer(-1)
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            protocol.buffer_updated(size)
            rest = rest[size:]

    def reset(self) -> None:
        """The other side has closed it, or was not there."""
        if not self.connecting.done():
            self.connecting.set_exception(ConnectionRefusedError(ECONNREFUSED, "refused"))
        elif not self._is_closing:
            self._is_closing = True
            self._network.hang_up(self._wire)
            self._lost(ConnectionResetError(ECONNRESET, "reset"))
