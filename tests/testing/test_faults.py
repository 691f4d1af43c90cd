"""Faults: each does what it says to the requests that it is about, ends, and fails the test if it never fired."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from coterie import Consumer, KafkaError, Producer
from coterie.errors import CoterieError, ErrorCode
from coterie.facts import Cause
from coterie.protocol.apis import APIS, Api
from coterie.storage import partition_log
from coterie.testing import FaultNotFiredError, KafkaBroker
from coterie.testing.answers import error_answer
from coterie.testing.controlled_server import ControlledServer
from coterie.testing.groups import snapshot_of
from coterie.testing.requests import codec_of, message_of
from testing.consumers import LIBRARIES, confluent, members, ours

pytestmark = pytest.mark.kafka(topics={"orders": 2})


@pytest.fixture
def consumer(kafka_broker: KafkaBroker) -> Iterator[Consumer]:
    """A member of `billing` that has its partitions, and is polled by the test alone."""
    with Consumer(
        {"bootstrap.servers": kafka_broker.bootstrap_servers},
        group_id="billing",
        client_id="a",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=50,
        retry_backoff_ms=1,
        reconnect_backoff_ms=1,
    ) as consumer:
        consumer.subscribe(["orders"])
        while len(consumer.assignment()) < 2:
            consumer.poll(0.02)
        for partition in consumer.assignment():
            consumer.position(partition)  # else there is nothing to commit yet
        yield consumer


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        found += [record.value for record in consumer.poll(0.02)]
    return found


def test_an_answer_is_an_error_as_often_as_the_test_says(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    kafka_broker.produce("orders", [b"x"], partition=0)
    read(consumer, 1)
    on_commit = kafka_broker.faults.on("OffsetCommit", group="billing", topic="orders")
    with on_commit.answer("COORDINATOR_LOAD_IN_PROGRESS", times=3) as fault:
        consumer.commit()
        assert kafka_broker.group("billing").committed["orders-0"] == 1
    assert [hit.error for hit in fault.hits] == ["COORDINATOR_LOAD_IN_PROGRESS"] * 3
    hit = fault.hits[0]
    assert (hit.client_id, hit.group, hit.generation, hit.topics, hit.state) == (
        "a",
        "billing",
        1,
        ["orders"],
        "Stable",
    )
    assert hit.body.topics[0].partitions[0].offset == 1
    assert [one.error for one in kafka_broker.requests("OffsetCommit")] == [*[hit.error] * 3, "NONE"]


@pytest.mark.parametrize("library", ["confluent-kafka", "kafka-python", "ours"])
def test_members_of_every_library_survive_an_error(kafka_broker: KafkaBroker, library: str) -> None:
    kafka_broker.produce("orders", [b"x"], partition=1)
    with members(kafka_broker, "a", library=LIBRARIES[library]):
        kafka_broker.group("billing").wait_committed("orders", 1, 1, timeout=60)
        generation = kafka_broker.group("billing").snapshot().generation
        with kafka_broker.faults.on("Heartbeat", member="a").answer("REBALANCE_IN_PROGRESS", times=1) as fault:
            fault.wait_hit(timeout=60)
            kafka_broker.wait(
                "the next generation",
                lambda server: True if snapshot_of(server, "billing").generation > generation else None,
                timeout=60,
            )
            kafka_broker.group("billing").wait_stable(members=1, partitions=2, timeout=60)


def test_a_lost_answer_means_that_the_work_was_done(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    kafka_broker.produce("orders", [b"x"], partition=0)
    read(consumer, 1)
    with kafka_broker.faults.on("OffsetCommit").lose_answer(times=1) as fault:
        commit = threading.Thread(target=consumer.commit)
        commit.start()
        fault.wait_hit()
        kafka_broker.group("billing").wait_committed("orders", 0, 1)
        commit.join(60)
    lost, *again = kafka_broker.requests("OffsetCommit")
    assert lost.error == "" and lost.fault == "lose the answer"
    assert [one.error for one in again] == ["NONE"]


def test_a_lost_answer_of_a_producer_that_is_not_idempotent_is_a_duplicate(kafka_broker: KafkaBroker) -> None:
    settings: dict[str, Any] = {"enable.idempotence": False, "retry.backoff.ms": 1}
    with (
        kafka_broker.faults.on("Produce", topic="orders").lose_answer(times=1),
        Producer({"bootstrap.servers": kafka_broker.bootstrap_servers}, **settings) as producer,
    ):
        producer.send("orders", b"x", partition=0).result(60)
    assert [record.value for record in kafka_broker.topic("orders").records] == [b"x", b"x"]
    with pytest.raises(AssertionError, match=r"processed too often: b'x' \(2 times\)|not processed: b'x'"):
        kafka_broker.topic("orders").assert_processed_once([b"x"])


def test_a_dropped_connection_means_that_nothing_was_done(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    kafka_broker.produce("orders", [b"x"], partition=0)
    read(consumer, 1)
    with kafka_broker.faults.on("OffsetCommit", client_id="a").drop_connection(times=2) as fault:
        consumer.commit()
    assert fault.count == 2
    assert kafka_broker.group("billing").committed == {"orders-0": 1, "orders-1": 0}


def test_a_garbled_answer_cannot_be_read(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    with kafka_broker.faults.on("Heartbeat").garble(times=1) as fault:
        while not fault.count:
            consumer.poll(0.02)
    (hit,) = fault.hits
    assert hit.error == "" and hit.answer is None
    kafka_broker.produce("orders", [b"x"], partition=0)
    assert read(consumer, 1) == [b"x"]


def test_a_throttled_answer_says_how_long_to_wait(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    with kafka_broker.faults.on("Heartbeat").throttle(1, times=1) as fault:
        while not fault.count:
            consumer.poll(0.02)
        kafka_broker.wait("the answer", lambda _: fault.hits[0].answer)
    assert fault.hits[0].answer.throttle_time_ms == 1 and fault.hits[0].error == "NONE"


def test_a_delay_is_over_when_the_clock_says(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    kafka_broker.produce("orders", [b"x"], partition=0)
    read(consumer, 1)
    with kafka_broker.clock.frozen(), kafka_broker.faults.on("OffsetCommit").delay(20) as fault:
        commit = threading.Thread(target=consumer.commit)
        commit.start()
        fault.wait_hit()
        kafka_broker.clock.advance(19)
        assert kafka_broker.group("billing").committed == {}
        kafka_broker.clock.advance(1)
        assert kafka_broker.group("billing").wait_committed("orders", 0, 1) == 1
        commit.join(60)


def test_a_request_is_held_until_the_fault_ends(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    kafka_broker.produce("orders", [b"x"], partition=0)
    read(consumer, 1)
    with kafka_broker.faults.on("OffsetCommit", state="Stable").hold() as fault:
        commit = threading.Thread(target=consumer.commit)
        commit.start()
        fault.wait_hit()
        kafka_broker.clock.advance(1)
        assert kafka_broker.group("billing").committed == {}
    commit.join(60)
    assert kafka_broker.group("billing").committed == {"orders-0": 1, "orders-1": 0}


def test_the_nth_request_in_a_state_of_the_group_is_chosen(kafka_broker: KafkaBroker) -> None:
    on_join = kafka_broker.faults.on("JoinGroup", state="Empty", nth=1)
    with on_join.answer("COORDINATOR_NOT_AVAILABLE") as fault, members(kafka_broker, "a"):
        assert fault.count == 1
    with (
        kafka_broker.faults.on("Heartbeat", nth=3).answer("COORDINATOR_LOAD_IN_PROGRESS") as third,
        members(kafka_broker, "b"),
    ):
        third.wait_hit()
    heartbeats = [one for one in kafka_broker.requests("Heartbeat") if one.client_id == "b"]
    assert [one.fault != "" for one in heartbeats[:4]] == [False, False, True, False][: len(heartbeats)]


def test_the_fault_that_began_last_has_the_request(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    faults = kafka_broker.faults
    with faults.on("OffsetCommit").answer("GROUP_AUTHORIZATION_FAILED") as outer:
        once = faults.on("OffsetCommit").answer("COORDINATOR_LOAD_IN_PROGRESS", times=1)
        with once as inner, pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.commit()
        assert (inner.count, outer.count) == (1, 1)


def test_a_fault_that_never_fired_fails_and_says_what_came(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    with pytest.raises(FaultNotFiredError) as failure, kafka_broker.faults.on("OffsetCommit", group="other").garble():
        consumer.commit()
    text = str(failure.value)
    assert text.startswith("this fault never fired: OffsetCommit(group='other') -> garble the answer\n")
    assert "<OffsetCommit v" in text and "its group is 'billing', not 'other'" in text
    unused = kafka_broker.faults.on("OffsetDelete").drop_connection()
    with pytest.raises(FaultNotFiredError, match="No OffsetDelete was received while it was in force"), unused:
        pass
    with pytest.raises(ZeroDivisionError), kafka_broker.faults.on("OffsetDelete").drop_connection():
        raise ZeroDivisionError  # the test has failed for a better reason


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({"member": "x"}, "its member is 'a-"),
    ({"client_id": "x"}, "its client id is 'a', not 'x'"),
    ({"instance": "x"}, "its group instance id is None, not 'x'"),
    ({"generation": 7}, "its generation is 1, not 7"),
    ({"topic": "x"}, r"its topics are \['orders'\], without 'x'"),
    ({"state": "Empty"}, "its group was Stable, not Empty"),
    ({"nth": 2}, "it is the 1., not the 2."),
]


def test_every_filter_says_why_a_request_did_not_match(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    for chosen, why in FILTERS:
        with pytest.raises(FaultNotFiredError, match=why), kafka_broker.faults.on("OffsetCommit", **chosen).garble():
            consumer.commit()


def test_unknown_names_are_errors_that_name_the_nearest(kafka_broker: KafkaBroker) -> None:
    faults = kafka_broker.faults
    with pytest.raises(CoterieError, match="no API 'OffsetCommits': did you mean OffsetCommit"):
        faults.on("OffsetCommits")
    with pytest.raises(CoterieError, match="no error 'NOT_THE_COORDINATOR': did you mean NOT_COORDINATOR"):
        faults.on("Heartbeat").answer("NOT_THE_COORDINATOR")
    with pytest.raises(CoterieError, match="no state 'Rebalancing' of a group: did you mean"):
        faults.on("Heartbeat", state="Rebalancing")
    with pytest.raises(CoterieError, match="requests cannot be chosen by 'client': did you mean client_id"):
        faults.on("Heartbeat", client="a")  # type: ignore[arg-type]
    with pytest.raises(CoterieError, match="times=0"):
        faults.on("Heartbeat").answer("NOT_COORDINATOR", times=0)
    with pytest.raises(CoterieError, match="a delay of 0 s: give more than 0"):
        faults.on("Heartbeat").delay(0)


def test_metadata_keeps_its_brokers_when_a_topic_has_an_error(kafka_broker: KafkaBroker) -> None:
    twice = kafka_broker.faults.on("Metadata", topic="orders").answer("LEADER_NOT_AVAILABLE", times=2)
    with twice as fault, members(kafka_broker, "a", library=confluent):
        fault.wait_hit(2, timeout=60)
    assert all(hit.answer.brokers and hit.error == "LEADER_NOT_AVAILABLE" for hit in fault.hits)


def test_a_full_disk_refuses_what_would_be_written(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    kafka_broker.produce("orders", [b"x"], partition=0)
    read(consumer, 1)
    with kafka_broker.faults.disk_full() as fault:
        with pytest.raises(CoterieError, match="KAFKA_STORAGE_ERROR"):
            kafka_broker.produce("orders", [b"y"], partition=0)
        fault.wait_hit()
    kafka_broker.produce("orders", [b"z"], partition=0)
    assert read(consumer, 1) == [b"z"]
    with pytest.raises(FaultNotFiredError, match="Nothing was written to the disk"), kafka_broker.faults.disk_full():
        pass


def test_partitions_can_be_written_as_soon_as_a_full_disk_has_room_again(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_in_order(server: ControlledServer) -> bool:
        return server.cluster.directory.logs["orders", 0].is_in_order

    kafka_broker.produce("orders", [b"x"], partition=0)
    kafka_broker.clock.freeze()  # no timer repairs the log
    refused = threading.Event()
    with kafka_broker.faults.disk_full(), monkeypatch.context() as patch:

        def load_cut(*_args: object, **_named: object) -> None:
            refused.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(partition_log, "load_cut", load_cut)
        with pytest.raises(CoterieError, match="KAFKA_STORAGE_ERROR"):
            kafka_broker.produce("orders", [b"y"], partition=0)
        assert refused.wait(60)
        assert not kafka_broker.run_on_broker(is_in_order)
    assert kafka_broker.run_on_broker(is_in_order)
    assert [record.offset for record in kafka_broker.produce("orders", [b"z"], partition=0)] == [1]


def test_a_disk_that_hangs_delays_commits_until_it_goes_on(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    with kafka_broker.faults.slow_disk() as fault:
        commit = threading.Thread(target=consumer.commit)
        commit.start()
        fault.wait_hit()
        assert kafka_broker.group("billing").committed == {}
        kafka_broker.clock.advance(1)
    commit.join(60)
    assert kafka_broker.group("billing").committed == {"orders-0": 0, "orders-1": 0}


def test_a_commit_that_waits_for_the_disk_too_long_is_answered_with_an_error(
    kafka_broker: KafkaBroker, consumer: Consumer
) -> None:
    with kafka_broker.faults.slow_disk() as fault:
        commit = threading.Thread(target=consumer.commit)
        commit.start()
        fault.wait_hit()
        kafka_broker.clock.advance(5)  # offsets.commit.timeout.ms
        (late, *_) = kafka_broker.requests("OffsetCommit")
        assert kafka_broker.wait("its answer", lambda _: late.error or None) == "COORDINATOR_NOT_AVAILABLE"
    commit.join(60)


@pytest.mark.kafka(nodes=3)
def test_a_node_is_stopped_and_starts_again(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a") as (a,):
        node = kafka_broker.run_on_broker(lambda server: server.coordinator_of("billing"))
        with kafka_broker.faults.stop_node(node):
            assert kafka_broker.run_on_broker(lambda server: server.coordinator_of("billing")) != node
            kafka_broker.produce("orders", [b"x"], partition=0)
            group.wait_committed("orders", 0, 1, timeout=60)
        assert kafka_broker.run_on_broker(lambda server: server.coordinator_of("billing")) == node
        kafka_broker.produce("orders", [b"y"], partition=0)
        group.wait_committed("orders", 0, 2, timeout=60)
    assert a.read == [b"x", b"y"]


@pytest.mark.kafka(nodes=2)
def test_a_coordinator_that_moves_starts_no_rebalance(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a"), group.assert_no_rebalance():
        other = 3 - kafka_broker.run_on_broker(lambda server: server.coordinator_of("billing"))
        with kafka_broker.faults.move_coordinator("billing", other):
            kafka_broker.wait(
                "a heartbeat at the new coordinator",
                lambda server: (
                    [
                        one
                        for one in server.controls.recorder.requests
                        if one.api == "Heartbeat" and one.node == other and one.error == "NONE"
                    ]
                    or None
                ),
                timeout=60,
            )
    with pytest.raises(CoterieError, match="no node 7"), kafka_broker.faults.stop_node(7):
        pass


def test_the_only_node_is_not_stopped(kafka_broker: KafkaBroker) -> None:
    with pytest.raises(CoterieError, match="node 1 is the only one that runs: use crash"):
        kafka_broker.faults.stop_node(1).begin()


def test_what_was_acknowledged_is_there_after_a_crash(kafka_broker: KafkaBroker, consumer: Consumer) -> None:
    kafka_broker.produce("orders", [b"x"], partition=0)
    read(consumer, 1)
    consumer.commit()
    address = kafka_broker.bootstrap_servers
    with kafka_broker.faults.crash(), pytest.raises(CoterieError, match="this broker is not running"):
        kafka_broker.group("billing").state  # noqa: B018
    assert kafka_broker.bootstrap_servers == address
    assert kafka_broker.group("billing").committed["orders-0"] == 1
    kafka_broker.produce("orders", [b"y"], partition=0)
    assert read(consumer, 1) == [b"y"]


@pytest.mark.kafka(flush="os")
def test_what_was_not_synced_is_lost_in_a_crash(kafka_broker: KafkaBroker) -> None:
    kafka_broker.produce("orders", [b"x"], partition=0)
    with kafka_broker.faults.crash(lose_unsynced=False):
        pass
    assert len(kafka_broker.topic("orders").records) == 1
    kafka_broker.produce("orders", [b"y"], partition=0)
    with kafka_broker.faults.crash():
        pass
    assert [record.value for record in kafka_broker.topic("orders").records] == [b"x"]  # synced when it was started
    with pytest.raises(FaultNotFiredError, match="This broker syncs nothing"), kafka_broker.faults.slow_disk():
        pass


def test_a_crash_with_a_data_directory(tmp_path: Any) -> None:
    with KafkaBroker(data=tmp_path, topics={"orders": 1}, nodes=2) as broker:
        broker.produce("orders", [b"x"])
        with broker.faults.crash():
            pass
        assert [record.value for record in broker.topic("orders").records] == [b"x"]
        broker.restart()
        assert [record.value for record in broker.topic("orders").records] == [b"x"]


def test_a_broker_that_is_stopped_in_a_crash_can_be_started_again() -> None:
    broker = KafkaBroker(topics={"orders": 1}).start()
    broker.faults.crash().begin()
    broker.stop()
    with broker:
        assert broker.topic("orders").partitions == 1


def test_faults_work_in_asyncio(kafka_broker: KafkaBroker) -> None:
    async def test() -> None:
        member = ours(kafka_broker, "a")
        async with kafka_broker.faults.on("Heartbeat").answer("REBALANCE_IN_PROGRESS", times=1) as fault:
            assert await fault.wait_hit_async() == 1
        await asyncio.to_thread(member.stop)

    asyncio.run(test())
    assert Cause.NEW_MEMBER in [one.cause for one in kafka_broker.group("billing").rebalances]


# --- answers with an error --------------------------------------------------------------------------------------------


def sample(message: Any) -> Any:
    """Return a request with one entry in each list."""
    from uuid import UUID

    from coterie.protocol.codec.fields import is_records
    from coterie.protocol.codec.fields import members as fields_of
    from coterie.structs import is_data
    from coterie.testing.answers import listed_type

    values: dict[str, Any] = {}
    for each in fields_of(message):
        kind = listed_type(each)
        if kind is not None:
            values[each.name] = [sample(kind) if is_data(kind) else "x" if kind is str else 0]
        elif is_records(each.type) or each.type is bytes:
            values[each.name] = b"x"
        elif is_data(each.type):
            values[each.name] = None if each.optional else sample(each.type)
        else:
            values[each.name] = "x" if each.type is str else UUID(int=5) if each.type is UUID else 0
    return message(**values)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_an_error_answer_is_valid_in_every_version(api: Api) -> None:
    from coterie.testing.requests import errors_of

    read_one, write_one = codec_of(api, "Request")
    for version in filter(api.serves, api.versions):
        request = read_one(write_one(sample(message_of(api, "Request")), version), 0, version)
        body = error_answer(api, version, request, ErrorCode.NOT_COORDINATOR)
        answer = codec_of(api, "Response")[0](body, 0, version)
        errors = [code for code in errors_of(answer) if code]
        assert errors and set(errors) == {ErrorCode.NOT_COORDINATOR}, answer


@pytest.mark.parametrize("library", ["confluent-kafka", "ours"])
def test_a_client_that_is_cut_off_is_gone_to_its_group_and_comes_back(kafka_broker: KafkaBroker, library: str) -> None:
    """kafka-python 3.0 stays away: while a poll waits, it does not join again after a heartbeat was answered
    UNKNOWN_MEMBER_ID, and a poll that does not wait loses assignments (`consumers.py`).
    """
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a", "b", library=LIBRARIES[library]):
        with kafka_broker.faults.cut_off("a") as fault:
            assert {one.client_id: one.is_connected for one in group.members} == {"a": False, "b": True}
            kafka_broker.clock.advance(45)
            group.wait_assigned({"b": ["orders-0", "orders-1"]}, timeout=60)
            fault.wait_hit(fault.count + 1, timeout=60)  # it tries to come back; its connections have counted before
            assert [one.client_id for one in group.members] == ["b"]
        group.wait_stable(members=2, partitions=2, timeout=60)
    assert {hit.client_id for hit in fault.hits} == {"a"}


def test_a_client_that_is_cut_off_must_be_there(kafka_broker: KafkaBroker) -> None:
    with (
        pytest.raises(
            FaultNotFiredError, match=r"every request\(client_id='nobody'\) -> cut off\nNo request was received"
        ),
        kafka_broker.faults.cut_off("nobody"),
    ):
        pass


@pytest.mark.kafka(nodes=2)
def test_a_group_names_its_coordinator(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a"):
        other = 3 - group.coordinator
        with kafka_broker.faults.move_coordinator("billing", other):
            assert group.coordinator == other
        assert group.coordinator == 3 - other
