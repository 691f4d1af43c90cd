"""What clients write to their logs, and at which level."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import coterie
from client.consumers import QUICK, Heard, consumer_of, fill, on, read, until
from client.member.harness import Harness
from coterie.client.consumer.consumer_log import CONSUMER_LINES
from coterie.client.event_log import EventLog, NodeDisconnected, NodeReached, NodeUnreachable
from coterie.client.member import facts
from coterie.client.types import TopicPartition
from coterie.errors import CommitFailedError, FencedInstanceError, KafkaError
from coterie.settings.client_settings import AdminSettings
from coterie.settings.consumer_settings import ConsumerSettings
from coterie.settings.producer_settings import ProducerSettings

pytestmark = pytest.mark.real_time

TOPIC = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, logger="coterie"):
        yield


def lines(caplog: pytest.LogCaptureFixture, kind: type, client: str = "") -> list[tuple[int, str]]:
    """Level and text of each line about such an event, of one client."""
    return [
        (record.levelno, record.getMessage())
        for record in list(caplog.records)
        if isinstance(getattr(record, "event", None), kind) and client in record.getMessage().partition("]")[0]
    ]


def only(caplog: pytest.LogCaptureFixture, kind: type, client: str = "") -> tuple[int, str]:
    (found,) = lines(caplog, kind, client)
    return found


# --- a consumer -------------------------------------------------------------------------------------------------------


def test_joined_assigned_revoked_and_left_are_a_line_each(
    broker: coterie.Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker.bootstrap_servers, name, 2)
    a, b = (consumer_of(broker.bootstrap_servers, group_id=name, client_id=client) for client in ("ann", "bob"))
    a.subscribe(name)
    until(lambda: len(a.assignment()) == 2, a)
    assert only(caplog, facts.RebalanceBegan, "ann") == (logging.INFO, f"[{name}/ann] joining the group: subscribed")
    member_id = a.group_metadata().member_id
    joined = f"[{name}/ann] joined generation 1 as member {member_id} (leader, assignor range)"
    assert only(caplog, facts.GroupJoined, "ann") == (logging.INFO, joined)
    assigned = f"[{name}/ann] assigned {name}-0, {name}-1 in generation 1"
    assert only(caplog, facts.AssignmentTaken, "ann") == (logging.INFO, assigned)

    b.subscribe(name)
    until(lambda: len(a.assignment()) == len(b.assignment()) == 1, a, b)
    revoked = f"[{name}/ann] revoked {name}-0, {name}-1: group is already rebalancing"
    assert only(caplog, facts.PartitionsGivenUp, "ann") == (logging.INFO, revoked)
    assert lines(caplog, facts.AssignmentTaken, "ann")[1] == (
        logging.INFO,
        f"[{name}/ann] assigned {a.assignment()[0]} in generation 2",
    )
    assert "joined generation 2 as member" in only(caplog, facts.GroupJoined, "bob")[1]

    b.close()
    assert only(caplog, facts.GroupLeft, "bob") == (
        logging.INFO,
        f"[{name}/bob] left the group: the consumer is being closed",
    )
    assert "the consumer is being closed" in only(caplog, facts.PartitionsGivenUp, "bob")[1]
    a.close()
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_a_member_that_was_expired_is_told_and_loses_its_partitions(
    broker: coterie.Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker.bootstrap_servers, name, 1)
    with (
        consumer_of(broker.bootstrap_servers, group_id=name) as consumer,
        coterie.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        heard = Heard()
        consumer.subscribe(name, heard)
        until(consumer.assignment, consumer)
        admin.remove_members(name)
        until(lambda: heard.of("lost"), consumer)
        level, said = only(caplog, facts.IdentityDropped)
        assert level == logging.WARNING
        assert "fenced: UNKNOWN_MEMBER_ID in answer to" in said and "session.timeout.ms" in said
        until(lambda: lines(caplog, facts.PartitionsGivenUp), consumer)
        level, said = only(caplog, facts.PartitionsGivenUp)
        assert level == logging.INFO and f"lost {name}-0: UNKNOWN_MEMBER_ID in answer to" in said


def test_a_static_member_that_was_fenced_is_told_what_to_do(
    broker: coterie.Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker.bootstrap_servers, name, 1)
    a, b = (
        consumer_of(broker.bootstrap_servers, group_id=name, client_id=client, group_instance_id="slot-1")
        for client in ("ann", "bob")
    )
    a.subscribe(name)
    until(a.assignment, a)
    b.subscribe(name)
    until(b.assignment, b)
    with pytest.raises(FencedInstanceError):
        until(lambda: False, a)
    level, said = only(caplog, facts.Fenced, "ann")
    assert level == logging.WARNING and 'group.instance.id "slot-1"' in said and "Close this one" in said
    assert said.startswith(f"[{name}/ann (instance slot-1)] fenced")
    assert not lines(caplog, facts.Fenced, "bob")
    a.close()
    b.close()


def test_a_late_poll_is_told_with_what_to_do_and_how_late_it_was(
    broker: coterie.Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker.bootstrap_servers, name, 1)
    with consumer_of(broker.bootstrap_servers, group_id=name, max_poll_interval_ms=300) as consumer:
        consumer.subscribe(name)
        until(consumer.assignment, consumer)
        until(lambda: lines(caplog, facts.GroupLeft))  # nobody polls
        level, said = only(caplog, facts.PollIntervalExceeded)
        assert level == logging.WARNING
        assert "has left its group" in said and "(300 ms)" in said and "max.poll.records" in said
        until(lambda: lines(caplog, facts.PartitionsGivenUp), consumer)
        level, said = only(caplog, facts.PollResumed)
        assert level == logging.INFO and "s after max.poll.interval.ms had passed" in said
        assert "lost" in only(caplog, facts.PartitionsGivenUp)[1]
        assert "consumer poll timeout has expired" in only(caplog, facts.PartitionsGivenUp)[1]
        assert not lines(caplog, facts.IdentityDropped), "one warning is enough"


def test_how_late_a_poll_was_is_counted_by_the_clock() -> None:
    room = Harness()
    (a,) = room.stable("a", max_poll_interval_ms=20_000)
    a.ends_poll()
    room.advance(50_000)
    a.begins_poll()
    assert abs(a.fact(facts.PollResumed).late_ms - 30_000) < 200


def test_a_subscribed_topic_that_does_not_exist_is_told_once_and_again_when_it_is_there(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        coterie.Broker(settings={"auto.create.topics.enable": False, "group.initial.rebalance.delay.ms": 0}) as broker,
        consumer_of(broker.bootstrap_servers) as consumer,
    ):
        consumer.subscribe([name])
        until(lambda: lines(caplog, facts.TopicMissing), consumer)
        level, said = only(caplog, facts.TopicMissing)
        assert level == logging.WARNING
        assert f'subscribed topic "{name}" does not exist' in said and "UNKNOWN_TOPIC_OR_PARTITION" in said
        fill(broker.bootstrap_servers, name, 1)
        until(lambda: lines(caplog, facts.TopicFound), consumer)
        assert only(caplog, facts.TopicFound)[0] == logging.INFO
        assert len(lines(caplog, facts.TopicMissing)) == 1


def test_a_topic_that_is_created_by_the_first_look_is_not_missing(
    broker: coterie.Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with consumer_of(broker.bootstrap_servers, group_id=name) as consumer:
        consumer.subscribe([name])
        until(consumer.assignment, consumer)
    assert not lines(caplog, facts.TopicMissing)


def test_a_commit_that_failed_is_told_with_why(
    broker: coterie.Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker.bootstrap_servers, name, 1, 1)
    with (
        consumer_of(broker.bootstrap_servers, group_id=name, client_id="ann") as member,
        consumer_of(broker.bootstrap_servers, group_id=name, client_id="stranger") as stranger,
    ):
        member.subscribe(name)
        read(1, member)
        stranger.assign(on(name, 0))
        with pytest.raises(CommitFailedError):
            stranger.commit({(name, 0): 1})
        level, said = only(caplog, facts.CommitFailed, "stranger")
        assert level == logging.WARNING and "commit failed: the offsets were not committed" in said
        stranger.commit_async({(name, 0): 1})
        until(lambda: len(lines(caplog, facts.CommitFailed, "stranger")) == 2)


def test_an_automatic_commit_that_failed_is_told(
    broker: coterie.Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker.bootstrap_servers, name, 1, 1)
    with consumer_of(broker.bootstrap_servers, group_id=name) as member:
        member.subscribe(name)
        read(1, member)
        with consumer_of(
            broker.bootstrap_servers, group_id=name, client_id="stranger", auto_commit_interval_ms=10
        ) as stranger:
            stranger.assign(on(name, 0))
            read(1, stranger)
            until(lambda: lines(caplog, facts.AutoCommitFailed, "stranger"), stranger)
            assert lines(caplog, facts.AutoCommitFailed, "stranger")[0][0] == logging.WARNING


def test_a_coordinator_that_vanishes_is_told_and_its_return_too(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.client.consumer.engine.PATIENCE_MS", 300)
    data = tmp_path_factory.mktemp("data")
    settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}
    first = coterie.Broker(data, settings).start()
    port = int(first.bootstrap_servers.rpartition(":")[2])
    fill(first.bootstrap_servers, "t", 1)
    with consumer_of(first.bootstrap_servers) as consumer:
        consumer.subscribe("t")
        until(consumer.assignment, consumer)
        first.stop()
        until(lambda: lines(caplog, facts.CoordinatorUnreachable), consumer)
        level, said = only(caplog, facts.CoordinatorUnreachable)
        assert level == logging.WARNING and "the coordinator has not answered for 0." in said
        assert "session.timeout.ms" in said
        assert lines(caplog, facts.CoordinatorLost)[0][0] == logging.INFO
        lost = [line for line in lines(caplog, NodeDisconnected) if "(node 1)" in line[1]]
        assert len(lost) == 1, "one line for all connections to it"
        assert lost[0][0] == logging.INFO and "(node 1): closed the connection" in lost[0][1]
        level, said = lines(caplog, NodeUnreachable)[0]
        assert level == logging.WARNING and said.endswith(": connection refused; trying again")
        with coterie.Broker(data, settings, port=port):
            until(lambda: lines(caplog, facts.CoordinatorReached), consumer)
            assert only(caplog, facts.CoordinatorReached)[0] == logging.INFO
            assert lines(caplog, NodeReached)[0][0] == logging.INFO
            assert len(lines(caplog, facts.CoordinatorUnreachable)) == 1
            consumer.close()


# --- a producer and an admin ------------------------------------------------------------------------------------------


def test_a_producer_tells_of_its_id_of_retries_and_of_what_was_not_delivered(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "pa55word-of-a-customer"
    data = tmp_path_factory.mktemp("data")
    broker = coterie.Broker(data).start()
    quick = {name: value for name, value in QUICK.items() if name.startswith(("retry", "reconnect"))}
    producer = coterie.Producer(
        {**quick, "bootstrap.servers": broker.bootstrap_servers, "client.id": "till"},
        delivery_timeout_ms=1_000,
        request_timeout_ms=500,
        linger_ms=0,
    )
    producer.send("t", "one").result(timeout=20)
    broker.stop()
    failed = producer.send("t", secret, key=secret)
    with pytest.raises(KafkaError):
        failed.result(timeout=20)
    until(lambda: [record for record in caplog.records if "were not delivered" in record.getMessage()])
    producer.close()
    said = {record.getMessage().partition("]")[2].strip(): record.levelno for record in caplog.records}
    levels = {text.split(":")[0]: level for text, level in said.items()}
    assert any(text.startswith("producer id is ") and level == logging.INFO for text, level in levels.items())
    (lost,) = (text for text in said if "were not delivered" in text)
    assert lost.startswith("1 records were not delivered to t-0: ") and said[lost] == logging.WARNING
    assert secret not in caplog.text, "what is in a record is nobody's business"
    assert {record.name for record in caplog.records} == {"coterie.producer"}


def test_an_admin_has_a_log(caplog: pytest.LogCaptureFixture) -> None:
    with (
        coterie.Admin(
            bootstrap_servers="127.0.0.1:1", client_id="ops", default_api_timeout_ms=200, request_timeout_ms=200
        ) as admin,
        pytest.raises(KafkaError),
    ):
        admin.list_topics()
    level, said = only(caplog, NodeUnreachable)
    assert level == logging.WARNING and said.startswith("[ops] cannot connect to 127.0.0.1:1 (bootstrap)")
    assert {record.name for record in caplog.records} == {"coterie.admin"}


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_event_of_a_member_has_a_line() -> None:
    assert {getattr(facts, name) for name in facts.__all__} <= CONSUMER_LINES.keys()


def test_clients_without_a_client_id_are_numbered() -> None:
    first, second = (EventLog("consumer", ConsumerSettings.of({})) for _ in range(2))
    first.name_group("bar", None)
    assert first.name.startswith("bar/consumer-") and first.name.removeprefix("bar/") != second.name
    assert EventLog("producer", ProducerSettings.of({})).name.startswith("producer-")
    assert EventLog("admin", AdminSettings.of({"client.id": "ops"})).name == "ops"


def test_no_handler_is_installed_and_nothing_is_printed_unasked() -> None:
    for kind in ("consumer", "producer", "admin"):
        handlers = logging.getLogger(f"coterie.{kind}").handlers
        assert [type(one) for one in handlers if isinstance(one, logging.NullHandler)] == [logging.NullHandler]


def test_a_long_list_of_partitions_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    many = [TopicPartition("t", number) for number in range(25)]
    log = EventLog("consumer", ConsumerSettings.of({}), lines=CONSUMER_LINES)
    log.write(facts.AssignmentTaken(0, "bar", 7, many, []))
    assert only(caplog, facts.AssignmentTaken)[1].endswith("t-19 and 5 more in generation 7")
