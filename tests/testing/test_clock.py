"""The clock: what is due happens when the test says, and members that are connected do not expire by that."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from coterie import Admin, Consumer
from coterie.errors import CoterieError
from coterie.facts import Cause
from coterie.testing import KafkaBroker, WaitTimeoutError
from coterie.testing.clock import MovableClock
from testing.consumers import LIBRARIES, Polling, confluent, members, ours

pytestmark = pytest.mark.kafka(topics={"orders": 2})


def new_protocol(broker: KafkaBroker, client_id: str) -> Polling:
    return confluent(broker, client_id, group_protocol="consumer")


KINDS: dict[str, Callable[..., Polling]] = {**LIBRARIES, "KIP-848": new_protocol}


@pytest.mark.parametrize("kind", KINDS)
def test_members_that_are_connected_are_credited_their_heartbeats(kafka_broker: KafkaBroker, kind: str) -> None:
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a", "b", library=KINDS[kind]):
        before = kafka_broker.clock.now_ms
        with group.assert_no_rebalance():
            kafka_broker.clock.advance(44)
            kafka_broker.clock.advance(3_600)
        assert kafka_broker.clock.now_ms - before >= 3_644_000
        assert len(group.members) == 2


@pytest.mark.parametrize("kind", ["ours", "KIP-848"])
def test_a_member_that_is_silent_expires_now_and_the_others_go_on(kafka_broker: KafkaBroker, kind: str) -> None:
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a", "b", library=KINDS[kind]):
        silent = next(member.member_id for member in group.members if member.client_id == "a")
        kafka_broker.clock.silence("a")
        if kind == "ours":  # in a consumer group it may be here again, with the same id
            assert silent not in [member.member_id for member in group.members]
        expired = group.wait_rebalance(Cause.SESSION_EXPIRED, timeout=60)
        assert expired.culprit == silent and expired.group_type == ("consumer" if kind == "KIP-848" else "classic")
        group.wait_stable(members=2, timeout=60)  # it joins again when it hears of that
        assert {member.client_id for member in group.members} == {"a", "b"}


def test_a_member_that_is_gone_without_a_word_expires_by_an_advance(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    consumer = Consumer({"bootstrap.servers": kafka_broker.bootstrap_servers}, group_id="billing", client_id="crashed")
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.02)
    consumer.close(leave=False)
    group.wait_disconnected("crashed")
    kafka_broker.clock.advance(44)
    assert len(group.members) == 1
    kafka_broker.clock.advance(1)
    assert group.state == "Empty"


def test_silence_names_the_members_that_there_are(kafka_broker: KafkaBroker) -> None:
    with pytest.raises(CoterieError, match="no member 'a'; the members are: none"):
        kafka_broker.clock.silence("a")
    with members(kafka_broker, "a", "b"):
        with pytest.raises(CoterieError, match="no member 'c' of group other; the members are: a of billing, b of"):
            kafka_broker.clock.silence("c", group="other")
        with members(kafka_broker, "a"), pytest.raises(CoterieError, match="2 members are called 'a'"):
            kafka_broker.clock.silence("a")
    with pytest.raises(CoterieError, match="the clock of a broker goes forward only"):
        kafka_broker.clock.advance(0)


def test_a_member_that_does_not_rejoin_in_time_is_removed_by_an_advance(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    busy = threading.Event()
    slow = ours(kafka_broker, "slow", max_poll_interval_ms=300_000)
    group.wait_stable(members=1)
    blocked = threading.Event()
    poll = slow._poll

    def process_for_long() -> list[bytes]:
        blocked.set()
        busy.wait(60)
        return []

    slow._poll = process_for_long
    assert blocked.wait(60)
    quick = ours(kafka_broker, "quick")
    try:
        group.wait_members(2)
        assert {member.name: member.state for member in group.members} == {"slow": "to join", "quick": "joining"}
        kafka_broker.clock.advance(299)
        assert group.state == "PreparingRebalance"
        kafka_broker.clock.advance(1)
        group.wait_assigned({"quick": ["orders-0", "orders-1"]}, timeout=60)
        assert group.wait_rebalance().cause is Cause.NEW_MEMBER
        assert list(group.wait_rebalance().dropped.values()) == ["did not join in time"]
    finally:
        slow._poll = poll
        busy.set()
        slow.stop()
        quick.stop()


@pytest.mark.kafka(settings={"group.initial.rebalance.delay.ms": 3_000})
def test_a_delayed_join_happens_when_the_test_says(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    with kafka_broker.clock.frozen():
        assert kafka_broker.clock.is_frozen
        started = [ours(kafka_broker, name) for name in ("a", "b")]
        group.wait_members(2)
        assert [member.state for member in group.members] == ["joining", "joining"]
        with pytest.raises(WaitTimeoutError):
            group.wait_stable(timeout=0.01)
        kafka_broker.clock.advance(3)
        kafka_broker.clock.advance(3)
        group.wait_stable(members=2)
    assert not kafka_broker.clock.is_frozen
    assert len(group.rebalances) == 1
    for member in started:
        member.stop()


def test_a_clock_that_stands_still_answers_long_polls(kafka_broker: KafkaBroker) -> None:
    with kafka_broker.clock.frozen(), members(kafka_broker, "a") as (a,):
        at = kafka_broker.clock.now_ms
        kafka_broker.produce("orders", [b"x"], partition=0)
        kafka_broker.group("billing").wait_committed("orders", 0, 1, timeout=60)
        assert a.read == [b"x"] and kafka_broker.clock.now_ms == at


@pytest.mark.kafka(settings={"offsets.retention.minutes": 60, "offsets.retention.check.interval.ms": 60_000})
def test_offsets_of_an_empty_group_expire(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    kafka_broker.produce("orders", [b"x"], partition=0)
    with members(kafka_broker, "a"):
        group.wait_committed("orders", 0, 1)
    group.wait_empty()
    kafka_broker.clock.advance(59 * 60)
    assert group.committed
    kafka_broker.clock.advance(2 * 60)
    assert group.committed == {} and group.state == "Dead"


def test_records_are_deleted_after_their_retention(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("short", configs={"retention.ms": 60_000, "segment.ms": 1_000})
    kafka_broker.produce("short", [b"old"])
    kafka_broker.clock.advance(30)
    kafka_broker.produce("short", [b"new"])
    kafka_broker.clock.advance(10 * 60)
    assert kafka_broker.topic("short").records == []
    with Admin({"bootstrap.servers": kafka_broker.bootstrap_servers}) as admin:
        assert admin.list_topics()


def test_both_times_move_together_and_neither_looks_as_if_it_had_been_set() -> None:
    true_ns = [10**15]
    clock = MovableClock(lambda: true_ns[0])
    began, wall = clock.now_ms(), clock._own_wall_ms()
    clock.advance(86_400_000)
    assert clock.look() == 0 and clock.now_ms() - began == 86_400_000 == clock._own_wall_ms() - wall
    assert clock.wall.surely(clock.now_ms()) == clock.wall.at(clock.now_ms())
    clock.freeze()
    true_ns[0] += 5 * 10**9
    assert clock.now_ms() - began == 86_400_000 and clock.seconds_until(clock.now_ms() + 1) > 60
    clock.advance(1_000)
    clock.go_on()
    true_ns[0] += 500 * 10**6
    assert clock.now_ms() - began == 86_401_500 and clock.look() == 0
    true_ns[0] += 90 * 10**9  # the loop was away: its own time does not count that
    assert clock.now_ms() - began == 86_401_500
