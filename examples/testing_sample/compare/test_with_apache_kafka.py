"""The same ten tests, as they are written against a Kafka in a container: one for all tests, and polling.

KAFKA_BOOTSTRAP_SERVERS is its address. Each test has topics and a group of its own. What happens by time needs time:
sessions of 6 s, which is the least that Kafka allows, and `max.poll.interval.ms` of 10 s.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from members import Members

TIMEOUT_S = 60.0
SESSION_MS = 6_000


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {TIMEOUT_S} s for {what}")
        time.sleep(0.1)


class Kafka:
    def __init__(self) -> None:
        self.bootstrap_servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        self.topic = f"orders-{uuid.uuid4().hex}"
        self.group = f"billing-{uuid.uuid4().hex}"
        self._offsets = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": self.group})
        topics = [NewTopic(self.topic, 2, 1), NewTopic(f"{self.topic}.dead", 1, 1)]
        for created in self.admin.create_topics(topics).values():
            created.result(TIMEOUT_S)

    def close(self) -> None:
        self._offsets.close()

    def order(self, *numbers: str, partition: int = 0) -> None:
        self.produce(*(json.dumps({"number": one, "cents": 100}) for one in numbers), partition=partition)

    def produce(self, *values: str, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        for value in values:
            producer.produce(self.topic, value, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0

    def describe(self) -> Any:
        return self.admin.describe_consumer_groups([self.group])[self.group].result(TIMEOUT_S)

    def assignment(self) -> dict[str, list[int]]:
        return {
            member.client_id: sorted(one.partition for one in member.assignment.topic_partitions)
            for member in self.describe().members
        }

    def member_ids(self) -> set[str]:
        return {member.member_id for member in self.describe().members}

    def wait_stable(self, members: int) -> dict[str, list[int]]:
        def is_stable() -> bool:
            try:
                now = self.describe()
            except KafkaException:
                return False
            owned = sum(len(member.assignment.topic_partitions) for member in now.members)
            return now.state.name == "STABLE" and len(now.members) == members and owned == 2

        wait_until(is_stable, f"{members} members")
        return self.assignment()

    def committed(self, partition: int) -> int:
        (found,) = self._offsets.committed([TopicPartition(self.topic, partition)], TIMEOUT_S)
        return int(found.offset)

    def wait_committed(self, partition: int, offset: int) -> None:
        def is_committed() -> bool:
            try:
                return self.committed(partition) >= offset
            except KafkaException:
                return False

        wait_until(is_committed, f"offset {offset} of partition {partition}")

    def dead_letters(self, count: int) -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": uuid.uuid4().hex})
        consumer.assign([TopicPartition(f"{self.topic}.dead", 0, 0)])
        found: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            record = consumer.poll(0.1)
            if record is not None and record.error() is None:
                found.append(record.value() or b"")
        consumer.close()
        return found


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    kafka = Kafka()
    yield kafka
    kafka.close()


@pytest.fixture
def members(kafka: Kafka) -> Iterator[Members]:
    settings = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 200}
    with Members(kafka.bootstrap_servers, kafka.group, kafka.topic, **settings) as members:
        yield members


def test_orders_are_billed_and_committed(kafka: Kafka, members: Members) -> None:
    kafka.order("1", "2")
    members.start("a")
    kafka.wait_committed(0, 2)
    assert members.attempts == ["1", "2"]


def test_a_crash_before_the_commit(kafka: Kafka, members: Members) -> None:
    # A member in this process cannot crash: a static one that is fenced by another one is as good as gone.
    opened = threading.Event()
    a, b = members.start("a", wait_for=opened, group_instance_id="a"), members.start("b")
    partition = kafka.wait_stable(members=2)["a"][0]
    kafka.order("1", partition=partition)
    a.wait_reached()
    again = members.start("a2", group_instance_id="a")
    kafka.wait_committed(partition, 1)
    assert a.attempts == ["1"]
    assert again.attempts + b.attempts == ["1"]
    opened.set()


def test_what_was_committed_is_not_billed_again(kafka: Kafka, members: Members) -> None:
    kafka.order("1", "2")
    a = members.start("a", group_instance_id="a")  # a static member does not leave when it is closed
    kafka.wait_committed(0, 2)
    a.stop()
    b = members.start("b")
    kafka.order("3")
    kafka.wait_committed(0, 3)  # the session of a has to end first
    assert b.attempts == ["3"]


def test_a_slow_member_loses_its_partitions(kafka: Kafka, members: Members) -> None:
    opened = threading.Event()
    slow = members.start("slow", wait_for=opened, max_poll_interval_ms=10_000)
    kafka.order("1")
    slow.wait_reached()
    quick = members.start("quick")
    wait_until(lambda: kafka.assignment().get("quick") == [0, 1], "all partitions of quick")
    kafka.wait_committed(0, 1)
    assert slow.attempts == quick.attempts == ["1"]
    opened.set()


def test_a_long_order_is_no_rebalance(kafka: Kafka, members: Members) -> None:
    opened = threading.Event()
    a = members.start("a", wait_for=opened)
    kafka.order("1")
    a.wait_reached()
    before = kafka.member_ids()
    time.sleep(SESSION_MS / 1000 + 1)
    opened.set()
    kafka.wait_committed(0, 1)
    assert kafka.member_ids() == before  # a rebalance that ended with the same members is not seen


def test_a_static_restart_is_no_rebalance(kafka: Kafka, members: Members) -> None:
    a, _ = (members.start(name, group_instance_id=name) for name in ("a", "b"))
    before = kafka.wait_stable(members=2)
    a.stop()
    kafka.order("1", partition=before["a"][0])
    again = members.start("a", group_instance_id="a")
    kafka.wait_committed(before["a"][0], 1)
    assert again.attempts == ["1"]
    assert kafka.assignment() == before  # a rebalance that ended with the same assignment is not seen


def test_a_static_member_that_does_not_come_back(kafka: Kafka, members: Members) -> None:
    a, b = (members.start(name, group_instance_id=name) for name in ("a", "b"))
    partition = kafka.wait_stable(members=2)["a"][0]
    a.stop()
    kafka.order("1", partition=partition)
    kafka.wait_committed(partition, 1)
    assert b.attempts == ["1"]


def test_a_poison_record(kafka: Kafka, members: Members) -> None:
    kafka.produce("no order")
    kafka.order("1")
    members.start("a")
    kafka.wait_committed(0, 2)
    assert kafka.dead_letters(1) == [b"no order"]
    assert members.attempts == ["1"]


def test_a_rolling_deploy(kafka: Kafka, members: Members) -> None:
    old = [members.start(name) for name in ("a1", "b1")]
    kafka.wait_stable(members=2)
    for number, name in enumerate(("a2", "b2")):
        kafka.order(f"0-{number}", partition=0)
        kafka.order(f"1-{number}", partition=1)
        old[number].stop()
        kafka.wait_stable(members=1)
        members.start(name)
        kafka.wait_stable(members=2)
    kafka.wait_committed(0, 2)
    kafka.wait_committed(1, 2)
    assert sorted(members.attempts) == ["0-0", "0-1", "1-0", "1-1"]


def test_a_rolling_deploy_of_static_members(kafka: Kafka, members: Members) -> None:
    old = [members.start(name, group_instance_id=name) for name in ("a", "b")]
    before = kafka.wait_stable(members=2)
    for member, name in zip(old, ("a", "b"), strict=True):
        member.stop()
        kafka.order(name, partition=before[name][0])
        members.start(name, group_instance_id=name)
        kafka.wait_committed(before[name][0], 1)
    assert sorted(members.attempts) == ["a", "b"]
    assert kafka.assignment() == before
