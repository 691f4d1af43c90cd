"""Between a producer and a broker: passes everything on, and cuts connections when it is told to.

The broker tells clients the proxy's address as its own, so that there is no way around it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from coterie import Broker
from coterie.broker.broker import open_cluster
from coterie.broker.calls import PLAINTEXT
from coterie.broker.io.server import Listener, Server
from coterie.protocol.apis import produce
from coterie.settings.listeners import Endpoint

__all__ = ["BrokerBehindProxy"]


class BrokerBehindProxy(Broker):
    """`cut_after` requests of Produce have been answered by the broker, the connection ends before the answer."""

    def __init__(
        self, data: Path | None = None, settings: Mapping[str, Any] | None = None, *, cut_every: int = 0
    ) -> None:
        super().__init__(data, settings)
        self.cut_every = cut_every
        self.produced = 0
        self.cuts = 0

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        proxy = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        port = proxy.sockets[0].getsockname()[1]
        self._addresses = {PLAINTEXT: [f"127.0.0.1:{port}"]}
        server = await Server.start(
            lambda wall: open_cluster(self._data, self._settings, "os", wall=wall),
            self._tell,
            [Listener(Endpoint(PLAINTEXT, "127.0.0.1", 0), ("127.0.0.1", port))],
            self._settings,
        )
        self._behind = "127.0.0.1", server.port.number
        self._started.set()
        await self._stop.wait()
        proxy.close()
        await server.stop()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(*self._behind)
        to_cut: set[bytes] = set()

        async def requests() -> None:
            while True:
                frame = await _frame(reader)
                if int.from_bytes(frame[4:6], "big") == produce.API.key:
                    self.produced += 1
                    if self.cut_every and self.produced % self.cut_every == 0:
                        to_cut.add(frame[8:12])
                ours.write(frame)

        async def answers() -> None:
            while True:
                frame = await _frame(theirs)
                if frame[4:8] in to_cut:
                    self.cuts += 1
                    return
                writer.write(frame)

        tasks = [asyncio.ensure_future(requests()), asyncio.ensure_future(answers())]
        with suppress(asyncio.CancelledError):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (writer, ours):
            each.transport.abort()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))
