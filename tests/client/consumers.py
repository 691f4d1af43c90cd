"""Consumers on real sockets, as tests use them: quick settings, and waiting for a condition instead of for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from broker.peer import Peer
from coterie.client.consumer.consumer import Consumer
from coterie.client.types import TopicPartition
from coterie.protocol.records import Record

__all__ = ["QUICK", "QUICK_BROKER", "Heard", "consumer_of", "fill", "on", "read", "took_s", "until", "values"]

QUICK_BROKER = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}
QUICK = {
    "auto.offset.reset": "earliest",
    "fetch.max.wait.ms": 30,
    "heartbeat.interval.ms": 50,
    "metadata.max.age.ms": 200,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 50,
}
PATIENCE_S = 60.0


def on(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def consumer_of(bootstrap: str, **more: object) -> Consumer:
    return Consumer({**QUICK, "bootstrap.servers": bootstrap, "group.id": "g", **more})


def fill(bootstrap: str, topic: str, partitions: int = 1, records: int = 0, *, first: int = 0) -> None:
    """A topic, and so many records in each of its partitions; their values are `partition:offset`."""
    with Peer(bootstrap) as peer:
        if not first:
            peer.create(topic, partitions)
        for number in range(partitions):
            for at in range(first, first + records):
                peer.produce(topic, b"%d:%d" % (number, at), partition=number)


def values(records: Sequence[Record]) -> list[str]:
    return [(one.value or b"").decode() for one in records]


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("assigned", partitions))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("revoked", partitions))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("lost", partitions))

    def of(self, kind: str) -> list[list[TopicPartition]]:
        return [partitions for what, partitions in self.calls if what == kind]


def until(condition: Callable[[], object], *consumers: Consumer) -> list[Record]:
    """Poll all of them in turn until it holds; the records that came meanwhile."""
    records: list[Record] = []
    _poll_until(condition, consumers, records)
    return records


def read(count: int, *consumers: Consumer) -> list[Record]:
    """Poll until so many records have come, and no more than those."""
    records: list[Record] = []
    _poll_until(lambda: len(records) >= count, consumers, records)
    assert len(records) == count, values(records)
    return records


def _poll_until(condition: Callable[[], object], consumers: Sequence[Consumer], records: list[Record]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, f"it did not happen: {[one.explain() for one in consumers]}"
        for one in consumers:
            records += one.poll(0.02)
        if not consumers:
            time.sleep(0.005)


def took_s(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
