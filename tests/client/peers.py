"""Brokers that misbehave: a server that answers what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self

import uvloop

from coterie.protocol.api import by_key
from coterie.protocol.apis import FIRST_FLEXIBLE, api_versions
from coterie.protocol.frames import read_request_header, response_frame
from coterie.settings.client_settings import ClientSettings

__all__ = ["HANG_UP", "LOOPS", "Asked", "Peer", "Run", "answer_to", "until", "versions"]

Run = Callable[[Coroutine[Any, Any, Any]], Any]
LOOPS: dict[str, Run] = {"asyncio": asyncio.run, "uvloop": uvloop.run}
HANG_UP = object()


class Asked:
    """One request as it came."""

    def __init__(self, frame: bytes) -> None:
        self.key, self.version, self.correlation_id, self.at = read_request_header(frame, FIRST_FLEXIBLE)
        self.frame = frame


def versions(asked: Asked, ranges: dict[int, tuple[int, int]] | None = None) -> bytes:
    """The handshake, with all we speak unless told otherwise."""
    rows = [
        api_versions.ApiVersion(api_key=key, min_version=first, max_version=last)
        for key, (first, last) in (ranges or {}).items()
    ]
    response = api_versions.Response(api_keys=rows or api_versions.ADVERTISED)
    body = api_versions.write_response(response, asked.version)
    return response_frame(asked.correlation_id, body, flexible=False)


def answer_to(asked: Asked, response: Any) -> bytes:
    row = by_key[asked.key]
    body = row.module.write_response(response, asked.version)
    return response_frame(asked.correlation_id, body, flexible=row.has_flexible_response_header(asked.version))


Script = Callable[[Asked], object]
"""What to write: bytes, several of them, HANG_UP, or None for silence."""


class Peer:
    """Answers the handshake by itself unless `handshakes` is False; everything else is the script's."""

    def __init__(self, script: Script, *, handshakes: bool = True) -> None:
        self._script = script
        self._handshakes = handshakes
        self._writers: list[asyncio.StreamWriter] = []
        self.asked: list[Asked] = []
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._server.close()
        await self._server.wait_closed()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def settings(self, **more: object) -> ClientSettings:
        return ClientSettings.of(
            {"bootstrap.servers": self.bootstrap, "retry.backoff.ms": 1, "reconnect.backoff.ms": 1, **more}
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                asked = Asked(await reader.readexactly(size))
                self.asked.append(asked)
                if asked.key == api_versions.API.key and self._handshakes:
                    said: object = versions(asked)
                else:
                    said = self._script(asked)
                for piece in said if isinstance(said, list) else [said]:
                    if piece is HANG_UP:
                        writer.close()
                        return
                    if isinstance(piece, bytes):
                        writer.write(piece)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.transport.abort()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.001)
