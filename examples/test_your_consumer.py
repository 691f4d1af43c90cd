"""pytest tests of a consumer of yours: a real broker, real members, no sleeps, and nothing to install or to clean up.

    pytest examples/test_your_consumer.py

`bill` stands for your code. It is written with Coterie's consumer here; with any other Kafka client it is the same
test, since all the client gets is an address. docs/testing.md has all that a test can wait for, move and break.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coterie import Consumer
from coterie.testing import KafkaBroker

pytestmark = pytest.mark.kafka(topics={"orders": 4})


def bill(consumer: Consumer, billed: list[bytes | None], stop: threading.Event) -> None:
    """The code under test: every order is billed once, as long as nobody crashes in between."""
    while not stop.is_set():
        for record in consumer.poll(0.05):
            billed.append(record.value)
            consumer.commit()


@contextmanager
def worker(broker: KafkaBroker, name: str, billed: list[bytes | None], *, crashes: bool = False) -> Iterator[None]:
    """Run the code under test in a thread. One that crashes does not leave the group."""
    stop = threading.Event()
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers},
        group_id="billing",
        client_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=50,
    )
    consumer.subscribe(["orders"])
    thread = threading.Thread(target=bill, args=(consumer, billed, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        consumer.close(leave=not crashes)


def test_what_was_committed_is_not_billed_again_after_a_crash(kafka_broker: KafkaBroker) -> None:
    group, billed = kafka_broker.group("billing"), list[bytes | None]()
    kafka_broker.produce("orders", ["tea", "milk"], partition=0)
    with worker(kafka_broker, "first", billed, crashes=True):
        group.wait_committed("orders", 0, 2)

    with worker(kafka_broker, "second", billed):
        group.wait_members(2)
        group.wait_disconnected("first")
        kafka_broker.clock.advance(45)  # the session timeout of the first, which nobody waits for
        group.wait_assigned({"second": ["orders-0", "orders-1", "orders-2", "orders-3"]})
        kafka_broker.produce("orders", ["cake"], partition=3)
        group.wait_committed("orders", 3, 1)

    kafka_broker.topic("orders").assert_processed_once(billed)


def test_a_commit_that_the_coordinator_refuses_for_a_while_is_repeated(kafka_broker: KafkaBroker) -> None:
    group, billed = kafka_broker.group("billing"), list[bytes | None]()
    kafka_broker.produce("orders", ["tea"], partition=0)
    with (
        kafka_broker.faults.on("OffsetCommit", group="billing").answer(
            "COORDINATOR_LOAD_IN_PROGRESS", times=3
        ) as fault,
        worker(kafka_broker, "first", billed),
    ):
        group.wait_committed("orders", 0, 1)
    assert [hit.error for hit in fault.hits] == ["COORDINATOR_LOAD_IN_PROGRESS"] * 3
    kafka_broker.topic("orders").assert_processed_once(billed)
