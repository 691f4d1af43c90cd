"""What goes wrong around a Consumer: brokers that restart, freeze or vanish, garbage, failing listeners and assignors.

The caller gets an error that says what happened, or nothing happens to it at all; nothing hangs; close() returns.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import coterie
from broker.peer import Peer, Serving
from client.consumers import QUICK, QUICK_BROKER, Heard, consumer_of, fill, on, read, took_s, until, values
from client.peers import Asked, Run
from client.peers import Peer as FakeBroker
from coterie.assignors import Assignment, Member, Range, Topic
from coterie.client.consumer.async_consumer import AsyncConsumer
from coterie.client.member.states import AssignorError, ListenerError
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError, ErrorCode, KafkaError, RequestTimedOutError, TransactionAbortableError

pytestmark = pytest.mark.real_time

SOON_S = 25.0
"""Less than request.timeout.ms, which is what somebody waits for who does not notice; far more than it takes."""
SETS = [f"--set={name}={value}" for name, value in QUICK_BROKER.items()]


@pytest.fixture
def serving() -> Iterator[Serving]:
    with Serving(None, *SETS) as process:
        yield process


# --- brokers ----------------------------------------------------------------------------------------------------------


def test_a_broker_that_restarts_is_found_again_and_nothing_is_lost_or_read_twice(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", *SETS) as first:
        address = first.ready()
        port = int(address.rpartition(":")[2])
        fill(address, "t", 2, 3)
        consumer = consumer_of(address, session_timeout_ms=10_000)
        consumer.subscribe("t")
        got = read(6, consumer)
        consumer.commit()
        first.kill()
    assert consumer.poll(0.1) == []
    with Serving(tmp_path / "data", *SETS, port=port) as second:
        second.ready()
        fill(address, "t", 2, 2, first=3)
        got += read(10 - len(got), consumer)
        assert sorted(values(got)) == sorted(f"{number}:{at}" for number in range(2) for at in range(5))
        consumer.commit()
        consumer.close()


def test_a_broker_that_vanished_does_not_keep_anybody_waiting(serving: Serving) -> None:
    address = serving.ready()
    fill(address, "t", 1, 1)
    consumer = consumer_of(address)
    consumer.subscribe("t")
    read(1, consumer)
    serving.kill()
    assert 0.09 <= took_s(lambda: consumer.poll(0.1)) < SOON_S
    with pytest.raises((RequestTimedOutError, KafkaError)):
        consumer.commit(timeout=0.2)
    with pytest.raises(RequestTimedOutError, match="cannot connect to"):
        consumer.end_offsets(on("t", 0), timeout=3)
    assert took_s(lambda: consumer.close(timeout=0.5)) < SOON_S


def test_a_broker_that_freezes_does_not_keep_anybody_waiting(serving: Serving) -> None:
    """Its socket is open, nobody is home."""
    address = serving.ready()
    fill(address, "t", 1, 1)
    consumer = consumer_of(address)
    consumer.subscribe("t")
    read(1, consumer)
    serving.signal(signal.SIGSTOP)
    try:
        assert took_s(lambda: consumer.poll(0.1)) < SOON_S
        with pytest.raises(RequestTimedOutError):
            consumer.commit(timeout=0.2)
        assert took_s(lambda: consumer.close(timeout=0.5)) < SOON_S
    finally:
        serving.signal(signal.SIGCONT)


def test_nobody_there_at_all_is_no_reason_to_hang() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        consumer = consumer_of(address)
        consumer.subscribe("t")
        assert consumer.poll(0.1) == []
        assert "FindCoordinator" in consumer.explain()
        with pytest.raises(RequestTimedOutError, match="cannot connect to"):
            consumer.partitions_for("t", timeout=3)
        assert took_s(lambda: consumer.close(timeout=0.3)) < SOON_S


GARBAGE = {
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "letters": b"\x00\x00\x00\x08abcdefgh",
    "half a frame": b"\x00\x00\x10\x00abcdefgh",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("handshakes", [True, False])
def test_garbage_from_the_network_is_said_to_be_that(run: Run, garbage: bytes, handshakes: bool) -> None:
    async def story() -> None:
        def answer(_asked: Asked) -> bytes:
            return garbage

        async with FakeBroker(answer, handshakes=handshakes) as fake:
            consumer = AsyncConsumer({**QUICK, "bootstrap.servers": fake.bootstrap, "group.id": "g"})
            consumer.subscribe("t")
            assert await consumer.poll(0.05) == []
            with pytest.raises(CoterieError, match=r"127\.0\.0\.1:\d+ (sent|answered|closed)|did not answer"):
                await consumer.end_offsets(on("t", 0), timeout=2)
            async with asyncio.timeout(SOON_S):
                await consumer.close(timeout=0.3)

    run(story())


# --- listeners --------------------------------------------------------------------------------------------------------


class Raising(Heard):
    """Raises in one of its methods, the first time."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where: str | None = where

    def _maybe(self, where: str) -> None:
        if where == self._where:
            self._where = None
            raise ZeroDivisionError(where)

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        super().on_partitions_assigned(partitions)
        self._maybe("assigned")

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        super().on_partitions_revoked(partitions)
        self._maybe("revoked")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        super().on_partitions_lost(partitions)
        self._maybe("lost")


def test_a_listener_that_raises_when_assigned_loses_nothing(broker: coterie.Broker, name: str) -> None:
    """M14: the caller of poll hears of it, the assignment stays, records come."""
    fill(broker.bootstrap_servers, name, 2, 1)
    with consumer_of(broker.bootstrap_servers, group_id=name) as consumer:
        consumer.subscribe(name, Raising("assigned"))
        with pytest.raises(ListenerError, match=r"ZeroDivisionError.*assigned") as caught:
            until(lambda: False, consumer)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert consumer.assignment() == on(name, 0, 1)
        assert len(read(2, consumer)) == 2
        assert len(broker.rebalances(name)) == 1


def test_a_listener_that_raises_when_revoked_does_not_stop_the_rebalance(broker: coterie.Broker, name: str) -> None:
    fill(broker.bootstrap_servers, name, 2)
    with (
        consumer_of(broker.bootstrap_servers, group_id=name) as first,
        consumer_of(broker.bootstrap_servers, group_id=name) as second,
    ):
        first.subscribe(name, Raising("revoked"))
        until(first.assignment, first)
        second.subscribe(name)
        with pytest.raises(ListenerError, match=r"ZeroDivisionError.*revoked"):
            until(lambda: False, first, second)
        until(lambda: len(first.assignment()) == len(second.assignment()) == 1, first, second)


def test_a_listener_that_raises_when_lost_does_not_stop_the_return(broker: coterie.Broker, name: str) -> None:
    fill(broker.bootstrap_servers, name, 1)
    with consumer_of(broker.bootstrap_servers, group_id=name) as consumer:
        consumer.subscribe(name, Raising("lost"))
        until(consumer.assignment, consumer)
        remove(broker, name, consumer.group_metadata().member_id)
        with pytest.raises(ListenerError, match=r"ZeroDivisionError.*lost"):
            until(lambda: False, consumer)
        until(lambda: consumer.assignment() and consumer.group_metadata().generation_id > 1, consumer)


def test_the_offsets_of_a_member_that_was_removed_are_refused_in_a_transaction(
    broker: coterie.Broker, name: str
) -> None:
    """It had no member id and no generation then, and the group takes such offsets in any state (TO2)."""
    fill(broker.bootstrap_servers, name, 1, 1)
    with (
        consumer_of(broker.bootstrap_servers, group_id=name) as consumer,
        coterie.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as producer,
    ):
        lost: list[object] = []
        consumer.subscribe(name, on_lost=lost.append)
        read(1, consumer)
        had = consumer.group_metadata()
        remove(broker, name, had.member_id)
        until(lambda: "UNKNOWN_MEMBER_ID" in consumer.explain())
        assert consumer.group_metadata() == had and not lost
        with pytest.raises(TransactionAbortableError), producer.transaction():
            producer.send_offsets({TopicPartition(name, 0): 1}, consumer.group_metadata())


def remove(broker: coterie.Broker, group: str, member_id: str) -> None:
    """As an administrator does."""
    from coterie.protocol.apis import leave_group
    from coterie.protocol.messages import LeaveGroup, LeavingMember

    with Peer(broker.bootstrap_servers) as peer:
        left = peer.ask(leave_group, LeaveGroup(None, group, [LeavingMember(member_id)]))
        assert left.members[0].error is ErrorCode.NONE


def test_a_listener_that_raises_when_the_consumer_closes_is_heard_and_the_consumer_closed(
    broker: coterie.Broker, name: str
) -> None:
    fill(broker.bootstrap_servers, name, 1, 1)
    consumer = consumer_of(broker.bootstrap_servers, group_id=name)
    consumer.subscribe(name, Raising("revoked"))
    read(1, consumer)
    with pytest.raises(ListenerError, match=r"ZeroDivisionError.*revoked"):
        consumer.close()
    assert consumer.explain() == "closed"
    with Peer(broker.bootstrap_servers) as peer:
        assert peer.offsets_of(name) == {(name, 0): 1}


def test_an_interrupt_within_a_listener_reaches_the_caller_and_the_rebalance_goes_on(
    broker: coterie.Broker, name: str
) -> None:
    fill(broker.bootstrap_servers, name, 1, 1)
    interrupts = [KeyboardInterrupt]

    def assigned(_partitions: list[TopicPartition]) -> None:
        if interrupts:
            raise interrupts.pop()

    with consumer_of(broker.bootstrap_servers, group_id=name) as consumer:
        consumer.subscribe(name, on_assigned=assigned)
        with pytest.raises(KeyboardInterrupt):
            until(lambda: False, consumer)
        assert values(read(1, consumer)) == ["0:0"]


def test_a_listener_may_use_the_consumer(broker: coterie.Broker, name: str) -> None:
    """In the thread that polls; commits and seeks included."""
    fill(broker.bootstrap_servers, name, 1, 4)
    threads: set[int] = set()

    def assigned(partitions: list[TopicPartition]) -> None:
        threads.add(threading.get_ident())
        for one in partitions:
            consumer.seek(one, 2)

    def revoked(partitions: list[TopicPartition]) -> None:
        threads.add(threading.get_ident())
        consumer.commit({one: consumer.position(one) for one in partitions})

    with consumer_of(broker.bootstrap_servers, group_id=name, enable_auto_commit=False) as consumer:
        consumer.subscribe(name, on_assigned=assigned, on_revoked=revoked)
        assert values(read(2, consumer)) == ["0:2", "0:3"]
    assert threads == {threading.get_ident()}
    with Peer(broker.bootstrap_servers) as peer:
        assert peer.offsets_of(name) == {(name, 0): 4}


# --- assignors --------------------------------------------------------------------------------------------------------


class Broken(Range):
    name = "broken"

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        raise ZeroDivisionError(len(members), len(topics))


class Nonsense(Range):
    name = "nonsense"

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        return {members[0].id: {topic: [99] for topic in topics}}


@pytest.mark.parametrize(
    ("assignor", "says"), [(Broken, "raised ZeroDivisionError"), (Nonsense, "makes no sense.*no partition 99")]
)
def test_an_assignor_that_fails_is_named_to_the_caller_of_poll(
    broker: coterie.Broker, name: str, assignor: type[Range], says: str
) -> None:
    fill(broker.bootstrap_servers, name, 1)
    with consumer_of(broker.bootstrap_servers, group_id=name, partition_assignment_strategy=assignor) as consumer:
        consumer.subscribe(name)
        for _ in range(2):
            with pytest.raises(AssignorError, match=f'"{assignor.name}".*{says}|{says}'):
                until(lambda: False, consumer)
        assert consumer.assignment() == []


def test_a_mistake_of_ours_reaches_the_caller_of_poll(broker: coterie.Broker, name: str) -> None:
    """Silence would look like a quiet topic."""
    with consumer_of(broker.bootstrap_servers, group_id=name) as consumer:

        async def fails() -> None:
            raise ZeroDivisionError

        async def start() -> None:
            consumer._inner._engine.tasks.start(fails())

        consumer._run(start())
        with pytest.raises(ZeroDivisionError):
            until(lambda: False, consumer)


def test_a_request_that_cannot_be_written_is_answered_nevertheless(
    broker: coterie.Broker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member is owed an answer to every request: without one a commit waits in vain, and close for it."""
    consumer = consumer_of(broker.bootstrap_servers, group_id=name)

    def fails(*_: object) -> bytes:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr("coterie.protocol.apis.offset_commit.write_request", fails)
        with pytest.raises(CoterieError, match="OffsetCommit could not be sent: ZeroDivisionError"):
            consumer.commit({("t", 0): 1})
        consumer.commit_async({("t", 0): 1})
        assert took_s(consumer.close) < SOON_S
