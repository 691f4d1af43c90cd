"""A producer's process: the shipped `AsyncProducer`, and a user who sends numbered records at a pace.

A record's value says who made it and which it was, so that everybody who reads it later can be held to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from coterie.client.producer.batching import Batching
from coterie.client.producer.delivery import RecordMetadata
from coterie.client.producer.producer import AsyncProducer
from coterie.client.types import TopicPartition
from coterie.errors import KafkaError
from coterie.sim.client import Client
from coterie.sim.host import HostClock

if TYPE_CHECKING:
    from coterie.sim.world import World

__all__ = ["ProducerProcess"]

PATIENCE_MS = (30_000, 120_000)
"""Whoever gives a record up leaves a gap behind it, and what follows has to find another place (KIP-360)."""
BURST = 10
"""Records at once, for many partitions: a flush of many logs is another thing than one of one."""
AFTER_AN_ERROR_S = 0.2


class _ShippedProducer(AsyncProducer):
    """The shipped producer, with a clock, chance and connections of the world."""

    def __init__(self, process: ProducerProcess, settings: dict[str, object]) -> None:
        self._runtime = process.runtime
        super().__init__(settings)

    @property
    def batching(self) -> Batching:
        return self._sender.batching


class ProducerProcess(Client):
    def __init__(self, world: World, name: str, clock: HostClock, topics: Sequence[str], every_ms: int) -> None:
        super().__init__(world, name, clock)
        self.topics = list(topics)
        self.every_ms = every_ms
        self.sent = 0
        self.is_sending = True
        patience_ms = world.rng.of(f"{name}/patience").choice(PATIENCE_MS)
        self._client = _ShippedProducer(
            self,
            self.settings(
                buffer_memory=1 << 22,
                delivery_timeout_ms=patience_ms,
                request_timeout_ms=patience_ms // 2,
                metadata_max_age_ms=60_000,
            ),
        )

    @property
    def batching(self) -> Batching:
        return self._client.batching

    @property
    def is_done(self) -> bool:
        return not self.batching.unsettled

    def stop(self) -> None:
        self.is_sending = False

    async def live(self) -> None:
        while self.is_sending:
            for _ in range(self._rng.choice((1, 1, 1, BURST))):
                await self._send()
            await asyncio.sleep((1 + int(self._rng.expovariate(1 / self.every_ms))) / 1000)

    async def _send(self) -> None:
        value = b"%s %d" % (self.tag, self.sent)
        try:
            await self._client.send(
                self._rng.choice(self.topics), value, key=value, on_delivery=partial(self._delivered, value)
            )
        except KafkaError:  # no room, or the topic is not there yet
            await asyncio.sleep(AFTER_AN_ERROR_S)
        else:
            self.sent += 1

    def _delivered(self, value: bytes, where: RecordMetadata | None, _error: KafkaError | None) -> None:
        if where is not None and where.offset >= 0 and self.is_alive:
            self.world.acknowledged(TopicPartition(where.topic, where.partition), where.offset, value)
