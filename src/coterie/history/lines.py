"""Design 2's connections on real sockets: a line of JSON is a message. A thread reads each and posts what it hears."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from typing import Any

from coterie.errors import MalformedError
from coterie.history.design_types import Connect, Connected, HangUp, Heard, Hung, Say
from coterie.history.server_messages import Hello, Message, read_message, write_message

__all__ = ["Line", "Listener"]

HOST = "127.0.0.1"
MOST_BYTES = 1 << 20
"""Of one message: thousands of partitions."""
CONNECT_S = 5.0

Post = Callable[[Any], None]


def _messages(line: socket.socket, hears: Callable[[Message], None]) -> None:
    """Until it is closed, or says what cannot be understood."""
    with suppress(OSError, MalformedError), line.makefile("rb") as lines:
        while data := lines.readline(MOST_BYTES):
            hears(read_message(data))


def _nobody(_event: Any) -> None:
    """Hears nothing yet."""


class Listener:
    """A broker's end. Whoever connects says first who it is."""

    def __init__(self) -> None:
        self._post: Post = _nobody
        self._socket = socket.create_server((HOST, 0))
        self.address = "{}:{}".format(*self._socket.getsockname())
        self._peers: dict[str, socket.socket] = {}
        self._lock = Lock()
        self.said = 0

    def serve(self, post: Post) -> None:
        self._post = post
        Thread(target=self._accept, name="listener", daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._socket.accept()
                Thread(target=self._serve, args=(line,), name="peer", daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        peer = ""

        def hears(message: Message) -> None:
            nonlocal peer
            if isinstance(message, Hello) and not peer:
                peer = message.member_id
                with self._lock:
                    self._peers[peer] = line
            if not peer:
                raise MalformedError("the first message of a connection is Hello")
            self._post(Heard(message, peer))

        with line:
            _messages(line, hears)
        with self._lock:
            is_ours = self._peers.get(peer) is line
            if is_ours:
                del self._peers[peer]
        if is_ours:
            self._post(Hung(peer))

    def say(self, effect: Say) -> None:
        """To somebody who has hung up: it will be noticed by who reads."""
        self.said += 1
        with self._lock, suppress(OSError, KeyError):
            self._peers[effect.to].sendall(write_message(effect.message))

    def hang_up(self, effect: HangUp) -> None:
        with self._lock, suppress(OSError, KeyError):
            self._peers[effect.to].shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            for line in self._peers.values():
                with suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)


class Line:
    """A member's end: one connection at a time."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._line: socket.socket | None = None
        self.said = 0

    def connect(self, effect: Connect) -> None:
        Thread(target=self._serve, args=(effect.address,), name="coordinator", daemon=True).start()

    def _serve(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=CONNECT_S) as line:
            line.settimeout(None)
            self._line = line
            self._post(Connected())
            _messages(line, lambda message: self._post(Heard(message)))
        self._line = None
        self._post(Hung())

    def say(self, effect: Say) -> None:
        line = self._line
        self.said += 1
        if line is not None:
            with suppress(OSError):
                line.sendall(write_message(effect.message))

    def close(self) -> None:
        line = self._line
        if line is not None:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
