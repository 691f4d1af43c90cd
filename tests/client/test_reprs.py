"""How the things users hold print: short, and with what one wants to know first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import coterie
from client.consumers import QUICK_BROKER, consumer_of, fill, on, until
from client.peers import Run

pytestmark = pytest.mark.real_time


def test_a_broker_says_where_it_is(tmp_path: Path) -> None:
    broker = coterie.Broker(tmp_path)
    assert repr(broker) == f"Broker(stopped, {tmp_path})"
    with coterie.Broker() as running:
        assert repr(running) == f"Broker({running.bootstrap_servers}, memory)"
    assert repr(running) == "Broker(stopped, memory)"


def test_a_consumer_says_its_group_its_state_and_how_much_it_reads(broker: coterie.Broker, name: str) -> None:
    fill(broker.bootstrap_servers, name, 2)
    consumer = consumer_of(broker.bootstrap_servers, group_id=name)
    assert repr(consumer) == f'Consumer(group "{name}", Unjoined, 0 partitions)'
    consumer.subscribe(name)
    until(lambda: "Stable" in repr(consumer), consumer)
    assert repr(consumer) == f'Consumer(group "{name}", Stable in generation 1, 2 partitions)'
    consumer.close()
    assert repr(consumer) == f'Consumer(group "{name}", closed)'
    with coterie.Consumer(bootstrap_servers=broker.bootstrap_servers) as reader:
        reader.assign(on(name, 0))
        assert repr(reader) == "Consumer(no group, 1 partition assigned by hand)"


def test_an_async_consumer_can_be_printed_before_it_is_used(broker: coterie.Broker, run: Run) -> None:
    consumer = coterie.AsyncConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")
    assert repr(consumer) == 'AsyncConsumer(group "g", not started)'

    async def main() -> None:
        async with consumer:
            assert repr(consumer) == 'AsyncConsumer(group "g", Unjoined, 0 partitions)'

    run(main())
    assert repr(consumer) == 'AsyncConsumer(group "g", closed)'


def test_a_producer_and_an_admin_say_where_they_go(broker: coterie.Broker) -> None:
    where = broker.bootstrap_servers
    with coterie.Producer(bootstrap_servers=where) as producer:
        assert repr(producer) == f"Producer({where}, 0 records under way)"
    assert repr(producer) == f"Producer({where}, closed)"
    with coterie.Admin(bootstrap_servers=where) as admin:
        assert repr(admin) == f"Admin({where})"
    assert repr(admin) == f"Admin({where}, closed)"


def test_a_rebalance_is_a_line() -> None:
    with coterie.Broker(settings=QUICK_BROKER) as broker:
        fill(broker.bootstrap_servers, "t", 2)
        with consumer_of(broker.bootstrap_servers, group_id="bar") as consumer:
            consumer.subscribe("t")
            until(lambda: len(consumer.assignment()) == 2, consumer)
            (first,) = broker.rebalances("bar")
        said = r"<rebalance of bar: new member \(.+\), stable after \d+ ms, generation 1, 2 moved, 0 kept>"
        assert re.fullmatch(said, repr(first)), repr(first)
