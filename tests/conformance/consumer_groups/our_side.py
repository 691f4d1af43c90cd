"""Our broker, without sockets, on a clock that is moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.driver import World
from conformance.consumer_groups.playing import Broker
from raw_kafka import frame_of, read_answer

SETTINGS: Mapping[str, Any] = {
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.session.timeout.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "offsets.topic.num.partitions": 1,
}


class OurBroker(Broker):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(settings=SETTINGS)
        self._client = self.world.client()
        self.prepare()

    def ask(self, api: str, version: int, values: Mapping[str, Any]) -> Any:
        client = self._client
        client.send_frame(frame_of(api, version, 1, "raw", dict(values)))
        if not client.closed and not client.answers:
            self.world.advance(1_000)
        assert not client.closed, client.closed
        return read_answer(api, version, client.next_frame())

    def wait(self, ms: int) -> None:
        self.world.advance(ms)
