"""The asyncio there is: sockets, the clock, and the thread that waits for the disk. It carries; the node decides."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import clock_gettime_ns as _gettime_ns
from traceback import format_exc
from typing import Any, cast

from coterie.broker.calls import Close, Connection, Do, Effect, Flush, FlushEnded, Send, Work, WorkEnded
from coterie.broker.facts import ConnectionDropped, Trouble
from coterie.broker.node import Node
from coterie.broker.quick_heartbeat import HEARTBEAT, QuickHeartbeat
from coterie.errors import CoterieError, MalformedError
from coterie.facts import Fact
from coterie.wire.frames import FrameCutter

__all__ = ["Server", "address_text", "clock_ms"]

WAITING_BYTES = 1 << 20
"""Of requests that stand behind the one under way: with more, or more requests, we stop reading for a while."""
WRITE_BUFFER = 1 << 20
STOP_GRACE_S = 5.0
THIS_MACHINE = "Give a name or an address of this machine, such as 127.0.0.1"
HINTS = {
    errno.EADDRNOTAVAIL: THIS_MACHINE,
    errno.EACCES: "Ports below 1024 need privileges; take another port, 0 takes a free one",
}
EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104  to be told apart, not to be bound to


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_WALL_NS = time.time_ns() - time.clock_gettime_ns(_CLOCK)


def clock_ms() -> int:
    """The time of day when we were started, and how long it has been since.

    So records have real timestamps, and nobody's session ends because somebody has set the clock.
    """
    return (_gettime_ns(_CLOCK) + _WALL_NS) // 1_000_000


class Link(asyncio.Protocol):
    """One client's socket."""

    __slots__ = ("_cutter", "_is_paused", "_quick_heartbeat", "_server", "connection", "heard_ms", "transport")

    def __init__(self, server: Server) -> None:
        self._server = server
        self._cutter = FrameCutter(server.max_request_bytes)
        self._quick_heartbeat = QuickHeartbeat()
        self._is_paused = False
        self.connection = Connection("", self)
        self.heard_ms = clock_ms()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop has a class of its own
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER)
        peer = transport.get_extra_info("peername")
        self.connection.host = str(peer[0]) if peer else "unknown"
        if not self._server.admits(self):
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        server, connection = self._server, self.connection
        try:
            frames = self._cutter.feed(data)
        except MalformedError as error:
            server.drop(connection, str(error))
            return
        node = server.node
        self.heard_ms = now_ms = clock_ms()
        for frame in frames:
            if connection.is_closed:
                return
            if frame.startswith(HEARTBEAT) and not (connection.call or connection.waiting or connection.is_full):
                answer = self._quick_heartbeat.answer(node, frame, now_ms)
                if answer is not None:
                    self.transport.write(answer)
                    continue
            server.perform(node.received(connection, frame, now_ms))
        server.keep_alarm()
        if connection.waiting:
            self.hold_back()

    def hold_back(self) -> None:
        """Reading stops while too much waits; the client's own buffers fill up and it has to slow down."""
        connection = self.connection
        too_much = len(connection.waiting) > self._server.max_waiting or connection.waiting_bytes > WAITING_BYTES
        if too_much and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
            self._server.held_back.add(self)

    def read_on(self) -> None:
        connection = self.connection
        few = (
            len(connection.waiting) <= self._server.max_waiting // 2 and connection.waiting_bytes <= WAITING_BYTES // 2
        )
        if self._is_paused and few and not connection.is_closed:
            self._is_paused = False
            self._server.held_back.discard(self)
            self.transport.resume_reading()

    def stop_reading(self) -> None:
        """What comes from now on is not looked at any more."""
        self._server.held_back.discard(self)
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self.connection.is_full = True

    def resume_writing(self) -> None:
        server = self._server
        server.run("a connection that takes more", lambda now_ms: server.node.drained(self.connection, now_ms))

    def connection_lost(self, _error: Exception | None) -> None:
        self._server.gone(self)


class Port:
    """A port that is taken, where nobody is served yet: a broker that gets none has touched nothing else."""

    def __init__(self, listener: asyncio.Server, host: str, advertised: tuple[str, int] | None) -> None:
        self.listener = listener
        self.host = host
        self.number: int = listener.sockets[0].getsockname()[1]
        self.endpoint = advertised or (host, self.number)
        """What clients are told."""

    @classmethod
    async def take(cls, host: str, port: int, link: Callable[[], Link], advertised: tuple[str, int] | None) -> Port:
        """`port` 0 takes a free one. `link` is called for each client, when it is served."""
        if advertised is None and host in EVERYWHERE:
            raise CoterieError(
                f"{host or 'every address'} is where to listen, but no client can connect to it: "
                "say what they are to be told (--advertise HOST:PORT, or advertised.listeners)"
            )
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(link, host, port, backlog=1024, start_serving=False)
        except UnicodeError:
            raise CoterieError(f"cannot listen on {host!r}: that is no host name. {THIS_MACHINE}") from None
        except socket.gaierror as error:
            raise CoterieError(f"cannot listen on {host!r}: {error.strerror}. {THIS_MACHINE}") from None
        except OSError as error:
            number = error.errno or 0
            hint = HINTS.get(number, "Take another port; 0 takes a free one")
            why = os.strerror(number) if number > 0 else str(error)
            raise CoterieError(f"cannot listen on {address_text(host, port)}: {why}. {hint}") from None
        return cls(listener, host, advertised)

    def __str__(self) -> str:
        return address_text(self.host, self.number)


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Server:
    def __init__(self, node: Node, tell: Callable[[Fact], None], port: Port) -> None:
        self.node = node
        self.port = port
        node.endpoint = port.endpoint
        self._listener_to_facts = tell
        self._has_complained = False
        self.max_request_bytes = node.settings.socket_request_max_bytes
        self.max_waiting = node.settings.queued_max_requests
        self.links: set[Link] = set()
        self.held_back: set[Link] = set()
        self._ready = node.ready
        self._next_ms = node.coordinator.timers.next_ms
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms: int | None = None
        self._disk = ThreadPoolExecutor(1, "coterie-disk")
        self._chores = ThreadPoolExecutor(1, "coterie-chores")
        self._all_gone: asyncio.Event | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._under_way = 0
        """What the disk's thread has been asked for and not come back with."""
        self._idle = asyncio.Event()

    # --- starting and stopping ----------------------------------------------------------------------------------------

    @classmethod
    async def start(
        cls,
        open_node: Callable[[], Node],
        tell: Callable[[Fact], None],
        host: str,
        port: int,
        advertised: tuple[str, int] | None = None,
    ) -> Server:
        """Take the port, open the data, read the groups back, then listen."""
        taken = await Port.take(host, port, lambda: Link(server), advertised)
        try:
            server = cls(open_node(), tell, taken)
        except BaseException:
            taken.listener.close()
            raise
        try:
            server.perform(server.node.start(clock_ms()))
            await taken.listener.start_serving()
        except BaseException:
            taken.listener.close()
            await server._all_written()
            server.node.directory.release()
            server._let_go()
            raise
        server._close_silent()
        return server

    async def stop(self) -> None:
        """Whoever waits is answered, what was written is made durable, and the directory is left clean."""
        self.port.listener.close()
        for link in self.links:
            link.stop_reading()
        await self._all_written()  # commits and batches under way are answered as they end
        self.perform(self.node.stop(clock_ms()))
        await self._all_written()
        await self._say_goodbye()
        try:
            await self._loop.run_in_executor(self._disk, self.node.directory.close)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        for timer in (self._alarm, self._sweep):
            if timer is not None:
                timer.cancel()
        self._disk.shutdown()
        self._chores.shutdown()

    async def _all_written(self) -> None:
        while self._under_way:  # the end of one may start another
            self._idle.clear()
            await self._idle.wait()

    async def _say_goodbye(self) -> None:
        """Let answers reach their clients before the sockets go."""
        for link in list(self.links):
            link.transport.close()
        if self.links:
            self._all_gone = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), STOP_GRACE_S)
        for link in list(self.links):
            link.transport.abort()

    # --- connections --------------------------------------------------------------------------------------------------

    def admits(self, link: Link) -> bool:
        if len(self.links) >= self.node.settings.max_connections:
            self._log_drop(
                link.connection, f"there are {len(self.links)} connections, as many as max.connections allows"
            )
            return False
        self.links.add(link)
        return True

    def gone(self, link: Link) -> None:
        self.links.discard(link)
        self.held_back.discard(link)
        if self._all_gone is not None and not self.links:
            self._all_gone.set()
        self.node.disconnected(link.connection)

    def _close_silent(self) -> None:
        """Every now and then: who has said nothing for too long, and waits for nothing, is probably not there."""
        idle_ms = self.node.settings.connections_max_idle_ms
        if idle_ms < 0:
            return
        now_ms = clock_ms()
        for link in list(self.links):
            if link.connection.call is None and now_ms - link.heard_ms > idle_ms:
                self.drop(link.connection, f"nothing was heard for {idle_ms} ms (connections.max.idle.ms)")
        self._sweep = self._loop.call_later(min(max(idle_ms / 4_000, 0.05), 60), self._close_silent)

    def drop(self, connection: Connection, why: str) -> None:
        if not connection.is_closed:
            self._log_drop(connection, why)
            self.node.disconnected(connection)
            connection.link.transport.close()

    def _log_drop(self, connection: Connection, why: str) -> None:
        self.tell(ConnectionDropped(clock_ms(), "", connection.host, why))

    # --- effects ------------------------------------------------------------------------------------------------------

    def run(self, what: str, event: Callable[[int], Sequence[Effect]]) -> None:
        """An event that no client is to blame for: a mistake of ours in it is told, and the broker goes on."""
        now_ms = clock_ms()
        try:
            effects = event(now_ms)
        except Exception:  # noqa: BLE001
            effects = self.node.rescue(what, now_ms)
        self.perform(effects)

    def tell(self, fact: Fact) -> None:
        """Whoever listens to facts must not be able to stop the broker."""
        try:
            self._listener_to_facts(fact)
        except Exception:  # noqa: BLE001
            if not self._has_complained:
                self._has_complained = True
                with suppress(Exception):
                    sys.stderr.write(f"coterie: facts cannot be told any more, and are lost:\n{format_exc()}")

    def perform(self, effects: Sequence[Effect]) -> None:
        """And then, one after the other, what waited for an answer to be sent."""
        link: Link | None = None
        while True:
            for effect in effects:
                kind = type(effect)
                if kind is Send:
                    self._send(effect)  # type: ignore[arg-type]
                elif kind is Flush or kind is Work:
                    self._on_disk(effect)  # type: ignore[arg-type]
                elif kind is Close:
                    self.drop(effect.connection, effect.why)  # type: ignore[union-attr]
                elif kind is Do:
                    self._chores.submit(self._chore, effect)  # type: ignore[arg-type]
                else:
                    self.tell(effect.fact)  # type: ignore[union-attr]
            if link is not None and link in self.held_back:
                link.read_on()
            if not self._ready:
                break
            link = self._ready[0].link
            effects = self.node.go_on(clock_ms())
        self.keep_alarm()

    def keep_alarm(self) -> None:
        """So that `_ring` is called when the next timer is due."""
        next_ms = self._next_ms()
        if next_ms != self._alarm_ms:
            self._set_alarm(next_ms)

    def _send(self, effect: Send) -> None:
        connection = effect.connection
        if connection.is_closed:
            return
        link: Link = connection.link
        data = effect.data
        if type(data) is bytes:
            link.transport.write(data)
        else:
            link.transport.writelines(data)  # type: ignore[arg-type]

    def _set_alarm(self, next_ms: int | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_ms = next_ms
        if next_ms is not None:
            self._alarm = self._loop.call_later(max(0, next_ms - clock_ms()) / 1000, self._ring)

    def _ring(self) -> None:
        self._alarm = self._alarm_ms = None
        self.run("a timer", self.node.ring)

    def _on_disk(self, effect: Flush | Work) -> None:
        self._under_way += 1
        done: asyncio.Future[FlushEnded | WorkEnded] = self._loop.run_in_executor(self._disk, effect.run)
        done.add_done_callback(self._disk_ended)

    def _disk_ended(self, done: asyncio.Future[FlushEnded | WorkEnded]) -> None:
        self._under_way -= 1
        ended = done.result()
        self.run("what follows work of the disk", lambda now_ms: self.node.disk_ended(ended, now_ms))
        self._idle.set()

    def _chore(self, effect: Do) -> None:
        try:
            effect.work()
        except OSError as error:
            self._loop.call_soon_threadsafe(self.tell, Trouble(clock_ms(), "", f"{effect.what}: {error}"))


def run_in_loop(coroutine: Any) -> Any:
    """With uvloop where it is installed; plain asyncio does the same, slower."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    return uvloop.run(coroutine)
