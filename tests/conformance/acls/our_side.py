"""Our broker with an authorizer, without sockets: who a client is, is set on its connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.driver import Client, World
from conformance.acls.asking import Broker
from raw_kafka import frame_of, read_answer

SETTINGS: Mapping[str, Any] = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:admin"}


class OurBroker(Broker):
    host = "10.0.0.1"

    def __init__(self, settings: Mapping[str, Any] = SETTINGS) -> None:
        super().__init__()
        self.world = World(settings=settings)
        self._clients: dict[str, Client] = {}

    def ask(self, user: str, api: str, version: int, values: Mapping[str, Any]) -> Any:
        client = self._clients.get(user)
        if client is None:
            client = self._clients[user] = self.world.client()
            client.connection.principal = f"User:{user}"
        client.send_frame(frame_of(api, version, 1, "raw", dict(values)))
        if not client.closed and not client.answers:
            self.world.advance(1_000)  # a request that waits for a time
        if client.closed:
            del self._clients[user]
            raise ConnectionError(client.closed)
        return read_answer(api, version, client.next_frame())
