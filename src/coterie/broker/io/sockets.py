"""A node's port, and the sockets of the clients that came by it."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from coterie.broker.calls import Connection
from coterie.broker.handlers.quick_heartbeat import HEARTBEAT, QuickHeartbeat
from coterie.broker.io.scheduling import FRAMES, LARGE_READ, READ_BYTES, SPARE
from coterie.broker.node import Node
from coterie.errors import CoterieError, MalformedError
from coterie.protocol.frames import FrameCutter

if TYPE_CHECKING:
    from coterie.broker.io.server import Server

__all__ = ["Link", "Port", "address_text"]

WRITE_BUFFER = 1 << 20
LARGE_ANSWER = 256 << 10
"""Such a one is held as a whole until the system has taken its last byte."""
THIS_MACHINE = "Give a name or an address of this machine, such as 127.0.0.1"
HINTS = {
    errno.EADDRNOTAVAIL: THIS_MACHINE,
    errno.EACCES: "Ports below 1024 need privileges; take another port, 0 takes a free one",
}
EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104  compared with, not bound to


class Link(asyncio.Protocol):
    """One client's socket."""

    __slots__ = (
        "_cutter",
        "_is_paused",
        "_is_stopped",
        "_is_weighed",
        "_quick_heartbeat",
        "_server",
        "connection",
        "heard_ms",
        "in_queue",
        "port",
        "read_bytes",
        "request_since_ms",
        "transport",
        "unsent",
    )

    def __init__(self, server: Server, port: Port) -> None:
        self._server = server
        self.port = port
        self._cutter = FrameCutter(server.max_request_bytes)
        self._quick_heartbeat = QuickHeartbeat()
        self._is_paused = False
        self._is_stopped = False
        self.in_queue = False
        """It waits for its turn."""
        self.read_bytes = 0
        """Bytes of consecutive large reads."""
        self._is_weighed = False
        """Whether the connection limits know that we hold something for it."""
        self.connection = Connection("", self)
        self.heard_ms = server.now_ms()
        self.request_since_ms = 0
        """When the request that is still arriving began to; 0 if none is."""
        self.unsent = 0
        """Bytes of large answers that the system has not taken to the last byte: until then all of it is held."""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop has a class of its own
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER)
        if self._server.send_buffer_bytes > 0:
            handle: socket.socket = transport.get_extra_info("socket")
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._server.send_buffer_bytes)
        peer = transport.get_extra_info("peername")
        self.connection.host = str(peer[0]) if peer else "unknown"
        if not self._server.admits(self):
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        connection = self.connection
        try:
            frames = self._cutter.feed(data, FRAMES)
        except MalformedError as error:
            self._server.drop(connection, str(error))
            return
        self.heard_ms = now_ms = self._server.now_ms()
        if len(frames) == 1 and not (connection.call or connection.waiting or connection.is_full):
            frame = frames[0]
            if frame.startswith(HEARTBEAT):
                answer = self._quick_heartbeat.answer(self.port.node.coordinator, frame, now_ms)
                if answer is not None:
                    self.transport.write(answer)
                    if not self._is_weighed and not self._cutter.held and not self.read_bytes:
                        self._server.look_ahead()
                        return
                    frames = []
        if frames:
            self._arrived(frames, now_ms)
        self._server.look_ahead()
        if len(data) >= LARGE_READ:
            self._read_much(len(data))
        elif self.read_bytes:
            self.read_bytes = 0
        if connection.waiting:
            self.hold_back()
        if self._cutter.held or self._is_weighed or connection.waiting:
            if frames:
                self.request_since_ms = 0
            self._note_arriving(now_ms)
            self.weigh()

    def _note_arriving(self, now_ms: int) -> None:
        if not self._cutter.is_within_frame:
            self.request_since_ms = 0
        elif not self.request_since_ms:
            self.request_since_ms = now_ms

    def quick_answer(self, frame: bytes, now_ms: int) -> bytes | None:
        """The answer to an ordinary heartbeat; None if the frame is anything else."""
        if frame.startswith(HEARTBEAT):
            return self._quick_heartbeat.answer(self.port.node.coordinator, frame, now_ms)
        return None

    def _arrived(self, frames: list[bytes], now_ms: int) -> None:
        """Answer some of them, as many as are due to a connection; the rest waits for its turn."""
        server, connection = self._server, self.connection
        was_waiting = bool(connection.waiting)
        for frame in frames:
            connection.put_off(frame)
        if was_waiting or self.in_queue:
            return
        server.serve(self, server.scheduling.at_once(frames, now_ms))
        if server.scheduling.spare < SPARE:
            server.end_turn_soon()

    def cut_more(self, now_ms: int) -> None:
        """If no request waits that was cut, cut some of what has arrived."""
        if self._cutter.has_more and not self.connection.waiting:
            try:
                frames = self._cutter.more(FRAMES)
            except MalformedError as error:
                self._server.drop(self.connection, str(error))
                return
            for frame in frames:
                self.connection.put_off(frame)
            self._note_arriving(now_ms)

    def _read_much(self, size: int) -> None:
        """Let others be read from as well."""
        self.read_bytes += size
        if self.read_bytes >= READ_BYTES:
            self._server.wait_for_turn(self)

    @property
    def held(self) -> int:
        """Bytes we hold for it: of a request that arrives, of those that wait, of answers it does not take."""
        connection = self.connection
        unsent = max(self.unsent, self.transport.get_write_buffer_size()) if connection.is_full else 0
        return self._cutter.held + connection.waiting_bytes + unsent

    def arriving_ms(self, now_ms: int) -> int:
        """For how long a request has been arriving."""
        return now_ms - self.request_since_ms if self.request_since_ms else 0

    def weigh(self) -> None:
        self._is_weighed = self._server.limits.weigh(self.connection)

    def hold_back(self) -> None:
        """Reading stops while its turn has not come or too much waits: the client's own buffers fill up."""
        if not self._is_paused and (self.in_queue or self._has_much(1)):
            self._is_paused = True
            self.transport.pause_reading()

    def read_on(self) -> None:
        if (
            self._is_paused
            and not (self._is_stopped or self.in_queue or self.connection.is_closed)
            and not self._has_much(0.5)
        ):
            self._is_paused = False
            self.transport.resume_reading()

    def _has_much(self, share: float) -> bool:
        return self._cutter.has_more or self.connection.waits_with_more_than(share, self._server.max_waiting)

    def stop_reading(self) -> None:
        """What comes from now on is not looked at any more."""
        self._is_stopped = True
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def let_go(self) -> None:
        """The connection ends: drop the part of a request that has arrived."""
        self._cutter.clear()

    def pause_writing(self) -> None:
        self.connection.is_full = True
        self.weigh()

    def resume_writing(self) -> None:
        server = self._server
        node = self.port.node
        self.connection.is_full = False
        if self.unsent:
            self.all_sent()
        self.weigh()
        server.run("a connection that takes more", lambda now_ms: node.drained(self.connection, now_ms))

    def send_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        size = sum(map(len, parts))
        if size > LARGE_ANSWER:
            self.unsent += size
            self.transport.set_write_buffer_limits(high=0)  # so that we hear when the last byte of it is taken
        self.transport.writelines(parts)
        if self.unsent and not self.connection.is_full:
            self.all_sent()

    def all_sent(self) -> None:
        self.unsent = 0
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER)

    def connection_lost(self, _error: Exception | None) -> None:
        self._server.closed(self)


class Port:
    """A node's port, taken before anybody is served: a broker that gets none has touched nothing else."""

    node: Node

    def __init__(self, host: str, number: int, advertised: tuple[str, int] | None, server: Server) -> None:
        self.host = host
        self.number = number
        self.links: set[Link] = set()
        self._advertised = advertised
        self._server = server
        self.listener: asyncio.Server

    @property
    def endpoint(self) -> tuple[str, int]:
        """Return the host and port that clients connect to."""
        return self._advertised or (self.host, self.number)

    async def take(self) -> None:
        """Number 0 takes a free one, and keeps it."""
        host, port = self.host, self.number
        if self._advertised is None and host in EVERYWHERE:
            raise CoterieError(
                f"{host or 'every address'} is where to listen, but no client can connect to it: "
                "say what they are to be told (--advertise HOST:PORT, or advertised.listeners)"
            )
        loop = asyncio.get_running_loop()
        try:
            self.listener = await loop.create_server(
                lambda: Link(self._server, self), host, port, backlog=1024, start_serving=False
            )
        except UnicodeError:
            raise CoterieError(f"cannot listen on {host!r}: that is not a host name. {THIS_MACHINE}") from None
        except socket.gaierror as error:
            raise CoterieError(f"cannot listen on {host!r}: {error.strerror}. {THIS_MACHINE}") from None
        except OSError as error:
            number = error.errno or 0
            hint = HINTS.get(number, "Take another port; 0 takes a free one")
            why = os.strerror(number) if number > 0 else str(error)
            raise CoterieError(f"cannot listen on {address_text(host, port)}: {why}. {hint}") from None
        self.number = self.listener.sockets[0].getsockname()[1]

    def __str__(self) -> str:
        return address_text(self.host, self.number)


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
