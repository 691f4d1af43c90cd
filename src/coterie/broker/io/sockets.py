"""A node's port, and the sockets of the clients that came by it."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from coterie.broker.calls import Connection
from coterie.broker.handlers.quick_heartbeat import HEARTBEAT
from coterie.broker.io.scheduling import FRAMES, LARGE_READ, READ_BYTES, SPARE
from coterie.broker.io.tls import SMALL, GatheredWrites, ListenerTls, TlsTransport, why_refused
from coterie.broker.node import BrokerNode
from coterie.errors import CoterieError, MalformedError
from coterie.protocol.frames import FrameCutter
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.listeners import Endpoint

if TYPE_CHECKING:
    from coterie.broker.io.server import Server

__all__ = ["Link", "Port", "TlsTurn", "address_text"]

WRITE_BUFFER = 1 << 20
LARGE_ANSWER = 256 << 10
"""The system's buffer does not take a larger answer at once; it is held as a whole until its last byte is sent."""
FEW_READS, MOST_READS = 4, 64
"""Reads of TLS connections in one turn that are worth being answered together, and the most that are: they wait."""
READS_AT_ONCE = 16
"""The number of reads that are answered at once after a turn with few; then the next turn is gathered."""
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
        "_frames_at_once",
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
        self._cutter = FrameCutter(port.max_first_request_bytes)
        self._frames_at_once = 1 if port.listener.has_sasl else FRAMES
        """The number of frames that are cut at once: one before authentication, since larger requests may follow."""
        self._is_paused = False
        self._is_stopped = False
        self.in_queue = False
        """True while the connection waits in the queue."""
        self.read_bytes = 0
        """Bytes of consecutive large reads."""
        self._is_weighed = False
        """True if the connection limits count bytes that the broker holds for this connection."""
        self.connection = Connection("", self, port.listener.name)
        self._quick_heartbeat = server.quick_heartbeat(self.connection)
        self.heard_ms = server.now_ms()
        self.request_since_ms = 0
        """The time at which the request that is still arriving began; 0 if none is."""
        self.unsent = 0
        """Bytes of large answers that the system has not taken to the last byte: until then all of it is held."""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop has a class of its own
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER)
        peer = transport.get_extra_info("peername")
        self.connection.host = str(peer[0]) if peer else "unknown"
        self.connection.port = int(peer[1]) if peer else None
        if not self._server.admits(self):
            self.transport.abort()
            return
        self.port.node.connected(self.connection)

    def authenticated(self) -> None:
        """The client has proved who it is, or need not: it may send requests of any size that is allowed."""
        self._cutter.max_size = self._server.max_request_bytes
        self._frames_at_once = FRAMES

    def received(self, data: bytes) -> None:
        """Take bytes that the client has sent, without TLS."""
        connection = self.connection
        try:
            frames = self._cutter.feed(data, self._frames_at_once)
        except MalformedError as error:
            self._server.drop(connection, str(error))
            return
        self.heard_ms = now_ms = self._server.now_ms()
        if len(frames) == 1 and not (connection.call or connection.waiting or connection.is_full):
            frame = frames[0]
            if connection.is_quick and frame.startswith(HEARTBEAT):
                answer = self._quick_heartbeat.answer(self.port.node.coordinator, frame, now_ms)
                if answer is not None:
                    self.transport.write(answer)
                    if not self._is_weighed and not self._cutter.held and not self.read_bytes:
                        self._server.look_at_timers()  # a heartbeat writes nothing
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

    data_received = received

    def _note_arriving(self, now_ms: int) -> None:
        if not self._cutter.is_within_frame:
            self.request_since_ms = 0
        elif not self.request_since_ms:
            self.request_since_ms = now_ms

    def quick_answer(self, frame: bytes, now_ms: int) -> bytes | None:
        """The answer to an ordinary heartbeat; None if the frame is anything else."""
        if self.connection.is_quick and frame.startswith(HEARTBEAT):
            return self._quick_heartbeat.answer(self.port.node.coordinator, frame, now_ms)
        return None

    def _arrived(self, frames: list[bytes], now_ms: int) -> None:
        """Answer some of them, as many as are due to a connection; the rest waits for its turn."""
        server, connection = self._server, self.connection
        if (
            len(frames) == 1
            and not (connection.call or connection.waiting or connection.is_full or self.in_queue or self._cutter.held)
            and not server.scheduling.must_wait(frames[0], now_ms)
        ):
            server.serve_alone(self, frames[0], now_ms)
            return
        was_waiting = bool(connection.waiting)
        for frame in frames:
            connection.put_off(frame)
        if was_waiting or self.in_queue:
            return
        server.serve(self, server.scheduling.at_once(frames, now_ms))
        if server.scheduling.spare < SPARE:
            server.end_turn_soon()

    def cut_more(self, now_ms: int) -> None:
        """Cut some more frames out of the bytes that have arrived, unless one waits already."""
        if self._cutter.has_more and not self.connection.waiting:
            try:
                frames = self._cutter.more(self._frames_at_once)
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
        """The bytes held for it: a request that arrives, requests that wait, answers that the client does not read."""
        connection = self.connection
        unsent = max(self.unsent, self.transport.get_write_buffer_size()) if connection.is_full else 0
        return self._cutter.held + connection.waiting_bytes + unsent

    def arriving_ms(self, now_ms: int) -> int:
        """Return how long the current request has been arriving."""
        return now_ms - self.request_since_ms if self.request_since_ms else 0

    def weigh(self) -> None:
        self._is_weighed = self._server.limits.weigh(self.connection)

    def hold_back(self) -> None:
        """Stop reading while the connection is in the queue, or too much waits: the client's own buffers fill up."""
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
        """Ignore everything that arrives from now on."""
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
        server.run("a connection that takes more", node.drained, self.connection)

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


class TlsLink(Link):
    """A client's socket with TLS. All that the other methods see is decrypted, and what they write is encrypted."""

    __slots__ = ("_turn", "tls")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert self.port.tls is not None, "a port without TLS has plain links"
        self._turn = self._server.tls_turn
        self.tls = TlsTransport(cast("asyncio.Transport", transport), self.port.tls.context, self._turn.writes)
        super().connection_made(cast("asyncio.Transport", self.tls))

    def data_received(self, data: bytes) -> None:
        self._turn.read(self, data)

    def eof_received(self) -> None:
        self._turn.end()

    def stop_reading(self) -> None:
        self._turn.end()
        super().stop_reading()

    def decrypt(self, data: bytes) -> bytes:
        """Return what the client has sent; if that cannot be, the connection is closed."""
        tls = self.tls
        try:
            if tls.is_established:
                return tls.received(data)
            content = tls.shake_hands(data)
            if tls.is_established:
                self._server.established(self, tls.certificate)
        except (ssl.SSLError, MalformedError) as error:
            why = why_refused(error) if isinstance(error, ssl.SSLError) else str(error)
            self._server.drop(self.connection, f"TLS on listener {self.port.listener.name} failed: {why}")
            return b""
        return content

    def decrypted(self, content: bytes) -> None:
        if content and not self.connection.is_closed:
            self.received(content)
        if self.tls.has_ended:
            self.transport.close()


class TlsTurn:
    """Small reads of TLS connections in one turn of the loop: all are decrypted, then answered, then all is encrypted.

    This takes less CPU than one connection after the other, probably because less code has to be in the processor's
    caches at a time. The end of a turn costs something too, so few connections are answered at once. Every now and then
    a turn is gathered to see how many they are.
    """

    def __init__(self) -> None:
        self.writes = GatheredWrites()
        self._loop = asyncio.get_running_loop()
        self._data: dict[TlsLink, bytes] = {}
        self._at_once = 0
        """The number of reads that are still answered at once. While it is not 0, nothing is gathered."""

    def read(self, link: TlsLink, data: bytes) -> None:
        """Take what was read from a connection. Handshakes and large reads are not gathered."""
        if link in self._data:
            self.end()
        if self._at_once or len(data) > SMALL or not link.tls.is_established:
            self._at_once = max(0, self._at_once - 1)
            link.decrypted(link.decrypt(data))
            return
        if not self._data:
            self._loop.call_soon(self.end)
        self._data[link] = data
        if len(self._data) == MOST_READS:
            self.end()

    def end(self) -> None:
        """Answer all that was read."""
        read, self._data = self._data, {}
        if not read:
            return
        if len(read) < FEW_READS:
            self._at_once = READS_AT_ONCE
        contents: dict[TlsLink, bytes] = {}
        for link, data in read.items():
            try:
                contents[link] = link.decrypt(data)
            except Exception as error:  # noqa: BLE001
                self._failed(link, error)
        self.writes.are_gathered = True
        for link, content in contents.items():
            try:
                link.decrypted(content)
            except Exception as error:  # noqa: BLE001
                self._failed(link, error)
        self.writes.send()

    def _failed(self, link: TlsLink, error: Exception) -> None:
        """Close the connection, as the loop does: a bug must not cost the other connections their answers."""
        self._loop.call_exception_handler({"message": "a read of a TLS connection failed", "exception": error})
        link.transport.abort()


class Port:
    """A node's port. It is bound before anything else: a broker that cannot bind it has changed nothing."""

    node: BrokerNode

    def __init__(
        self, listener: Endpoint, advertised: tuple[str, int] | None, tls: ListenerTls | None, server: Server
    ) -> None:
        self.listener = listener
        self.host = listener.host
        self.number = listener.port
        self.tls = tls
        self.links: set[Link] = set()
        self.max_first_request_bytes = 0
        """The largest request of a client that has not authenticated yet, if it has to."""
        self._advertised = advertised
        self._server = server
        self.socket: asyncio.Server

    @property
    def endpoint(self) -> tuple[str, int]:
        """Return the host and port that clients connect to."""
        return self._advertised or (self.host, self.number)

    async def take(self) -> None:
        """Bind the port. Port 0 takes a free one, and keeps it."""
        host, port = self.host, self.number
        if self._advertised is None and host in EVERYWHERE:
            raise CoterieError(
                f"{host or 'every address'} is where to listen, but no client can connect to it: "
                "say what they are to be told (--advertise HOST:PORT, or advertised.listeners)"
            )
        loop = asyncio.get_running_loop()
        try:
            kind = Link if self.tls is None else TlsLink
            self.socket = await loop.create_server(
                lambda: kind(self._server, self), host, port, backlog=1024, start_serving=False
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
        self.number = self.socket.sockets[0].getsockname()[1]

    async def serve(self, settings: BrokerSettings) -> None:
        """Accept connections. Their sockets get their buffers' sizes from the listening one."""
        sizes = {
            socket.SO_SNDBUF: settings.socket_send_buffer_bytes,
            socket.SO_RCVBUF: settings.socket_receive_buffer_bytes,
        }
        for listening in self.socket.sockets:
            for option, size in sizes.items():
                if size > 0:
                    listening.setsockopt(socket.SOL_SOCKET, option, size)
        await self.socket.start_serving()

    def __str__(self) -> str:
        return address_text(self.host, self.number)


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
