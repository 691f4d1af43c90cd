"""The two brokers that are asked: Apache Kafka, and ours without sockets."""

from __future__ import annotations

import time
from collections.abc import Mapping

from apache_kafka import ApacheKafka
from broker.driver import World
from broker.transactional import TransactionalClient, TransactionalPeer

__all__ = ["PROPERTIES", "KafkaSide", "OurSide"]

PROPERTIES: Mapping[str, str] = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
PATIENCE_S = 120.0


class KafkaSide:
    def __init__(self, kafka: ApacheKafka) -> None:
        self._bootstrap = kafka.bootstrap
        first = self.connect("first")
        first.create("t", 3)
        deadline = time.monotonic() + PATIENCE_S
        while first.find().error or first.find_coordinator().error or first.init().error:
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.1)
        while any(first.commit("first", {("t", 0): 1})):
            assert time.monotonic() < deadline, "no group coordinator"
            time.sleep(0.1)

    def connect(self, transactional_id: str) -> TransactionalPeer:
        return TransactionalPeer(self._bootstrap, transactional_id)

    def wait(self, ms: int) -> None:
        time.sleep(ms / 1000)


class OurSide:
    def __init__(self) -> None:
        self._world = World(settings=PROPERTIES)
        first = self.connect("first")
        first.create("t", 3)
        first.find()
        first.find_coordinator()

    def connect(self, transactional_id: str) -> TransactionalClient:
        return TransactionalClient(self._world, transactional_id)

    def wait(self, ms: int) -> None:
        self._world.advance(ms)
