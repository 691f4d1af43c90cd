"""Waits with names: each returns when its condition holds, and says what did happen when it does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coterie import Consumer
from coterie.errors import CoterieError
from coterie.facts import Cause
from coterie.testing import KafkaBroker, WaitTimeoutError
from testing.consumers import LIBRARIES, members, ours

pytestmark = pytest.mark.kafka(topics={"orders": 2})


@pytest.mark.parametrize("library", LIBRARIES)
def test_members_of_every_library_are_waited_for(kafka_broker: KafkaBroker, library: str) -> None:
    group = kafka_broker.group("billing")
    assert group.state == "Dead" and group.members == []
    with members(kafka_broker, "a", "b", library=LIBRARIES[library]) as (a, b):
        now = group.wait_stable(members=2, timeout=60)
        owned = [one for had in now.assignment.values() for one in had]
        assert sorted(now.assignment) == ["a", "b"] and sorted(owned) == ["orders-0", "orders-1"]
        group.wait_assigned({"a": now.assignment["a"]})
        for partition in (0, 1):
            kafka_broker.produce("orders", [b"x", b"y"], partition=partition)
        assert group.wait_committed("orders", 0, 2, timeout=60) == 2
        group.wait_committed("orders", 1, 2, timeout=60)
        assert sorted(a.read) == sorted(b.read) == [b"x", b"y"]
        b.stop()
        alone = group.wait_assigned({"a": ["orders-0", "orders-1"]}, timeout=60)
        assert [member.client_id for member in alone.members] == ["a"]
    group.wait_empty(timeout=60)
    assert group.committed == {"orders-0": 2, "orders-1": 2}


def test_a_rebalance_is_returned_once_and_others_are_passed_over(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a"):
        first = group.wait_rebalance()
        assert (first.cause, first.old_generation_id) == (Cause.NEW_MEMBER, 0)
        with members(kafka_broker, "b"):
            pass
        left = group.wait_rebalance("member left")
        assert left.cause is Cause.MEMBER_LEFT and left.culprit.startswith("b-")
        with pytest.raises(WaitTimeoutError, match="group billing to rebalance, caused by: new member"):
            group.wait_rebalance(Cause.NEW_MEMBER, timeout=0.01)
    with pytest.raises(CoterieError, match="no cause 'member leaves' of a rebalance: did you mean member left"):
        group.wait_rebalance("member leaves")


def test_a_timeout_says_what_was_waited_for_and_what_happened(kafka_broker: KafkaBroker) -> None:
    kafka_broker.produce("orders", [b"x"], partition=0)
    with members(kafka_broker, "a"):
        kafka_broker.group("billing").wait_committed("orders", 0, 1)
        with pytest.raises(WaitTimeoutError) as timeout:
            kafka_broker.group("billing").wait_stable(members=2, timeout=0.01)
    text = str(timeout.value)
    assert text.startswith("waited 0.01 s for group billing to be Stable with 2 members\n")
    assert "group billing is Stable, generation 1; a has orders-0 orders-1; committed: orders-0=1" in text
    for line in ("a joined (a-", "rebalance: new member (a)", "Stable; a: orders-0 orders-1", "a committed orders-0=1"):
        assert line in text
    assert "SyncGroup gen 1" in text and "CompletingRebalance" in text


def test_records_are_waited_for_in_a_topic_or_a_partition(kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.topic("orders")
    kafka_broker.produce("orders", [("k", "v"), None], partition=1, headers={"h": b"1"}, timestamp=7)
    first, second = topic.wait_records(2)
    assert (first.key, first.value, first.partition, first.offset) == (b"k", b"v", 1, 0)
    assert (first.headers, first.timestamp, second.value) == ((("h", b"1"),), 7, None)
    assert topic.records == [first, second]
    with pytest.raises(WaitTimeoutError, match="orders-0 to have 1 record"):
        topic.wait_records(1, partition=0, timeout=0.01)
    with pytest.raises(CoterieError, match="no partition 2 of topic 'orders': it has 2"):
        kafka_broker.produce("orders", [b"x"], partition=2)


def test_a_topic_has_the_records_that_a_consumer_reads(kafka_broker: KafkaBroker) -> None:
    written = kafka_broker.produce("orders", [("k", "v"), None], headers={"h": b"1"})
    written += kafka_broker.produce("orders", [b"later"], timestamp=7)
    settings = {"bootstrap.servers": kafka_broker.bootstrap_servers, "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.assign([("orders", 0)])
        read = list(consumer.poll(10))
        while len(read) < 3:
            read += consumer.poll(10)
    assert read == written == kafka_broker.topic("orders").records


def test_all_waits_have_an_async_form(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")

    async def test() -> None:
        kafka_broker.produce("orders", [b"x"], partition=0)
        member = ours(kafka_broker, "a")
        await group.wait_members_async(1)
        await group.wait_stable_async(members=1)
        await group.wait_assigned_async({"a": ["orders-0", "orders-1"]})
        await group.wait_committed_async("orders", 0, 1)
        assert (await group.wait_rebalance_async()).cause is Cause.NEW_MEMBER
        await kafka_broker.topic("orders").wait_records_async(1)
        await kafka_broker.clock.advance_async(5)
        await kafka_broker.clock.silence_async("a")
        await group.wait_rebalance_async(Cause.SESSION_EXPIRED)
        await asyncio.to_thread(member.stop)
        await group.wait_empty_async()

    asyncio.run(test())


def test_a_member_of_aiokafka_in_the_loop_of_the_test(kafka_broker: KafkaBroker) -> None:
    from aiokafka import AIOKafkaConsumer

    group, read = kafka_broker.group("billing"), list[bytes]()

    async def consume(consumer: Any) -> None:
        async for record in consumer:
            read.append(record.value)

    async def test() -> None:
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=kafka_broker.bootstrap_servers,
            group_id="billing",
            client_id="a",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=50,
            auto_commit_interval_ms=20,
        )
        await consumer.start()
        consuming = asyncio.create_task(consume(consumer))
        await group.wait_stable_async(members=1, partitions=2, timeout=60)
        kafka_broker.produce("orders", [b"x"], partition=1)
        await group.wait_committed_async("orders", 1, 1, timeout=60)
        await kafka_broker.clock.advance_async(3_600)
        assert [member.client_id for member in group.members] == ["a"]
        await kafka_broker.clock.silence_async("a")
        assert (await group.wait_rebalance_async("session expired", timeout=60)).culprit.startswith("a-")
        async with kafka_broker.faults.on("OffsetCommit").drop_connection(times=1) as fault:
            await group.wait_stable_async(members=1, partitions=2, timeout=60)
            kafka_broker.produce("orders", [b"y"], partition=1)
            await fault.wait_hit_async(timeout=60)
            await group.wait_committed_async("orders", 1, 2, timeout=60)
        consuming.cancel()
        await consumer.stop()

    asyncio.run(test())
    group.wait_empty(timeout=60)
    kafka_broker.topic("orders").assert_processed_once(read)


def test_a_broker_is_an_async_context_manager() -> None:
    async def test() -> None:
        async with KafkaBroker(topics={"orders": 1}) as broker:
            assert broker.topic("orders").partitions == 1

    asyncio.run(test())


def test_a_stop_ends_a_wait() -> None:
    with KafkaBroker() as broker:

        async def test() -> None:
            waiting = asyncio.create_task(broker.group("g").wait_stable_async(timeout=60))
            await asyncio.sleep(0)
            await asyncio.to_thread(broker.stop)
            with pytest.raises(CoterieError, match="the broker was stopped while the test waited"):
                await waiting

        asyncio.run(test())


def test_members_that_run_have_asked_for_the_offsets_of_their_partitions(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    with kafka_broker.faults.on("OffsetFetch").hold(times=1) as held:
        member = ours(kafka_broker, "a")
        held.wait_hit()
        assert group.wait_running(members=1).assignment == {"a": ["orders-0", "orders-1"]}
    with kafka_broker.faults.on("SyncGroup", member="b").hold() as held:
        other = ours(kafka_broker, "b")
        held.wait_hit()
        with pytest.raises(WaitTimeoutError, match="billing to be Stable with 2 members that use their partitions"):
            group.wait_running(members=2, timeout=0.01)
    assert len(group.wait_running(members=2).members) == 2
    member.stop()
    other.stop()
