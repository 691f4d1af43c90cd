"""A client on a real socket, and the broker as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from broker.speaker import Speaker

__all__ = ["Peer", "Serving"]

TIMEOUT_S = 20.0


class Peer(Speaker):
    """A connection of its own, with one request after the other, or as many at once as the caller likes."""

    def __init__(self, bootstrap: str, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__()
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(len(frame).to_bytes(4, "big") + frame)

    def next_frame(self) -> bytes:
        return self.read(int.from_bytes(self.read(4), "big"))

    def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)

    def is_closed_by_broker(self) -> bool:
        """Waits for the end; False if something comes instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def _environ() -> dict[str, str]:
    """The environment without what switches tests on: a broker takes COTERIE_ variables for settings."""
    return {name: value for name, value in os.environ.items() if name != "COTERIE_CONFORMANCE"}


class Serving:
    """`coterie serve` as a process; used as a context manager it is killed at the end, if it is still there."""

    def __init__(
        self,
        data: Path | None,
        *options: str,
        port: int | None = 0,
        log: Path | None = None,
        files: int | None = None,
    ) -> None:
        """`port` is None if a setting has the listeners. `files`: how many it may open, if not as many as we."""
        listens = [] if port is None else ["--port", str(port)]
        where = ["--memory"] if data is None else ["--data", str(data)]
        limited = ["/bin/sh", "-c", f'ulimit -n {files} && exec "$@"', "sh"] if files is not None else []
        self.command: Sequence[str] = [
            *limited,
            *(str(Path(sys.executable).with_name("coterie")), "serve", *listens, *where),
            *options,
        ]
        self._log = log.open("ab") if log else None
        self.process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=self._log or subprocess.PIPE,
            text=True,
            env={**_environ(), "PYTHONUNBUFFERED": "1"},
        )

    def ready(self) -> str:
        """Where it listens; waits for the line that says so."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        word, _, address = line.strip().partition(" ")
        assert word == "ready", f"{line!r}, then: {self.process.communicate(timeout=TIMEOUT_S)}"
        return address

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As `kill -9` does: at once, in the middle of whatever it does."""
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def ended(self) -> tuple[int, str]:
        """Its exit status and what it said on stderr."""
        _, said = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, said or ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=TIMEOUT_S)
        if self._log is not None:
            self._log.close()
