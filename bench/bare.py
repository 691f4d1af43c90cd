"""The least a server of heartbeats can do: cut frames, look the member up in a dict, answer. It is the yardstick.

    python bench/bare.py            # says `ready HOST:PORT`, on a free port

No header is read, no text decoded, no rule asked: what a member says is looked up as the bytes it is, and its answer,
always the same, is sent. What Python and uvloop cost is in it, and nothing else.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import uvloop

ANSWER = bytes.fromhex("0000000c") + bytes(12)
"""Size, correlation id 0, no tags; no throttling, no error, no tags."""


class Bare(asyncio.Protocol):
    def __init__(self, members: dict[bytes, int]) -> None:
        self._members = members
        self._held = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._held:
            data = self._held + data
            self._held = b""
        at, length = 0, len(data)
        while length - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > length:
                break
            member = data[at + 12 : end]  # without size, API, version and correlation id
            self._members[member] = self._members.get(member, 0) + 1
            self._transport.write(ANSWER)
            at = end
        if at < length:
            self._held = data[at:]


async def serve() -> None:
    members: dict[bytes, int] = {}
    server = await asyncio.get_running_loop().create_server(lambda: Bare(members), "127.0.0.1", 0, backlog=1024)
    host, port = server.sockets[0].getsockname()
    print(f"ready {host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    runner: Any = uvloop.run
    runner(serve())
