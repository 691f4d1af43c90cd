"""Several Consumers in one group, on real sockets: sharing, rebalancing eagerly and cooperatively, coming back."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

import coterie
from broker.peer import Peer
from client.consumers import QUICK, QUICK_BROKER, Heard, consumer_of, fill, on, read, until, values
from client.peers import Run
from coterie.client.consumer.async_consumer import AsyncConsumer
from coterie.client.consumer.consumer import Consumer
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import CommitFailedError, FencedInstanceError
from coterie.facts import Cause
from coterie.protocol.apis import create_partitions
from coterie.protocol.records import Record

pytestmark = pytest.mark.real_time

EAGER, COOPERATIVE = "range", "cooperative-sticky"


class Members:
    """Consumers of one group; all are closed at the end."""

    def __init__(self, bootstrap: str, name: str, assignor: str, **more: object) -> None:
        self._how = {"group_id": name, "partition_assignment_strategy": assignor, **more}
        self._bootstrap = bootstrap
        self._name = name
        self.all: list[Consumer] = []
        self.heard: list[Heard] = []

    def join(self, **more: object) -> Consumer:
        consumer = consumer_of(self._bootstrap, **{**self._how, **more})
        self.all.append(consumer)
        self.heard.append(Heard())
        consumer.subscribe(self._name, self.heard[-1])
        return consumer

    def shares(self) -> list[list[int]]:
        return [[one.partition for one in consumer.assignment()] for consumer in self.all]

    def until_shared(self, *sizes: int) -> list[Record]:
        return until(lambda: sorted(map(len, self.shares())) == sorted(sizes), *self.all)

    def leave(self, consumer: Consumer) -> None:
        at = self.all.index(consumer)
        consumer.close()
        del self.all[at], self.heard[at]

    def close(self) -> None:
        for one in self.all:
            one.close()


@pytest.fixture(params=[EAGER, COOPERATIVE])
def members(broker: coterie.Broker, name: str, request: pytest.FixtureRequest) -> Iterator[Members]:
    fill(broker.bootstrap_servers, name, 6, 2)
    made = Members(broker.bootstrap_servers, name, request.param)
    yield made
    made.close()


def test_three_members_share_and_those_who_stay_take_over(members: Members) -> None:
    """003: each partition has one owner in a generation; at least once, and here exactly once."""
    first = members.join()
    got = read(12, first)
    assert len(set(values(got))) == 12
    members.join()
    members.until_shared(3, 3)
    third = members.join()
    members.until_shared(2, 2, 2)
    assert sorted(number for share in members.shares() for number in share) == list(range(6))
    members.leave(third)
    members.leave(first)
    members.until_shared(6)


def test_a_cooperative_member_keeps_what_it_keeps(broker: coterie.Broker, name: str) -> None:
    """KIP-429: revoked are only those that move; an eager member gives up all (M3)."""
    for assignor in (EAGER, COOPERATIVE):
        topic = f"{name}-{assignor}"
        fill(broker.bootstrap_servers, topic, 4)
        members = Members(broker.bootstrap_servers, topic, assignor)
        members.join()
        members.until_shared(4)
        members.join()
        members.until_shared(2, 2)
        revoked = members.heard[0].of("revoked")
        assert [len(partitions) for partitions in revoked] == [4 if assignor == EAGER else 2]
        assert members.heard[0].of("assigned")[0] == on(topic, 0, 1, 2, 3)
        assert members.heard[0].of("lost") == []
        members.close()


def test_while_a_cooperative_group_rebalances_records_of_what_stays_come(broker: coterie.Broker, name: str) -> None:
    """The second member joins and does not poll on, so that the rebalance cannot end."""
    fill(broker.bootstrap_servers, name, 2)
    members = Members(broker.bootstrap_servers, name, COOPERATIVE)
    first = members.join()
    members.until_shared(2)
    second = members.join()
    until(lambda: len(broker.rebalances(name)) == 2, second)
    fill(broker.bootstrap_servers, name, 2, 3, first=1)
    assert len(read(6, first)) == 6
    members.close()


def test_heartbeats_go_on_while_the_user_works_long(broker: coterie.Broker, name: str) -> None:
    """004: processing takes longer than the session; the member stays, and nobody is disturbed."""
    fill(broker.bootstrap_servers, name, 1, 1)
    with coterie.Broker(settings={**QUICK_BROKER, "group.min.session.timeout.ms": 100}) as strict:
        fill(strict.bootstrap_servers, name, 1, 1)
        with consumer_of(strict.bootstrap_servers, group_id=name, session_timeout_ms=300) as consumer:
            consumer.subscribe(name)
            read(1, consumer)
            time.sleep(1.0)
            consumer.commit()
            assert len(strict.rebalances(name)) == 1 and consumer.group_metadata().generation_id == 1


def test_who_does_not_poll_in_time_leaves_is_told_why_and_comes_back(broker: coterie.Broker, name: str) -> None:
    """M8: max.poll.interval.ms."""
    fill(broker.bootstrap_servers, name, 1, 3)
    heard = Heard()
    with consumer_of(
        broker.bootstrap_servers, group_id=name, max_poll_interval_ms=300, enable_auto_commit=False
    ) as consumer:
        consumer.subscribe(name, heard)
        read(3, consumer)
        until(lambda: broker.rebalances(name)[-1].cause is Cause.MEMBER_LEFT)
        assert broker.rebalances(name)[-1].reason == "consumer poll timeout has expired"
        with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms|poll"):
            consumer.commit()
        again = read(3, consumer)
        assert values(again)[0] == "0:0"
        assert heard.of("lost")[0] == on(name, 0)
        until(lambda: commits(consumer), consumer)


def commits(consumer: Consumer) -> bool:
    """On a busy machine the interval may have passed again."""
    with suppress(CommitFailedError):
        consumer.commit()
        return True
    return False


def test_while_the_others_wait_for_its_join_a_member_can_still_commit(broker: coterie.Broker, name: str) -> None:
    """Semantics 2: OffsetCommit is taken in PreparingRebalance; what is processed is not read twice."""
    fill(broker.bootstrap_servers, name, 2, 2)
    members = Members(broker.bootstrap_servers, name, EAGER, enable_auto_commit=False)
    first = members.join()
    read(4, first)
    until(lambda: len(broker.rebalances(name)) == 2, members.join())
    first.commit()
    assert members.until_shared(1, 1) == []
    assert until(lambda: all(one.lag()[one.assignment()[0]] == 0 for one in members.all), *members.all) == []
    members.close()


def test_a_pattern_finds_topics_that_come_later(broker: coterie.Broker, name: str) -> None:
    fill(broker.bootstrap_servers, f"{name}.a", 1, 1)
    with consumer_of(broker.bootstrap_servers, group_id=name) as consumer:
        consumer.subscribe(re.compile(f"{name}\\..*"))
        got = read(1, consumer)
        fill(broker.bootstrap_servers, f"{name}.b", 2, 1)
        fill(broker.bootstrap_servers, f"another-{name}.c", 1, 1)
        got += read(3 - len(got), consumer)
        assert {one.topic for one in got} == {f"{name}.a", f"{name}.b"}
        assert broker.rebalances(name)[-1].reason == "subscription has changed"


def test_partitions_that_are_added_are_shared_out(members: Members, broker: coterie.Broker, name: str) -> None:
    """M5: the leader watches."""
    members.join()
    members.join()
    members.until_shared(3, 3)
    with Peer(broker.bootstrap_servers) as peer:
        more = create_partitions.Topic(name=name, count=8)
        peer.ask(create_partitions, create_partitions.Request(topics=[more], timeout_ms=5_000))
    members.until_shared(4, 4)


def test_a_static_member_that_restarts_disturbs_nobody(broker: coterie.Broker, name: str) -> None:
    """KIP-345: back under its instance id, it has what it had, in the same generation."""
    fill(broker.bootstrap_servers, name, 4, 1)
    members = Members(broker.bootstrap_servers, name, EAGER)
    members.join()
    second = members.join(group_instance_id="two")
    members.until_shared(2, 2)
    rebalances = len(broker.rebalances(name))
    had, generation = second.assignment(), second.group_metadata().generation_id
    members.leave(second)
    second = members.join(group_instance_id="two")
    members.until_shared(2, 2)
    assert second.assignment() == had and second.group_metadata().generation_id == generation
    assert len(broker.rebalances(name)) == rebalances
    twin = members.join(group_instance_id="two")
    with pytest.raises(FencedInstanceError, match=r"group\.instance\.id"):
        until(lambda: False, twin, second)
    members.close()


def test_close_may_override_who_leaves(broker: coterie.Broker, name: str) -> None:
    """KIP-1092."""
    fill(broker.bootstrap_servers, name, 1)
    members = Members(broker.bootstrap_servers, name, EAGER)
    members.join(group_instance_id="one")
    members.until_shared(1)
    members.all.pop().close(leave=True)
    assert broker.rebalances(name)[-1].reason == "the consumer is being closed"
    members.join()
    members.until_shared(1)
    members.all.pop().close(leave=False)
    assert broker.rebalances(name)[-1].cause is Cause.NEW_MEMBER


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
def test_a_deleted_topic_does_not_stop_the_group(
    broker: coterie.Broker, name: str, assignor: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit before the join would be tried for max.poll.interval.ms, here 300 s, and everybody waits for it."""
    topics = [name, f"{name}-deleted"]
    for topic in topics:
        fill(broker.bootstrap_servers, topic, 2, 2)
    more: dict[str, object] = {"allow_auto_create_topics": False, "auto_commit_interval_ms": 60_000}
    members = Members(broker.bootstrap_servers, name, assignor, **more)
    for _ in range(2):
        members.join().subscribe(topics)
    members.until_shared(2, 2)
    until(lambda: sum(one.position(at) for one in members.all for at in one.assignment()) == 8, *members.all)
    generations = {one.group_metadata().generation_id for one in members.all}
    with coterie.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics([topics[1]])
    members.until_shared(1, 1)
    until(lambda: all(one.group_metadata().generation_id > max(generations) for one in members.all), *members.all)
    assert f"{topics[1]}-" in caplog.text and "not committed: the topic was deleted" in caplog.text
    assert all(one.topic == name for member in members.all for one in member.assignment())
    members.close()


def test_the_asynchronous_one_does_the_same(run: Run, broker: coterie.Broker, name: str) -> None:
    fill(broker.bootstrap_servers, name, 2, 3)
    heard: list[tuple[str, int]] = []

    async def story() -> None:
        async def revoked(partitions: list[TopicPartition]) -> None:
            await consumer.commit()
            heard.append(("revoked", len(partitions)))

        settings = {**QUICK, "bootstrap.servers": broker.bootstrap_servers, "group.id": name}
        async with AsyncConsumer(settings, enable_auto_commit=False) as consumer:
            consumer.subscribe(name, on_assigned=lambda many: heard.append(("assigned", len(many))), on_revoked=revoked)
            got = [record async for record in first_of(consumer, 6)]
            assert len(set(values(got))) == 6
            assert await consumer.position((name, 0)) == 3
            async with AsyncConsumer(settings, enable_auto_commit=False) as other:
                other.subscribe(name)
                while not other.assignment() or len(heard) < 3:  # the two hear of the rebalance in either order
                    await asyncio.gather(consumer.poll(0.02), other.poll(0.02))
                assert set((await other.committed()).values()) == {OffsetAndMetadata(3, leader_epoch=0)}

    run(story())
    assert heard[:3] == [("assigned", 2), ("revoked", 2), ("assigned", 1)]


async def first_of(consumer: AsyncConsumer, count: int) -> AsyncIterator[Record]:
    async for record in consumer:
        yield record
        count -= 1
        if not count:
            return
