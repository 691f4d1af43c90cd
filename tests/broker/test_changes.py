"""Changes of the data directory: nobody waits for the disk but who asked, and each sees what the last has left."""

from __future__ import annotations

import pytest

from broker.driver import Client, World
from broker.test_topics import described
from coterie.broker.broker_effects import Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Responses
from coterie.broker.maintenance.directory_changes import Changes
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.facts import Emit, Mistake
from coterie.protocol.api import ResourceType
from coterie.protocol.apis import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    describe_configs,
    init_producer_id,
    metadata,
)
from coterie.storage import DiskChange
from logs import FaultyFiles

VERSIONS = api_versions.Request(client_software_name="tester", client_software_version="1")
PRODUCER = init_producer_id.Request(transactional_id=None, transaction_timeout_ms=1)


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def world(disk: FaultyFiles) -> World:
    """With topic `old`; from here on the test is the disk."""
    world = World(disk)
    world.client().create("old")
    world.auto = False
    return world


def names(client: Client) -> list[str]:
    return [topic.name for topic in client.ask(metadata, metadata.Request(topics=None)).topics]


def test_a_topic_is_there_when_the_disk_has_it_and_not_before(world: World) -> None:
    """Nobody is answered before it is durable; nobody else has to wait."""
    client, other = world.client(), world.client()
    client.send_create("new")
    assert client.answers == 0
    assert names(other) == ["old"]
    assert other.produce("new", b"early", acks=1).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.flush()
    assert client.created().error is ErrorCode.NONE
    assert names(other) == ["old", "new"]
    assert not world.flushes


def test_the_second_of_two_that_create_a_topic_finds_that_it_exists(world: World) -> None:
    """In the order in which they came, as Kafka's controller does; both hear of it when it is durable."""
    first, second = world.client(), world.client()
    first.send_create("new", 2)
    second.send_create("new", 3)
    assert (first.answers, second.answers) == (0, 0)
    world.flush()
    assert first.created().error is ErrorCode.NONE
    assert second.created().error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert len(described(first, "new")[0].partitions) == 2


def test_the_second_creates_the_topic_if_the_first_could_not(world: World, disk: FaultyFiles) -> None:
    first, second = world.client(), world.client()
    first.send_create("new")
    second.send_create("new", 2)
    disk.room = 0
    effect = world.flushes.popleft().run()
    disk.room = None
    world.perform(world.cluster.handle(effect, world.now_ms))
    assert first.created().error is ErrorCode.KAFKA_STORAGE_ERROR
    world.flush()
    assert second.created().error is ErrorCode.NONE
    assert len(described(first, "new")[0].partitions) == 2


def test_a_topic_may_be_deleted_and_created_again_before_the_disk_has_done_any_of_it(world: World) -> None:
    """What the old one held is not in the new one."""
    clients = [world.client() for _ in range(3)]
    world.auto = True
    old_id = described(clients[0], "old")[0].topic_id
    clients[0].produce("old", b"of the old one")
    world.auto = False
    clients[0].send_delete("old")
    clients[1].send_create("old")
    clients[2].send_delete("nothing")
    while world.flushes:
        world.flush()
    assert clients[0].deleted() is ErrorCode.NONE
    made = clients[1].created()
    assert made.error is ErrorCode.NONE and made.topic_id != old_id
    assert clients[2].deleted() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.auto = True
    assert clients[0].fetch("old", 0, max_wait_ms=0).high_watermark == 0
    assert clients[0].produce("old", b"new").base_offset == 0


def test_a_topic_that_is_being_deleted_takes_records_until_it_is_gone(world: World) -> None:
    """Until then it is there; who waits for the disk then hears that it is not (and nobody that it is safe)."""
    client, producer, reader = world.client(), world.client(), world.client()
    reader.send_fetch("old", 0, max_wait_ms=60_000)
    client.send_delete("old")
    assert producer.produce("old", b"a", acks=1).base_offset == 0
    producer.send_produce("old", b"b")
    assert (producer.answers, reader.answers) == (0, 0)
    world.flush()
    assert client.deleted() is ErrorCode.NONE
    assert producer.produced().error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reader.fetched().error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    while world.flushes:
        world.flush()
    world.do_tasks()
    assert not [name for name in world.files.names() if name.startswith("old") or name.endswith("-delete")]


def test_topics_that_are_made_because_somebody_asks_are_waited_for(world: World) -> None:
    """D3: two ask for the same one; both are told of the one that is made."""
    first, second = world.client(), world.client()
    for client in (first, second):
        topics = [metadata.Topic(name=name) for name in ("auto", "old")]
        client.send(metadata, metadata.Request(topics=topics, allow_auto_topic_creation=True))
    assert (first.answers, second.answers) == (0, 0)
    world.flush()
    assert not world.flushes
    answers = [client.answer().topics for client in (first, second)]
    assert answers[0] == answers[1]
    assert [(topic.name, topic.error, len(topic.partitions)) for topic in answers[0]] == [
        ("auto", ErrorCode.NONE, 1),
        ("old", ErrorCode.NONE, 1),
    ]


def test_a_coordinator_is_named_when_the_groups_have_their_topic(world: World) -> None:
    """C2."""
    first, second = world.client(), world.client()
    for client in (first, second):
        client.send_find_coordinator()
        assert client.answers == 0
    world.flush()
    assert first.found_coordinator().error is second.found_coordinator().error is ErrorCode.NONE
    assert not world.flushes
    assert first.find_coordinator().error is ErrorCode.NONE


def test_partitions_configs_and_starts_are_in_force_when_the_disk_has_them(world: World) -> None:
    client, other = world.client(), world.client()
    world.auto = True
    other.produce("old", b"a", b"b")
    world.auto = False
    log = world.node.replicas.log("old", 0)
    assert log is not None

    grown = create_partitions.Topic(name="old", count=3)
    client.send(create_partitions, create_partitions.Request(topics=[grown]))
    assert len(described(other, "old")[0].partitions) == 1
    world.flush()
    assert client.answer().results[0].error is ErrorCode.NONE
    assert len(described(other, "old")[0].partitions) == 3

    config = alter_configs.Config(name="retention.ms", value="5")
    altered = alter_configs.Resource(resource_type=ResourceType.TOPIC, resource_name="old", configs=[config])
    client.send(alter_configs, alter_configs.Request(resources=[altered]))
    assert log.config.retention_ms != 5
    world.flush()
    assert client.answer().responses[0].error is ErrorCode.NONE
    assert log.config.retention_ms == 5
    asked = describe_configs.Resource(
        resource_type=ResourceType.TOPIC, resource_name="old", configuration_keys=["retention.ms"]
    )
    assert other.ask(describe_configs, describe_configs.Request(resources=[asked])).results[0].configs[0].value == "5"

    part = delete_records.Partition(partition=0, offset=1)
    topic = delete_records.Topic(name="old", partitions=[part])
    client.send(delete_records, delete_records.Request(topics=[topic]))
    assert other.fetch("old", 0).error is ErrorCode.NONE
    world.flush()
    assert client.answer().topics[0].partitions[0].low_watermark == 1
    assert other.fetch("old", 0).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert not world.flushes


def test_a_producer_id_waits_for_the_disk_once_in_a_thousand(world: World) -> None:
    clients = [world.client() for _ in range(3)]
    for client in clients:
        client.send(init_producer_id, PRODUCER)
    assert [client.answers for client in clients] == [0, 0, 0]
    world.flush()
    assert [client.answer().producer_id for client in clients] == [0, 1, 2]
    for number in range(3, 1_000):
        assert clients[0].ask(init_producer_id, PRODUCER).producer_id == number
    clients[0].send(init_producer_id, PRODUCER)
    assert clients[0].answers == 0
    world.flush()
    assert clients[0].answer().producer_id == 1_000


def test_the_parts_of_a_request_are_answered_together_in_the_order_asked(world: World) -> None:
    client = world.client()
    topics = [
        create_topics.NewTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("a.b", "old", "a_b", "c", "c", "d")
    ]
    client.send(create_topics, create_topics.Request(topics=topics))
    while world.flushes:
        assert client.answers == 0
        world.flush()
    assert [(topic.name, topic.error) for topic in client.answer().topics] == [
        ("a.b", ErrorCode.NONE),
        ("old", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("c", ErrorCode.INVALID_REQUEST),
        ("d", ErrorCode.NONE),
    ]


def test_a_client_that_went_away_gets_its_topic_all_the_same(world: World) -> None:
    client, other = world.client(), world.client()
    client.send_create("new")
    world.node.disconnected(client.connection)
    world.flush()
    assert names(other) == ["old", "new"]


def test_checkpoints_do_not_wait_and_do_not_pile_up(world: World, disk: FaultyFiles) -> None:
    """With a disk that takes minutes there is one under way; with one that refuses, it is told and tried again."""
    world.advance(600_000)
    assert len(world.flushes) == 1
    disk.room = 0
    world.flush()
    assert any("coterie-checkpoint.json" in trouble for trouble in world.troubles)
    disk.room = None
    world.advance(60_000)
    world.flush()
    assert not world.flushes
    assert len(world.troubles) == 1


def test_what_a_deleted_topic_left_in_the_checkpoints_does_not_reach_a_new_one_of_its_name(world: World) -> None:
    """Else a crash would find the new log to start, and to be durable, where the old one did."""
    client = world.client()
    world.auto = True
    client.produce("old", b"a", b"b", b"c")
    part = delete_records.Partition(partition=0, offset=3)
    topic = delete_records.Topic(name="old", partitions=[part])
    client.ask(delete_records, delete_records.Request(topics=[topic]))
    world.advance(60_000)
    client.delete("old")
    client.create("old")
    client.produce("old", b"new")
    world.cluster.directory.release()
    again = World(world.files, now_ms=2_000_000)
    assert again.client().read_all("old") == [(0, b"new")]


def test_a_directory_in_the_way_of_a_new_topic_is_set_aside(world: World) -> None:
    """Such as one that could not be cleared away."""
    world.files.mkdir("new-0")
    world.files.open("new-0/00000000000000000000.log", create=True).append(b"somebody's")
    world.auto = True
    client = world.client()
    client.create("new")
    assert client.produce("new", b"first").base_offset == 0
    assert "new-0.unknown-stray" in world.files.names()


def test_an_exception_of_ours_in_one_change_does_not_keep_the_next_from_its_turn() -> None:
    """And whoever waits for it is named; on the disk's thread too."""
    heard: list[str] = []
    reporter = Reporter(WallClock())
    changes = Changes(reporter, Responses(reporter))

    def wrong(_now_ms: int) -> Effects:
        raise ZeroDivisionError

    def broken() -> None:
        raise ZeroDivisionError

    def then(outcome: str, _now_ms: int) -> Effects:
        heard.append(outcome)
        return []

    changes.ask(None, wrong)
    changes.ask(None, lambda _now_ms: [Work(DiskChange(broken, lambda _: "never"), then)])
    changes.ask(None, lambda _now_ms: [Work(DiskChange(lambda: "well", str.upper), then)])
    mistake, work = changes.start(0)
    assert isinstance(mistake, Emit) and isinstance(mistake.fact, Mistake) and isinstance(work, Work)
    work.run()
    (mistake,) = changes.ended(0)
    assert isinstance(mistake, Emit) and isinstance(mistake.fact, Mistake)
    (work,) = changes.start(0)
    assert isinstance(work, Work)
    work.run()
    assert (changes.ended(0), heard) == ([], ["WELL"])
