"""Looking in: groups, topics and requests are plain objects, read in the broker's thread."""

from __future__ import annotations

import threading

import pytest

from coterie import Consumer
from coterie.errors import CoterieError, IllegalStateError
from coterie.facts import Cause, MemberJoined
from coterie.testing import KafkaBroker
from coterie.testing.requests import Recorder, Request
from testing.consumers import confluent, members, ours

pytestmark = pytest.mark.kafka(topics={"orders": 2})


def test_members_say_who_they_are_and_what_they_have(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a", group_instance_id="static-a"), members(kafka_broker, "b"):
        static, dynamic = sorted(group.members, key=lambda member: member.client_id)
        assert (static.instance_id, static.name, dynamic.instance_id, dynamic.name) == (
            "static-a",
            "static-a",
            None,
            "b",
        )
        assert static.host == "/127.0.0.1" and static.protocol == "classic" and static.is_connected
        assert set(group.assignment) == {"static-a", "b"}
        assert sorted([*group.assignment["static-a"], *group.assignment["b"]]) == ["orders-0", "orders-1"]
        assert "static-a: orders-" in repr(group) and repr(group).startswith("<group billing: Stable, ")
        group.wait_assigned({"static-a": static.assignment, dynamic.member_id: dynamic.assignment})
        assert [one.group_id for one in kafka_broker.groups] == ["billing"]


def test_members_of_the_same_name_are_told_apart_by_their_ids(kafka_broker: KafkaBroker) -> None:
    with members(kafka_broker, "a", "a"):
        ids = {member.member_id for member in kafka_broker.group("billing").members}
        assert set(kafka_broker.group("billing").assignment) == ids


def test_a_consumer_group_looks_the_same(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a", library=confluent, group_protocol="consumer"):
        now = group.snapshot()
        assert (now.protocol, now.state, now.assignment) == ("consumer", "Stable", {"a": ["orders-0", "orders-1"]})
        assert now.members[0].protocol == "consumer" and now.generation >= 1
        kafka_broker.produce("orders", [b"x"], partition=1)
        group.wait_committed("orders", 1, 1, timeout=60)
    group.wait_empty(timeout=60)
    assert [one.cause for one in group.rebalances][-1] is Cause.MEMBER_LEFT


def test_rebalances_say_why_and_what_moved(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a", "b"):
        first, second, *_ = group.rebalances
        assert first.cause is Cause.NEW_MEMBER and len(first.moves) == 2
        assert second.culprit.startswith("b-") and len(second.moves) == 1 and second.kept == 1


def test_no_rebalance_is_asserted(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a"):
        with group.assert_no_rebalance():
            kafka_broker.produce("orders", [b"x"], partition=0)
            group.wait_committed("orders", 0, 1)
        with (
            pytest.raises(
                AssertionError, match="group billing was not to rebalance, and did:\n  <rebalance of billing"
            ),
            group.assert_no_rebalance(),
            members(kafka_broker, "b"),
        ):
            pass


def test_records_that_were_processed_once_and_those_that_were_not(kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.topic("orders")
    kafka_broker.produce("orders", ["a", "b"], partition=0)
    kafka_broker.produce("orders", ["c", None], partition=1)
    topic.assert_processed_once(["c", "a", b"b", None])
    with pytest.raises(AssertionError) as failure:
        topic.assert_processed_once(["a", "a", "a", "x", None])
    assert str(failure.value) == (
        "each of the 4 records of orders was to be processed once; not processed: b'b', b'c'; "
        "processed too often: b'a' (2 times); not produced: b'x'"
    )


def test_what_clients_sent_is_decoded(kafka_broker: KafkaBroker) -> None:
    kafka_broker.produce("orders", [b"x"], partition=0)
    with members(kafka_broker, "a") as (a,):
        kafka_broker.group("billing").wait_committed("orders", 0, 1)
        assert a.read == [b"x"]
    joins = kafka_broker.requests("joingroup", group="billing")
    assert [join.error for join in joins] == ["MEMBER_ID_REQUIRED", "NONE"]
    assert joins[1].member.startswith("a-") and joins[1].body.protocols[0].name == "range"
    assert joins[1].answer.generation_id == 1 and joins[1].state == "Empty"
    assert repr(joins[1]).startswith("<JoinGroup v9 of a: group_id='billing', session_timeout_ms=")
    assert {one.api for one in kafka_broker.requests(member="a")} >= {"Metadata", "FindCoordinator", "Fetch"}
    assert all("orders" in one.topics for one in kafka_broker.requests("Fetch", topic="orders"))
    assert kafka_broker.requests("Fetch", topic="orders") and not kafka_broker.requests("Fetch", topic="other")
    (left,) = kafka_broker.requests("LeaveGroup")
    assert left.members == [joins[1].member] and left in kafka_broker.group("billing").requests
    assert [type(fact) for fact in kafka_broker.facts].count(MemberJoined) == 1
    with pytest.raises(CoterieError, match="no API 'Fetches': did you mean Fetch"):
        kafka_broker.requests("Fetches")


def test_the_requests_that_are_kept_are_bounded() -> None:
    recorder = Recorder(most=3, most_bytes=100)

    def request(size: int) -> Request:
        return Request("Heartbeat", 4, "a", "h", 0, 1, "", _frame=bytes(size))

    for _ in range(5):
        recorder.add(request(10))
    assert (len(recorder.requests), recorder.left_out) == (3, 2)
    recorder.add(request(95))
    recorder.add(request(200))
    assert [one.size for one in recorder.requests] == [200]


def test_a_topic_is_created_with_configs_and_a_mistake_is_told(kafka_broker: KafkaBroker) -> None:
    assert kafka_broker.create_topic("compacted", 3, {"cleanup.policy": "compact"}).partitions == 3
    assert repr(kafka_broker.topic("compacted")) == "<topic compacted: 3 partitions, 0 records>"
    with pytest.raises(CoterieError, match="topic 'compacted' cannot be created: TOPIC_ALREADY_EXISTS"):
        kafka_broker.create_topic("compacted")
    with pytest.raises(CoterieError, match="there is no such topic; create_topic creates it"):
        kafka_broker.produce("nothing", [b"x"])
    assert kafka_broker.produce("orders", []) == []


def test_records_of_all_clients_are_decoded(kafka_broker: KafkaBroker) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "compression.type": "zstd"})
    for number in range(20):
        producer.produce("orders", b"v%d" % number, b"k", partition=1, headers=[("h", b"x")], timestamp=5)
    producer.flush(60)
    records = kafka_broker.topic("orders").wait_records(20, partition=1)
    assert [(one.offset, one.key, one.value) for one in records] == [(n, b"k", b"v%d" % n) for n in range(20)]
    assert records[0].headers == (("h", b"x"),) and records[0].timestamp == 5


def test_a_stopped_broker_says_so() -> None:
    broker = KafkaBroker()
    with pytest.raises(IllegalStateError, match="this broker is not running"):
        broker.group("billing").members  # noqa: B018
    with pytest.raises(IllegalStateError, match="this broker is not running"):
        broker.restart()
    assert repr(broker) == "KafkaBroker(stopped, memory)"


def test_a_restart_keeps_what_there_was(kafka_broker: KafkaBroker) -> None:
    kafka_broker.produce("orders", [b"x"], partition=0)
    with members(kafka_broker, "a"):
        kafka_broker.group("billing").wait_committed("orders", 0, 1)
        kafka_broker.restart()
        kafka_broker.produce("orders", [b"y"], partition=0)
        kafka_broker.group("billing").wait_committed("orders", 0, 2, timeout=60)


def test_it_is_asked_from_several_threads(kafka_broker: KafkaBroker) -> None:
    problems: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(50):
                assert kafka_broker.group("billing").state in {"Dead", "Empty"}
                kafka_broker.produce("orders", [b"x"], partition=0)
        except BaseException as problem:  # noqa: BLE001
            problems.append(problem)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems and len(kafka_broker.topic("orders").records) == 200


@pytest.mark.kafka(users={"alice": "secret"}, tls=True)
def test_a_broker_with_tls_and_logins(kafka_broker: KafkaBroker) -> None:
    settings = kafka_broker.client_settings("alice")
    with Consumer(settings, group_id="billing", client_id="a", heartbeat_interval_ms=50) as consumer:
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.poll(0.02)
        kafka_broker.group("billing").wait_stable(members=1)
        kafka_broker.clock.advance(60)
        with kafka_broker.faults.on("Heartbeat", member="a").answer("REBALANCE_IN_PROGRESS", times=1) as fault:
            while not fault.count:
                consumer.poll(0.02)
    assert kafka_broker.requests("SaslAuthenticate")


def test_a_heartbeat_takes_the_way_that_is_recorded(kafka_broker: KafkaBroker) -> None:
    member = ours(kafka_broker, "a", heartbeat_interval_ms=10)
    kafka_broker.wait(
        "ten heartbeats",
        lambda server: True if sum(one.api == "Heartbeat" for one in server.controls.recorder.requests) >= 10 else None,
    )
    member.stop()
