"""One thread, one epoll: runs *scripts* over connections, one request in flight on each.

A script is a generator that yields a frame and is resumed with the reply, or yields a number and is resumed that many
seconds later.
"""

from __future__ import annotations

import heapq
import itertools
import select
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any

from coordbench.messages import CORRELATION_AT
from coordbench.types import MisbehavedError, Script, clock


class Connection:
    __slots__ = ("correlation", "inbox", "needed", "outbox", "script", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.script: Script | None = None
        self.inbox = bytearray()
        self.outbox: memoryview | None = None
        self.needed = 4
        self.correlation = 0


class Driver:
    """Runs scripts over connections, one request in flight on each."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._timers: list[tuple[float, int, Connection]] = []
        self._order = itertools.count()
        self._running = 0

    def connect(self, host: str, port: int, timeout: float = 30.0) -> Connection:
        sock = socket.create_connection((host, port), timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        connection = Connection(sock)
        self._connections[sock.fileno()] = connection
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        return connection

    def close(self, connection: Connection) -> None:
        self._connections.pop(connection.sock.fileno(), None)
        connection.sock.close()

    def close_all(self) -> None:
        for connection in list(self._connections.values()):
            self.close(connection)
        self._timers.clear()
        self._running = 0

    def start(self, connection: Connection, script: Script) -> None:
        if connection.script is not None:
            raise RuntimeError("this connection already runs a script")
        connection.script = script
        self._running += 1
        self._resume(connection, None)

    def call(self, connection: Connection, script: Script, patience: float = 60.0) -> Any:
        """Run one script to its end and return its value."""
        answer = []

        def wrapped() -> Script:
            answer.append((yield from script))

        self.run([(connection, wrapped())], patience)
        return answer[0]

    def run(self, scripts: Iterable[tuple[Connection, Script]], patience: float = 120.0) -> None:
        """Start the scripts and return when all have ended, or raise after `patience` seconds."""
        deadline = clock() + patience
        for connection, script in scripts:
            self.start(connection, script)
        poll, connections, timers = self._epoll.poll, self._connections, self._timers
        while self._running:
            now = clock()
            if now > deadline:
                raise MisbehavedError(f"{self._running} members without a reply after {patience:.0f} s")
            while timers and timers[0][0] <= now:
                self._resume(heapq.heappop(timers)[2], None)
            wait = min(1.0, max(0.0, timers[0][0] - clock())) if timers else 1.0
            if not self._running:
                break
            for descriptor, event in poll(wait, 1024):
                ready = connections.get(descriptor)
                if ready is None:
                    continue
                if event & select.EPOLLOUT:
                    self._flush(ready)
                if event & ~select.EPOLLOUT:
                    self._receive(ready)

    def _resume(self, connection: Connection, reply: bytes | None) -> None:
        script = connection.script
        assert script is not None
        try:
            request = script.send(reply)  # type: ignore[arg-type]
        except StopIteration:
            connection.script = None
            self._running -= 1
            return
        if type(request) is bytearray:
            connection.correlation = correlation = (connection.correlation + 1) & 0x7FFFFFFF
            struct.pack_into(">i", request, CORRELATION_AT, correlation)
            self._send(connection, request)
        else:
            heapq.heappush(self._timers, (clock() + request, next(self._order), connection))

    def _send(self, connection: Connection, frame: bytearray) -> None:
        try:
            sent = connection.sock.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError as problem:
            raise MisbehavedError(f"connection lost while sending: {problem}") from problem
        if sent < len(frame):
            connection.outbox = memoryview(bytes(frame))[sent:]
            self._epoll.modify(connection.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _flush(self, connection: Connection) -> None:
        if connection.outbox is not None:
            try:
                connection.outbox = connection.outbox[connection.sock.send(connection.outbox) :]
            except BlockingIOError:
                return
            except OSError as problem:
                raise MisbehavedError(f"connection lost while sending: {problem}") from problem
            if connection.outbox:
                return
            connection.outbox = None
        self._epoll.modify(connection.sock.fileno(), select.EPOLLIN)

    def _receive(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(32768)
        except BlockingIOError:
            return
        except OSError as problem:
            raise MisbehavedError(f"connection lost: {problem}") from problem
        if not data:
            raise MisbehavedError("the target closed a connection")
        inbox = connection.inbox
        if not inbox and len(data) > 4 and int.from_bytes(data[:4], "big") == len(data) - 4:
            reply = data[4:]  # the usual case: exactly one whole reply
        else:
            inbox += data
            if len(inbox) < connection.needed:
                return
            if connection.needed == 4:
                connection.needed = 4 + int.from_bytes(inbox[:4], "big")
                if len(inbox) < connection.needed:
                    return
            if len(inbox) > connection.needed:
                raise MisbehavedError("more bytes than the one reply that was due")
            reply = bytes(inbox[4:])
            inbox.clear()
            connection.needed = 4
        if connection.script is None:
            raise MisbehavedError("a reply that nobody asked for")
        if int.from_bytes(reply[:4], "big") != connection.correlation:
            raise MisbehavedError("a reply with the wrong correlation id")
        self._resume(connection, reply)


class Known:
    """Replies already found right, so that equal bytes need no second look."""

    def __init__(self, verify: Callable[[bytes], None], limit: int = 1024) -> None:
        self._verify = verify
        self._bodies: set[bytes] = set()
        self._limit = limit

    def check(self, reply: bytes) -> None:
        body = reply[4:]  # all but the correlation id
        if body not in self._bodies:
            self._verify(reply)
            if len(self._bodies) < self._limit:
                self._bodies.add(body)
