"""Our broker, without sockets, on a clock that is moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.driver import Client, World
from conformance.consumer_groups.playing import Broker
from raw_kafka import frame_of, read_answer

SETTINGS: Mapping[str, Any] = {
    "group.min.session.timeout.ms": 100,
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
        self._open: dict[str, tuple[Client, list[tuple[str, int]]]] = {}
        self.prepare()

    def ask(self, api: str, version: int, values: Mapping[str, Any]) -> Any:
        client = self._client
        client.send_frame(frame_of(api, version, 1, "raw", dict(values)))
        if not client.closed and not client.answers:
            self.world.advance(1_000)
        assert not client.closed, client.closed
        return read_answer(api, version, client.next_frame())

    def send(self, whose: str, api: str, version: int, values: Mapping[str, Any]) -> None:
        client, asked = self._open.setdefault(whose, (self.world.client(), []))
        asked.append((api, version))
        client.send_frame(frame_of(api, version, 1, whose.partition("#")[0], dict(values)))

    def receive(self, whose: str) -> Any:
        client, asked = self._open[whose]
        return read_answer(*asked.pop(0), client.next_frame()) if client.answers else None

    def wait(self, ms: int) -> None:
        """Let each timer ring at its own time."""
        until_ms = self.world.now_ms + ms
        while self.world.now_ms < until_ms:
            due_ms = self.world.cluster.next_ms()
            self.world.advance((until_ms if due_ms is None else min(due_ms, until_ms)) - self.world.now_ms)

    def restart(self) -> None:
        self.world.cluster.directory.release()
        self.world = World(self.world.files, SETTINGS, now_ms=self.world.now_ms + 1)
        self._client = self.world.client()
        self._open.clear()
