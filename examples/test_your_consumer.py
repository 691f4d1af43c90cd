"""A pytest test of a consumer of yours: a real broker in memory, real members, and nothing to install or to clean up.

    pytest examples/test_your_consumer.py

`bill` stands for your code. It is written with Coterie's consumer here; with any other Kafka client it is the same
test, since all the client gets is an address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from coterie import Admin, Broker, Consumer, NewTopic, Producer
from coterie.facts import Cause


def bill(consumer: Consumer, billed: Counter[str], orders: int) -> None:
    """The code under test: every order is billed once, as long as nobody crashes in between."""
    while sum(billed.values()) < orders:
        for record in consumer.poll(0.2):
            assert record.value is not None
            billed[record.value.decode()] += 1
        consumer.commit()


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1_000}
    with Broker(settings=settings) as broker:
        with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("orders", 4)])
        yield broker


def consumer_of(broker: Broker) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers},
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=100,
        session_timeout_ms=2_000,
    )
    consumer.subscribe(["orders"])
    return consumer


def order(broker: Broker, first: int, last: int) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number in range(first, last):
            producer.send("orders", f"order {number}", partition=number % 4)


def test_what_was_committed_is_not_billed_again_after_a_crash(broker: Broker) -> None:
    billed: Counter[str] = Counter()
    order(broker, 0, 40)
    with consumer_of(broker) as first:
        bill(first, billed, 40)
        first.close(leave=False)  # to the group that is a crash: nobody said goodbye

    order(broker, 40, 80)
    with consumer_of(broker) as second:  # has nothing until the session of the first has ended
        bill(second, billed, 80)

    assert billed == Counter({f"order {number}": 1 for number in range(80)})
    causes = [one.cause for one in broker.rebalances("billing")]
    assert causes[0] is Cause.NEW_MEMBER and causes[-1] is Cause.MEMBER_LEFT
