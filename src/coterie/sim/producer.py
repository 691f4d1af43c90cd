"""A producer's process: the shipped batching, and a user who sends numbered records at a pace.

Does what `client/producer/sender.py` does on asyncio. A record's value says who made it and which it was, so that
everybody who reads it later can be held to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from coterie.client.producer.batching import Batching, BatchingRules
from coterie.client.producer.batching_events import (
    Answer,
    Answered,
    Arm,
    AskLeaders,
    AskProducerId,
    Event,
    LeadersFailed,
    LeadersFound,
    ProducerIdFailed,
    ProducerIdGiven,
    Send,
    Settled,
    Unanswered,
    Woke,
)
from coterie.client.producer.partition_queue import Batch, Identity
from coterie.client.types import TopicPartition
from coterie.errors import KafkaError
from coterie.protocol.apis import init_producer_id, produce
from coterie.sim.client import ANY, Client
from coterie.sim.host import Clock

if TYPE_CHECKING:
    from coterie.sim.world import World

__all__ = ["Producer"]

PRODUCE_LANE = "produce"
METADATA_MAX_AGE_MS = 60_000
PATIENCE_MS = (30_000, 120_000)
"""Whoever gives a record up leaves a gap behind it, and what follows has to find another place (KIP-360)."""
BURST = 10
"""Records at once, for many partitions: a flush of many logs is another thing than one of one."""


class Producer(Client):
    def __init__(self, world: World, name: str, clock: Clock, topics: Sequence[str], every_ms: int) -> None:
        super().__init__(world, name, clock)
        self.topics = list(topics)
        self.every_ms = every_ms
        patience_ms = world.rng.of(f"{name}/patience").choice(PATIENCE_MS)
        self.batching = Batching(
            BatchingRules(buffer_memory=1 << 22, delivery_timeout_ms=patience_ms),
            lambda: self._rng.getrandbits(31),
        )
        self.sent = 0
        self.is_sending = False
        self._alarm_ms: int | None = None

    def begin(self) -> None:
        self.is_sending = True
        self._know(None)

    def _know(self, _about: object) -> None:
        if self.is_paused:
            self.misses(self._know, None)
        elif self.is_alive:
            self.refresh(self.topics, self._known)

    def _known(self, error: KafkaError | None) -> None:
        if error is None:
            self._handle(LeadersFound(self._leaders(self.topics)))
        if not all(name in self.batching.topics and self.batching.topics[name].partitions for name in self.topics):
            self.later(200, self._know, None)
            return
        if not self.sent:
            self._write(None)
        self.later(METADATA_MAX_AGE_MS, self._know, None)

    def stop(self) -> None:
        self.is_sending = False

    @property
    def is_done(self) -> bool:
        return not self.batching.unsettled

    def _write(self, _about: object) -> None:
        if self.is_paused:
            self.misses(self._write, None)
            return
        if not self.is_alive or not self.is_sending:
            return
        for _ in range(self._rng.choice((1, 1, 1, BURST))):
            self._append()
        self._handle(Woke())
        self.later(1 + int(self._rng.expovariate(1 / self.every_ms)), self._write, None)

    def _append(self) -> None:
        topic = self._rng.choice(self.topics)
        value = b"%s %d" % (self.name.encode(), self.sent)
        now_ms = self.now_ms
        placed = self.batching.append(topic, None, value, value, now_ms, (), now_ms)
        if placed is not None:
            self.sent += 1
            batch, index = placed
            batch.told.append((index, partial(self._told, value)))

    def _told(self, value: bytes, batch: Batch, index: int) -> None:
        if batch.error is None and batch.base_offset >= 0:
            self.world.acknowledged(batch.where, batch.base_offset + index, value)

    # --- driving ------------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        for effect in self.batching.handle(event, self.now_ms):
            match effect:
                case Settled(batch):
                    for index, told in batch.told:
                        told(batch, index)
                case Send():
                    self._send(effect)
                case Arm(at_ms):
                    self._alarm_ms = at_ms
                    if at_ms is not None:
                        self.at(at_ms, self._ring, at_ms)
                case AskLeaders(topics):
                    self.refresh(topics, partial(self._asked_leaders, topics))
                case AskProducerId():
                    request = init_producer_id.Request(transactional_id=None, transaction_timeout_ms=2**31 - 1)
                    self.ask(ANY, "", init_producer_id, request, 30_000, self._given)
                case _:
                    pass

    def _ring(self, at_ms: int) -> None:
        if self.is_paused:
            self.misses(self._ring, at_ms)
        elif self.is_alive and at_ms == self._alarm_ms:
            self._alarm_ms = None
            self._handle(Woke())

    def _asked_leaders(self, topics: Sequence[str], error: KafkaError | None) -> None:
        self._handle(LeadersFailed(error) if error is not None else LeadersFound(self._leaders(topics)))

    def _leaders(self, topics: Sequence[str]) -> dict[str, dict[int, int]]:
        known = self.metadata.topics
        return {
            name: {number: one.leader for number, one in known[name].partitions.items()} if name in known else {}
            for name in topics
        }

    def _given(self, _then: Any, reply: init_producer_id.Response | None, error: KafkaError | None) -> None:
        if reply is not None and reply.error:
            error = KafkaError.of(reply.error, "asking for a producer id")
        if reply is None or error is not None:
            assert error is not None
            self._handle(ProducerIdFailed(error))
        else:
            self._handle(ProducerIdGiven(Identity(reply.producer_id, reply.producer_epoch)))

    def _send(self, sent: Send) -> None:
        by_topic: dict[str, list[produce.Partition]] = {}
        for batch in sent.batches:
            part = produce.Partition(partition=batch.where.partition, records=bytes(self.batching.encode(batch)))
            by_topic.setdefault(batch.where.topic, []).append(part)
        request = produce.Request(
            acks=-1,
            timeout_ms=30_000,
            topics=[produce.Topic(name=name, partitions=parts) for name, parts in by_topic.items()],
        )
        self.ask(
            sent.node_id, PRODUCE_LANE, produce, request, 30_000, self._produced, sent, at_most=produce.API.last_by_name
        )

    def _produced(self, sent: Send, reply: produce.Response | None, error: KafkaError | None) -> None:
        if reply is None:
            assert error is not None
            self._handle(Unanswered(sent, error))
            return
        answers: Mapping[TopicPartition, Answer] = {
            TopicPartition(topic.name, one.partition): Answer(
                one.error, one.base_offset, one.log_append_time_ms, one.message, {}
            )
            for topic in reply.responses
            for one in topic.partitions
        }
        self._handle(Answered(sent, answers))
