"""Faults that let something happen when a request comes. Then the request is looked at as usual."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from coterie.broker.broker_effects import Effects
from coterie.errors import CoterieError, MalformedError
from coterie.testing.request_faults import Filter, RequestFault
from coterie.testing.requests import Request

if TYPE_CHECKING:
    from coterie.broker.calls import Call
    from coterie.testing.controlled_server import ControlledServer, Exchange
    from coterie.testing.kafka_broker import KafkaBroker


class _Happening(RequestFault):
    """Something that happens before a request is looked at."""

    def __init__(self, broker: KafkaBroker, chosen: Filter, what: str, **limits: Any) -> None:
        super().__init__(broker, chosen, what, **limits)
        self._under_way: set[asyncio.Task[None]] = set()

    def refusal(self, request: Request) -> str:
        if request.api == self._filter.api:
            try:
                lacks = self._lacks(request)
            except MalformedError:
                lacks = "it cannot be read"
            if lacks:
                self._passed.append((request, lacks))
                return lacks
        return super().refusal(request)

    @abstractmethod
    def _lacks(self, request: Request) -> str:
        """Return what a request does not have that is needed here; "" if it has all."""

    def _fire(self, server: ControlledServer, exchange: Exchange, _now_ms: int) -> Effects | None:
        call = server.hold(exchange)
        task = asyncio.get_running_loop().create_task(self._happens(server, exchange, call))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return []

    async def _happens(self, server: ControlledServer, exchange: Exchange, call: Call) -> None:
        with suppress(CoterieError):  # what it is about has gone meanwhile
            await self._what_happens(server, exchange.request)
        server.run("a request that was held", partial(server.go_on_with, exchange, call))

    async def _end_on(self, server: ControlledServer) -> None:
        await super()._end_on(server)
        if self._under_way:
            await asyncio.wait(self._under_way)

    @abstractmethod
    async def _what_happens(self, server: ControlledServer, request: Request) -> None: ...


class MoveCoordinatorOnRequest(_Happening):
    """Another node becomes the coordinator of the group that a request names."""

    def __init__(self, node: int | None, broker: KafkaBroker, chosen: Filter, **limits: Any) -> None:
        to = "the next node" if node is None else f"node {node}"
        super().__init__(broker, chosen, f"move the coordinator to {to}", **limits)
        self._node = node

    def _lacks(self, request: Request) -> str:
        return "" if request.group else "it names no group"

    async def _what_happens(self, server: ControlledServer, request: Request) -> None:
        assert request.group is not None
        await server.move_coordinator(request.group, self._node or self._next(server, request.group))

    @staticmethod
    def _next(server: ControlledServer, group: str) -> int:
        """Return the node after the coordinator, of those that run; the first one after the last."""
        nodes = sorted(server.cluster.leadership.up)
        now = server.coordinator_of(group)
        return next((node for node in nodes if node > now), nodes[0])


class ExpireMember(_Happening):
    """The session of the member that a request is of expires."""

    def _lacks(self, request: Request) -> str:
        return "" if request.member else "it has no member id"

    async def _what_happens(self, server: ControlledServer, request: Request) -> None:
        await server.silence(request.member, None, request.group)
