"""A client's process: the shipped code on an event loop of its own, and what the world hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from coterie.client.network.connection import Connection
from coterie.client.network.network_client import NetworkClient
from coterie.client.network.runtime import Runtime
from coterie.protocol.api import Api
from coterie.settings.client_settings import Address, AdminSettings, ClientSettings
from coterie.sim.event_loop import VirtualEventLoop
from coterie.sim.host import Host, HostClock
from coterie.sim.network import VirtualWire

if TYPE_CHECKING:
    from coterie.sim.world import World

__all__ = ["Asked", "Client"]


class Asked(NamedTuple):
    """A request that was sent."""

    module: ModuleType
    request: Any
    sent_ms: int
    """By the world's time."""


class _Connection(Connection):
    """The shipped connection. The world hears of its answers, and it may speak older versions than it knows."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        super().__init__(address, settings)
        self._client = cast("VirtualEventLoop", self._loop).client

    @property
    def waits_for(self) -> list[str]:
        """The names of the APIs whose answers have not come."""
        return [asked.api.name for asked in self._asked]

    def version_of(self, api: ModuleType, at_most: int | None = None) -> int:
        newest = self._client.versions.get(api.API.name)
        if newest is not None:
            at_most = newest if at_most is None else min(newest, at_most)
        return super().version_of(api, at_most)

    async def send(self, api: ModuleType, request: Any, **how: Any) -> Any:
        client = self._client
        asked = Asked(api, request, client.world.schedule.now_ms)
        answer = await super().send(api, request, **how)
        if client.is_alive:
            for hears in client.world.on_answered:
                hears(client, asked, answer)
        return answer

    def _out_of_time(self, correlation_id: int, row: Api, timeout_ms: float) -> None:
        self._client.world.timed_out(self._client, row.name)
        super()._out_of_time(correlation_id, row, timeout_ms)


class Client(Host):
    def __init__(self, world: World, name: str, clock: HostClock, versions: dict[str, int] | None = None) -> None:
        super().__init__(world, name, clock)
        self.versions = versions or {}
        """The newest it speaks, by the name of the API; others as new as we have them."""
        self.is_alive = True
        self.group_id = ""
        self.tag = name.encode()
        self.loop = VirtualEventLoop(self)  # type: ignore[abstract]  # what clients do not use, asyncio refuses
        self._rng = world.rng.of(f"{name}/choices")
        self.runtime = Runtime(self._time_ms, self._time_ms, world.rng.of(f"{name}/jitter"), _Connection)
        self._tasks: dict[asyncio.Task[None], None] = {}

    def _time_ms(self) -> int:
        return self.now_ms

    def settings(self, **more: object) -> dict[str, object]:
        """Where the brokers are, who it is, and more."""
        servers = [f"{self.world.machine.name}:{port}" for port in self.world.machine.ports]
        named = {name.replace("_", "."): value for name, value in more.items() if value is not None}
        return {"bootstrap.servers": ",".join(servers), "client.id": self.name, **named}

    def cluster(self) -> NetworkClient:
        """The way into the cluster, for requests that no client of ours sends. To be called in a turn of the loop."""
        return NetworkClient(AdminSettings.of(self.settings()), runtime=self.runtime)

    def begin(self) -> None:
        self.start(self.live())

    async def live(self) -> None:
        """What the process does until it ends."""
        raise NotImplementedError

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run(self._start, work)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.result()

    # --- what the network does ----------------------------------------------------------------------------------------

    def connected(self, wire: VirtualWire) -> None:
        if self.is_paused:
            self.misses(self.connected, wire)
        elif wire.is_open and wire.transport is not None:
            self.loop.run(wire.transport.connected)

    def hears(self, about: tuple[VirtualWire, bytes]) -> None:
        if self.is_paused:
            self.misses(self.hears, about)
            return
        wire, data = about
        if wire.is_open and wire.transport is not None:
            for hears in self.world.on_bytes:
                hears(self, data)
            self.loop.run(wire.transport.received, data)

    def lost(self, wire: VirtualWire) -> None:
        if self.is_paused:
            self.misses(self.lost, wire)
        elif wire.is_open and wire.transport is not None:
            self.loop.run(wire.transport.reset)

    def ends(self, *, loses_power: bool = False) -> None:
        """The process is gone. What was open is closed by the system, unless that is gone as well."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.is_paused = False
        self.forget_missed()
        if loses_power:
            self.world.network.vanish(self)
        else:
            for wire in [wire for wire in self.world.network.wires if wire.client is self and wire.is_open]:
                self.world.network.hang_up(wire)
        self.loop.end()
