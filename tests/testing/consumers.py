"""Consumers for these tests: of each client library, polling in a thread until they are told to stop."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from coterie import Consumer
from coterie.testing import KafkaBroker

HEARTBEAT_MS = 50


class Polling:
    """A consumer that polls in a thread, and keeps what it has read."""

    def __init__(
        self, poll: Callable[[], list[bytes]], close: Callable[[], None], *, closes_at_once: bool = False
    ) -> None:
        """`closes_at_once`: a poll takes long, and ends when the consumer is closed in another thread."""
        self.read: list[bytes] = []
        self._closes_at_once = closes_at_once
        self._poll = poll
        self._close = close
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.read += self._poll()
        except BaseException as error:  # noqa: BLE001  raised again by stop
            if not (self._closes_at_once and self._stop.is_set()):
                self._error = error
        finally:
            if not self._closes_at_once:
                self._close()

    def stop(self) -> None:
        if not self._stop.is_set() and self._closes_at_once:
            self._stop.set()
            self._close()
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._closes_at_once:
            gc.collect()  # kafka-python leaves sockets open (conftest.py)
        if self._error is not None:
            raise self._error


def ours(broker: KafkaBroker, client_id: str, **settings: Any) -> Polling:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers},
        **{
            "group_id": "billing",
            "client_id": client_id,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "auto_commit_interval_ms": 20,
            **settings,
        },
    )
    consumer.subscribe(["orders"])
    return Polling(lambda: [record.value or b"" for record in consumer.poll(0.02)], consumer.close)


def confluent(broker: KafkaBroker, client_id: str, **settings: Any) -> Polling:
    from confluent_kafka import Consumer as ConfluentConsumer

    more = {name.replace("_", "."): value for name, value in settings.items()}
    classic = {"heartbeat.interval.ms": HEARTBEAT_MS} if more.get("group.protocol") != "consumer" else {}
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "client.id": client_id,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 20,
            **classic,
            **more,
        }
    )
    consumer.subscribe(["orders"])

    def poll() -> list[bytes]:
        return [message.value() or b"" for message in consumer.consume(100, 0.02) if message.error() is None]

    return Polling(poll, consumer.close)


def kafka_python(broker: KafkaBroker, client_id: str, **settings: Any) -> Polling:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="billing",
        client_id=client_id,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_commit_interval_ms=20,
        reconnect_backoff_max_ms=200,  # by default it waits up to 30 s before it connects again
        **settings,
    )

    def poll() -> list[bytes]:
        """Poll for long: a poll of kafka-python 3.0 that ends while the member joins loses the assignment."""
        return [record.value for records in consumer.poll(3_600_000).values() for record in records]

    return Polling(poll, consumer.close, closes_at_once=True)


LIBRARIES = {"ours": ours, "confluent-kafka": confluent, "kafka-python": kafka_python}


@contextmanager
def members(
    broker: KafkaBroker, *names: str, library: Callable[..., Polling] = ours, **settings: Any
) -> Iterator[list[Polling]]:
    """Start members of the group `billing`, and wait until each has its partitions."""
    started: list[Polling] = []
    partitions = broker.topic("orders").partitions
    others = len(broker.group("billing").members)
    try:
        for name in names:
            started.append(library(broker, name, **settings))
            broker.group("billing").wait_stable(members=others + len(started), partitions=partitions, timeout=60)
        yield started
    finally:
        for one in started:
            one.stop()  # raises what ended its thread, if anything did
