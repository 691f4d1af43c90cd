"""Ten tests of the service with confluent-kafka, against a broker of coterie.testing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from coterie.testing import KafkaBroker
from members import Members

BOTH = ["orders-0", "orders-1"]
QUICK = {"heartbeat_interval_ms": 20, "statistics_interval_ms": 10, "fetch_wait_max_ms": 20}


@pytest.fixture
def broker(kafka_broker: KafkaBroker) -> KafkaBroker:
    kafka_broker.create_topic("orders", partitions=2)
    kafka_broker.create_topic("orders.dead")
    return kafka_broker


@pytest.fixture
def members(broker: KafkaBroker) -> Iterator[Members]:
    with Members(broker.bootstrap_servers, "billing", "orders", **QUICK) as members:
        yield members


def order(broker: KafkaBroker, *numbers: str, partition: int = 0) -> None:
    broker.produce("orders", [json.dumps({"number": one, "cents": 100}) for one in numbers], partition=partition)


def test_orders_are_billed_and_committed(broker: KafkaBroker, members: Members) -> None:
    order(broker, "1", "2")
    members.start("a")
    broker.group("billing").wait_committed("orders", 0, 2)
    assert members.attempts == ["1", "2"]


def test_a_crash_before_the_commit(broker: KafkaBroker, members: Members) -> None:
    opened = threading.Event()
    a, b = members.start("a", wait_for=opened), members.start("b")
    partition = int(broker.group("billing").wait_running(members=2).assignment["a"][0][-1])
    order(broker, "1", partition=partition)
    a.wait_reached()
    with broker.faults.cut_off("a"):
        broker.clock.silence("a")
        broker.group("billing").wait_committed("orders", partition, 1)
    assert a.attempts == b.attempts == ["1"]
    opened.set()
    broker.group("billing").wait_running(members=2)


def test_what_was_committed_is_not_billed_again(broker: KafkaBroker, members: Members) -> None:
    order(broker, "1", "2")
    members.start("a")
    broker.group("billing").wait_committed("orders", 0, 2)
    with broker.faults.cut_off("a"):
        broker.clock.silence("a")
        b = members.start("b")
        order(broker, "3")
        broker.group("billing").wait_committed("orders", 0, 3)
    assert b.attempts == ["3"]
    broker.group("billing").wait_running(members=2)


def test_a_slow_member_loses_its_partitions(broker: KafkaBroker, members: Members) -> None:
    opened = threading.Event()
    slow = members.start("slow", wait_for=opened)
    order(broker, "1")
    slow.wait_reached()
    quick = members.start("quick")
    broker.group("billing").wait_members(2)
    broker.clock.advance(300)
    broker.group("billing").wait_assigned({"quick": BOTH})
    broker.group("billing").wait_committed("orders", 0, 1)
    assert slow.attempts == quick.attempts == ["1"]
    opened.set()
    broker.group("billing").wait_running(members=2)


def test_a_long_order_is_no_rebalance(broker: KafkaBroker, members: Members) -> None:
    opened = threading.Event()
    a = members.start("a", wait_for=opened)
    order(broker, "1")
    a.wait_reached()
    with broker.group("billing").assert_no_rebalance():
        broker.clock.advance(60)
        opened.set()
        broker.group("billing").wait_committed("orders", 0, 1)


def test_a_static_restart_is_no_rebalance(broker: KafkaBroker, members: Members) -> None:
    a, _ = (members.start(name, group_instance_id=name) for name in ("a", "b"))
    partition = int(broker.group("billing").wait_running(members=2).assignment["a"][0][-1])
    with broker.group("billing").assert_no_rebalance():
        a.stop()
        order(broker, "1", partition=partition)
        again = members.start("a", group_instance_id="a")
        broker.group("billing").wait_committed("orders", partition, 1)
    assert again.attempts == ["1"]


def test_a_static_member_that_does_not_come_back(broker: KafkaBroker, members: Members) -> None:
    a, b = (members.start(name, group_instance_id=name) for name in ("a", "b"))
    partition = int(broker.group("billing").wait_running(members=2).assignment["a"][0][-1])
    a.stop()
    order(broker, "1", partition=partition)
    broker.clock.silence("a")
    broker.group("billing").wait_committed("orders", partition, 1)
    assert b.attempts == ["1"]


def test_a_poison_record(broker: KafkaBroker, members: Members) -> None:
    broker.produce("orders", ["no order"])
    order(broker, "1")
    members.start("a")
    broker.group("billing").wait_committed("orders", 0, 2)
    assert [record.value for record in broker.topic("orders.dead").records] == [b"no order"]
    assert members.attempts == ["1"]


def test_a_rolling_deploy(broker: KafkaBroker, members: Members) -> None:
    old = [members.start(name) for name in ("a1", "b1")]
    broker.group("billing").wait_running(members=2)
    for number, name in enumerate(("a2", "b2")):
        order(broker, f"0-{number}", partition=0)
        order(broker, f"1-{number}", partition=1)
        old[number].stop()
        broker.group("billing").wait_running(members=1)
        members.start(name)
        broker.group("billing").wait_running(members=2)
    broker.group("billing").wait_committed("orders", 0, 2)
    broker.group("billing").wait_committed("orders", 1, 2)
    assert sorted(members.attempts) == ["0-0", "0-1", "1-0", "1-1"]


def test_a_rolling_deploy_of_static_members(broker: KafkaBroker, members: Members) -> None:
    old = [members.start(name, group_instance_id=name) for name in ("a", "b")]
    before = broker.group("billing").wait_running(members=2).assignment
    with broker.group("billing").assert_no_rebalance():
        for member, name in zip(old, ("a", "b"), strict=True):
            member.stop()
            order(broker, name, partition=int(before[name][0][-1]))
            members.start(name, group_instance_id=name)
            broker.group("billing").wait_committed("orders", int(before[name][0][-1]), 1)
    assert sorted(members.attempts) == ["a", "b"]
