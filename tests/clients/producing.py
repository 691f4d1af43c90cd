"""Topics, and records that know where they belong: the value says topic, partition and offset."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from clients.harness import Place

__all__ = ["PACE_MS", "Stream", "Topics"]

SECONDS = 60
PACE_MS = 100


class Topics:
    """Made and filled through confluent-kafka; `produced` is what the broker acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        # Idempotent, so that what is sent again after a broker's restart is there once.
        self._settings = {
            "bootstrap.servers": bootstrap,
            "linger.ms": "0",
            "log_level": "0",
            "enable.idempotence": "true",
        }
        self._producer = Producer(self._settings)
        self._one_at_a_time = threading.Lock()
        self.produced: dict[Place, list[str]] = {}

    def create(self, name: str, partitions: int) -> set[Place]:
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(SECONDS)
        return self._places(name, 0, partitions)

    def grow(self, name: str, partitions: int) -> set[Place]:
        before = len([place for place in self.produced if place[0] == name])
        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(SECONDS)
        with self._one_at_a_time:
            self._producer = Producer(self._settings)  # the old one would look for new partitions minutes from now
        return self._places(name, before, partitions)

    def _places(self, name: str, first: int, end: int) -> set[Place]:
        places = {(name, partition) for partition in range(first, end)}
        self.produced.update((place, []) for place in sorted(places))
        return places

    def fill(self, places: set[Place], count: int = 5) -> None:
        """So many more records into each; returns when all are acknowledged."""
        with self._one_at_a_time:
            self._fill(places, count)

    def _fill(self, places: set[Place], count: int) -> None:
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
                return
            topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
            assert topic is not None and partition is not None and isinstance(value, bytes)
            values = self.produced[topic, partition]
            # Of a batch that was sent again, since its answer came late, librdkafka does not know the offset.
            assert offset in {len(values), None}, f"{topic}-{partition}: {len(values)} others, then one at {offset}"
            values.append(value.decode())

        for topic, partition in sorted(places):
            start = len(self.produced[topic, partition])
            for offset in range(start, start + count):
                value: Any = f"{topic}/{partition}/{offset}"
                self._producer.produce(topic, value, partition=partition, on_delivery=delivered)
        left = self._producer.flush(SECONDS)
        assert not left and not failed, f"{left} records were not acknowledged, {len(failed)} failed: {failed[:3]}"

    def ends(self, places: set[Place]) -> dict[Place, int]:
        return {place: len(self.produced[place]) for place in places}

    def of(self, places: set[Place]) -> dict[Place, list[str]]:
        return {place: self.produced[place] for place in places}


class Stream:
    """Records keep coming: one into each of `places` every PACE_MS, for as long as the `with` lasts."""

    def __init__(self, topics: Topics, places: set[Place]) -> None:
        self.places = places
        """May be replaced at any time."""
        self.came_at_ms: list[int] = []
        """When the broker had acknowledged one into each."""
        self._topics = topics
        self._over = threading.Event()
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._over.wait(PACE_MS / 1_000):
                self._topics.fill(self.places, 1)
                self.came_at_ms.append(time.time_ns() // 1_000_000)
        except BaseException as trouble:  # noqa: BLE001 - told where the `with` ends
            self._trouble = trouble

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._trouble and kind is None:
            raise self._trouble
