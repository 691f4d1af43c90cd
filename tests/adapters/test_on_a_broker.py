"""kafka-python and aiokafka consumers that really use our assignors, on Apache Kafka itself and on our own broker."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import pytest
from aiokafka import AIOKafkaConsumer
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener

from apache_kafka import ApacheKafka, needs_apache_kafka
from coterie import Broker
from coterie.adapters import aiokafka as for_aiokafka
from coterie.adapters import kafka_python as for_kafka_python
from coterie.assignors import Assignment, Assignor, Member, RoundRobin, Topic
from raw_kafka import RawConnection

pytestmark = pytest.mark.real_time

TOPICS = {"orders": 7, "payments": 5}
SETTINGS: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 100, "enable_auto_commit": False}
PATIENCE_SECONDS = 60

POLL_MS = 1000
"""Longer than any join: kafka-python 3.0.12 forgets a join whose answer comes between two calls of poll."""

CHANGED = threading.Condition()
"""Some consumer was given or lost something."""

Partitions = frozenset[tuple[str, int]]


@contextmanager
def apache_kafka() -> Iterator[str]:
    with ApacheKafka({"broker.rack": "rack-a"}) as running:
        yield running.bootstrap


@contextmanager
def our_own() -> Iterator[str]:
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running.bootstrap_servers


@pytest.fixture(
    scope="module",
    params=[pytest.param(apache_kafka, marks=needs_apache_kafka), our_own],
    ids=["Apache Kafka", "Coterie"],
)
def kafka(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a broker that has our topics."""
    topics = [
        {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": (), "configs": ()}
        for name, count in TOPICS.items()
    ]
    with request.param() as bootstrap:
        with RawConnection(bootstrap) as connection:
            for answer in connection.ask("create_topics", 7, topics=topics, timeout=30_000).topics:
                assert not answer.error_code, answer
        yield bootstrap


@pytest.fixture
def group_id() -> str:
    return f"adapters-{uuid.uuid4()}"  # noqa: TID251  groups of one broker must not meet


class Watched(Assignor):
    """An assignor of one's own: deals as roundrobin does, and remembers what it was told."""

    name = "watched"

    def __init__(self) -> None:
        self.groups: list[list[Member]] = []
        self.topics: Mapping[str, Topic] = {}
        self.generations: list[int] = []

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        self.groups.append(list(members))
        self.topics = topics
        return RoundRobin().assign(members, topics)

    def user_data(self, topics: Any, owned: Any, generation: int) -> bytes | None:  # noqa: ARG002
        return b"said by %d" % generation

    def on_assignment(self, owned: Any, generation: int) -> None:  # noqa: ARG002
        self.generations.append(generation)


def _pairs(partitions: Any) -> Partitions:
    return frozenset((tp.topic, tp.partition) for tp in partitions)


class Poller:
    """A kafka-python consumer in a thread, as an application has it; what it is given and loses is written down."""

    def __init__(self, kafka: str, group_id: str, strategy: Any) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=kafka, group_id=group_id, partition_assignment_strategy=[strategy], **SETTINGS
        )
        self.lost: list[Partitions] = []
        self.owned: Partitions = frozenset()
        self._stop = threading.Event()
        self._consumer.subscribe(list(TOPICS), listener=_Listener(self))
        self._thread = threading.Thread(target=self._poll)

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._consumer.poll(timeout_ms=POLL_MS)
        self._consumer.close()

    def changed(self, *, given: Any = (), taken: Any = ()) -> None:
        with CHANGED:
            self.owned = self.owned - _pairs(taken) | _pairs(given)
            CHANGED.notify_all()

    def until(self, holds: Any) -> None:
        with CHANGED:
            assert CHANGED.wait_for(holds, PATIENCE_SECONDS), sorted(self.owned)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, poller: Poller) -> None:
        self._poller = poller

    def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            self._poller.lost.append(_pairs(revoked))
        self._poller.changed(taken=revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._poller.changed(given=assigned)


def shared(*pollers: Poller) -> bool:
    """Everything is read, once, and nobody has more than one partition more than another."""
    loads = [len(poller.owned) for poller in pollers]
    everything = frozenset().union(*(poller.owned for poller in pollers))
    return sum(loads) == len(everything) == sum(TOPICS.values()) and max(loads) - min(loads) <= 1


def protocol_of(kafka: str, group_id: str) -> str:
    with RawConnection(kafka) as connection:
        (group,) = connection.ask("describe_groups", 5, groups=[group_id], include_authorized_operations=False).groups
        return str(group.protocol_data)


def test_a_kafka_python_group_uses_our_sticky(kafka: str, group_id: str) -> None:
    with Poller(kafka, group_id, for_kafka_python.adapt("sticky")) as one:
        one.until(lambda: shared(one))
        assert protocol_of(kafka, group_id) == "sticky"
        with Poller(kafka, group_id, for_kafka_python.adapt("sticky")) as two:
            two.until(lambda: shared(one, two))
            had = one.owned, two.owned
            with Poller(kafka, group_id, for_kafka_python.adapt("sticky")) as three:
                three.until(lambda: shared(one, two, three))
                assert one.owned < had[0]  # sticky: both gave something up and got nothing else
                assert two.owned < had[1]
            two.until(lambda: shared(one, two))
        one.until(lambda: shared(one))


def test_a_kafka_python_group_uses_our_cooperative_sticky(kafka: str, group_id: str) -> None:
    """KIP-429: a member loses what moves and nothing else, and all is done after a second rebalance."""
    with Poller(kafka, group_id, for_kafka_python.adapt("cooperative-sticky")) as one:
        one.until(lambda: shared(one))
        before = one.owned
        with Poller(kafka, group_id, for_kafka_python.adapt("cooperative-sticky")) as two:
            two.until(lambda: shared(one, two))
            assert protocol_of(kafka, group_id) == "cooperative-sticky"
            assert one.lost == [two.owned]
            assert one.owned == before - two.owned


def test_a_kafka_python_group_uses_an_assignor_of_ones_own(kafka: str, group_id: str) -> None:
    mine, other = Watched(), Watched()
    with (
        Poller(kafka, group_id, for_kafka_python.adapt(mine, rack="rack-a")) as one,
        Poller(kafka, group_id, for_kafka_python.adapt(other)) as two,
    ):
        two.until(lambda: shared(one, two))
    first_groups = [each.groups[0] for each in (mine, other) if each.groups]  # either may have led, one after the other
    said = [{member.user_data for member in group} for group in first_groups]
    assert any(each <= {b"said by -1", b"said by 1"} for each in said)
    leader = mine if mine.groups else other
    assert leader.topics["orders"].partitions == 7
    assert leader.topics["orders"].racks in ([["rack-a"]] * 7, None)  # None: our broker has no rack
    assert any(member.rack == "rack-a" for member in leader.groups[-1]) or len(leader.groups[-1]) == 1
    assert mine.generations
    assert mine.generations[0] >= 1


def partitions(consumer: AIOKafkaConsumer) -> Partitions:
    return _pairs(consumer.assignment())


async def start(kafka: str, group_id: str, strategy: Any) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(
        *TOPICS,
        bootstrap_servers=kafka,
        group_id=group_id,
        partition_assignment_strategy=[strategy],
        **SETTINGS,
    )
    await consumer.start()
    return consumer


async def shared_by(*consumers: AIOKafkaConsumer) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            loads = [len(partitions(consumer)) for consumer in consumers]
            everything = frozenset().union(*map(partitions, consumers))
            if sum(loads) == len(everything) == sum(TOPICS.values()) and max(loads) - min(loads) <= 1:
                return
            await consumers[-1].getmany(timeout_ms=50)


def test_an_aiokafka_group_uses_our_sticky(kafka: str, group_id: str) -> None:
    async def story() -> None:
        one = await start(kafka, group_id, for_aiokafka.adapt("sticky"))
        try:
            await shared_by(one)
            assert protocol_of(kafka, group_id) == "sticky"
            two = await start(kafka, group_id, for_aiokafka.adapt("sticky"))
            await shared_by(one, two)
            had = partitions(one), partitions(two)
            three = await start(kafka, group_id, for_aiokafka.adapt("sticky"))
            await shared_by(one, two, three)
            assert partitions(one) < had[0]
            assert partitions(two) < had[1]
            await three.stop()
            await shared_by(one, two)
            await two.stop()
        finally:
            await one.stop()

    asyncio.run(story())


def test_both_libraries_share_a_group(kafka: str, group_id: str) -> None:
    """Whoever leads reads what the other wrote."""

    async def join_and_leave(other: Poller) -> Partitions:
        consumer = await start(kafka, group_id, for_aiokafka.adapt("sticky"))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(other.owned) != 6 or other.owned & partitions(consumer) or len(partitions(consumer)) != 6:
                    await consumer.getmany(timeout_ms=50)
            return partitions(consumer)
        finally:
            await consumer.stop()

    with Poller(kafka, group_id, for_kafka_python.adapt("sticky")) as one:
        one.until(lambda: shared(one))
        taken = asyncio.run(join_and_leave(one))
        assert len(taken) == 6
        one.until(lambda: shared(one))
