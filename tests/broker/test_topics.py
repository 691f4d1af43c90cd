"""Topics: looked up, created, grown, deleted, described."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.driver import Client, World
from coterie.errors import ErrorCode
from coterie.protocol.apis import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    metadata,
    offset_fetch,
)
from coterie.protocol.apis.create_topics import Assignment, Config, NewTopic
from coterie.protocol.messages import OffsetFetch

BAD_REPLICAS = ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return world.client()


# --- Metadata ---------------------------------------------------------------------------------------------------------


def described(client: Client, *names: str, create: bool = False, version: int = 12) -> list[metadata.DescribedTopic]:
    request = metadata.Request(topics=[metadata.Topic(name=name) for name in names], allow_auto_topic_creation=create)
    return list(client.ask(metadata, request, version).topics)


def test_a_topic_that_is_asked_for_is_created(client: Client) -> None:
    """D3; and its producers find it at once."""
    (topic,) = described(client, "new", create=True)
    assert not topic.error and [one.partition for one in topic.partitions] == [0]
    assert (topic.partitions[0].leader_id, topic.partitions[0].leader_epoch) == (1, 0)
    assert client.produce("new", b"a").base_offset == 0


def test_nothing_is_created_if_client_or_broker_does_not_want_it(client: Client) -> None:
    assert described(client, "new")[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    strict = World(settings={"auto.create.topics.enable": "false"}).client()
    assert described(strict, "new", create=True)[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250, "t\0"])
def test_a_name_no_topic_can_have_is_invalid(client: Client, name: str) -> None:
    for create in (True, False):
        assert described(client, name, create=create)[0].error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_asked_for_none_in_particular_all_are_described(world: World, client: Client) -> None:
    """D3: null, and in version 0 the empty list; in later versions an empty list is no topic."""
    client.create("a")
    client.create("b", 3)
    for version in (0, 1, 13):
        answer = client.ask(metadata, metadata.Request(topics=None), version)
        assert [(one.name, len(one.partitions)) for one in answer.topics] == [("a", 1), ("b", 3)]
        assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [(1, "broker.test", 9092)]
    assert client.ask(metadata, metadata.Request(topics=[]), 1).topics == []
    assert client.ask(metadata, metadata.Request(topics=None), 13).cluster_id == world.cluster.metadata.cluster_id


def test_topics_are_described_by_id(client: Client) -> None:
    topic_id = client.create("a")
    asked = [metadata.Topic(topic_id=topic_id), metadata.Topic(topic_id=UUID(int=9))]
    known, unknown = client.ask(metadata, metadata.Request(topics=asked), 12).topics
    assert (known.name, known.topic_id) == ("a", topic_id)
    assert (unknown.error, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, UUID(int=9))


def test_the_topic_of_the_groups_is_created_by_name_too(client: Client) -> None:
    """And serves groups from then on."""
    (topic,) = described(client, "__consumer_offsets", create=True)
    assert topic.is_internal and len(topic.partitions) == 3
    client.create("t")
    assert client.commit("g", {("t", 0): 1}) == [ErrorCode.NONE]


# --- CreateTopics -----------------------------------------------------------------------------------------------------


def created(client: Client, *topics: NewTopic, validate_only: bool = False) -> list[create_topics.CreatedTopic]:
    request = create_topics.Request(topics=topics, validate_only=validate_only)
    return list(client.ask(create_topics, request).topics)


def test_a_topic_is_created_as_asked(client: Client) -> None:
    (topic,) = created(client, NewTopic(name="t", num_partitions=4, replication_factor=1))
    assert (topic.error, topic.num_partitions, topic.replication_factor) == (ErrorCode.NONE, 4, 1)
    assert described(client, "t")[0].topic_id == topic.topic_id is not None


def test_defaults_and_assignments_say_how_many_partitions() -> None:
    client = World(settings={"num.partitions": 5}).client()
    default, assigned = created(
        client,
        NewTopic(name="default"),
        NewTopic(name="assigned", assignments=[Assignment(partition=n, broker_ids=[1]) for n in (1, 0)]),
    )
    assert (default.num_partitions, assigned.num_partitions) == (5, 2)


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic(name="has space", num_partitions=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="", num_partitions=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="old.one", num_partitions=1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic(name="old_one", num_partitions=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="t", num_partitions=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", num_partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", num_partitions=2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic(name="t", num_partitions=1, replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", num_partitions=1, replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", num_partitions=1, replication_factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (
            NewTopic(name="t", num_partitions=1, assignments=[Assignment(partition=0, broker_ids=[1])]),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            NewTopic(name="t", assignments=[Assignment(partition=1, broker_ids=[1])]),
            BAD_REPLICAS,
        ),
        (
            NewTopic(name="t", assignments=[Assignment(partition=0, broker_ids=[2])]),
            BAD_REPLICAS,
        ),
        (
            NewTopic(name="t", assignments=[Assignment(partition=0, broker_ids=[])]),
            BAD_REPLICAS,
        ),
        (
            NewTopic(name="t", assignments=[Assignment(partition=0, broker_ids=[1, 1])]),
            BAD_REPLICAS,
        ),
        (NewTopic(name="t", configs=[Config(name="retention.ms", value=None)]), ErrorCode.INVALID_CONFIG),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_what_is_wrong_with_a_new_topic_is_told(
    client: Client, topic: NewTopic, error: ErrorCode, *, validate_only: bool
) -> None:
    client.create("old.one")
    (answer,) = created(client, topic, validate_only=validate_only)
    assert answer.error is error and answer.message
    assert described(client, "t")[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_validating_creates_nothing(client: Client) -> None:
    (answer,) = created(client, NewTopic(name="t", num_partitions=2), validate_only=True)
    assert (answer.error, answer.num_partitions) == (ErrorCode.NONE, 2)
    assert described(client, "t")[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_named_twice_in_a_request_is_refused_once(client: Client) -> None:
    answers = created(client, NewTopic(name="t"), NewTopic(name="u"), NewTopic(name="t"))
    assert [(one.name, one.error) for one in answers] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
    ]


@pytest.mark.parametrize("partitions", [3, 5])
def test_groups_are_served_whoever_created_their_topic_and_however_large(client: Client, partitions: int) -> None:
    """The topic's own number of partitions decides where a group is kept, not the setting (here 3)."""
    created(client, NewTopic(name="__consumer_offsets", num_partitions=partitions))
    client.create("t")
    groups = [f"g{number}" for number in range(20)]
    for number, group in enumerate(groups):
        assert client.find_coordinator(group).error is ErrorCode.NONE
        assert client.commit(group, {("t", 0): number}) == [ErrorCode.NONE]


def test_groups_are_found_again_though_the_setting_was_changed() -> None:
    world = World(settings={"offsets.topic.num.partitions": 7})
    client = world.client()
    client.find_coordinator()
    client.create("t")
    groups = [f"g{number}" for number in range(20)]
    for number, group in enumerate(groups):
        client.commit(group, {("t", 0): number})
    world.stop()
    again = World(world.files, {"offsets.topic.num.partitions": 2}, now_ms=2_000_000).client()
    assert [again.offsets_of(group)["t", 0] for group in groups] == list(range(20))


# --- CreatePartitions -------------------------------------------------------------------------------------------------


def grown(client: Client, topic: create_partitions.Topic, *, validate_only: bool = False) -> create_partitions.Result:
    request = create_partitions.Request(topics=[topic], validate_only=validate_only)
    answer: create_partitions.Result = client.ask(create_partitions, request).results[0]
    return answer


def test_a_topic_grows_and_keeps_what_it_has(world: World, client: Client) -> None:
    client.create("t")
    client.produce("t", b"a")
    assert not grown(client, create_partitions.Topic(name="t", count=3), validate_only=True).error
    assert len(described(client, "t")[0].partitions) == 1
    assert not grown(client, create_partitions.Topic(name="t", count=3)).error
    assert len(described(client, "t")[0].partitions) == 3
    assert client.produce("t", b"b", partition=2).base_offset == 0
    world.cluster.directory.release()
    again = World(world.files, now_ms=2_000_000).client()
    assert (again.read_all("t"), again.read_all("t", 2)) == ([(0, b"a")], [(0, b"b")])


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (create_partitions.Topic(name="nowhere", count=2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (create_partitions.Topic(name="t", count=2), ErrorCode.INVALID_PARTITIONS),
        (create_partitions.Topic(name="t", count=1), ErrorCode.INVALID_PARTITIONS),
        (create_partitions.Topic(name="t", count=-1), ErrorCode.INVALID_PARTITIONS),
        (create_partitions.Topic(name="t", count=2**31 - 1), ErrorCode.INVALID_PARTITIONS),
        (
            create_partitions.Topic(name="t", count=4, assignments=[create_partitions.Assignment(broker_ids=[1])]),
            BAD_REPLICAS,
        ),
        (
            create_partitions.Topic(name="t", count=3, assignments=[create_partitions.Assignment(broker_ids=[9])]),
            BAD_REPLICAS,
        ),
        (create_partitions.Topic(name="__consumer_offsets", count=99), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_topic_does_not_grow_for_a_wrong_request(
    client: Client, topic: create_partitions.Topic, error: ErrorCode
) -> None:
    client.find_coordinator()
    client.create("t", 2)
    assert grown(client, topic).error is error
    assert len(described(client, "t")[0].partitions) == 2


# --- DeleteTopics -----------------------------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_with_its_offsets_also_after_a_restart(world: World, client: Client) -> None:
    """Rule 23: the offsets, not the group."""
    client.find_coordinator()
    client.create("t")
    client.create("kept")
    client.produce("t", b"a")
    client.commit("g", {("t", 0): 1, ("kept", 0): 2})
    assert client.delete("t") is ErrorCode.NONE
    assert client.offsets_of("g") == {("kept", 0): 2}
    assert described(client, "t")[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce("t", b"a").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.cluster.directory.release()
    again = World(world.files, now_ms=2_000_000)
    assert again.client().offsets_of("g") == {("kept", 0): 2}
    assert "t" not in again.cluster.directory.topics
    assert not [name for name in again.files.names() if name.endswith("-delete")]


def test_topics_are_deleted_by_id(client: Client) -> None:
    topic_id = client.create("t")
    asked = [delete_topics.Topic(topic_id=topic_id), delete_topics.Topic(topic_id=UUID(int=3))]
    gone, unknown = client.ask(delete_topics, delete_topics.Request(topics=asked)).responses
    assert (gone.error, gone.name) == (ErrorCode.NONE, "t")
    assert (unknown.error, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, UUID(int=3))


def test_what_must_not_be_deleted_is_not(client: Client) -> None:
    client.find_coordinator()
    assert client.delete("nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.delete("__consumer_offsets") is ErrorCode.INVALID_REQUEST
    strict = World(settings={"delete.topic.enable": "false"}).client()
    strict.create("t")
    assert strict.delete("t") is ErrorCode.TOPIC_DELETION_DISABLED
    assert strict.produce("t", b"a").base_offset == 0


def test_a_topic_named_twice_is_deleted_once(client: Client) -> None:
    client.create("t")
    asked = [delete_topics.Topic(name="t"), delete_topics.Topic(name="t")]
    answers = client.ask(delete_topics, delete_topics.Request(topics=asked)).responses
    assert ErrorCode.NONE in {one.error for one in answers}
    assert described(client, "t")[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offsets_by_id_of_a_topic_that_is_gone(client: Client) -> None:
    """Rule 22, version 10."""
    client.find_coordinator()
    topic_id = client.create("t")
    client.commit("g", {("t", 0): 1})
    client.delete("t")
    (answer,) = client.ask(offset_fetch, [OffsetFetch(None, "g", [("", [0])], topic_ids=[topic_id])], 10)
    assert [one.error for one in answer.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]


# --- DescribeTopicPartitions ------------------------------------------------------------------------------------------


def test_topics_are_described_page_by_page(client: Client) -> None:
    """KIP-966."""
    for name, partitions in (("b", 3), ("a", 2), ("c", 4)):
        client.create(name, partitions)
    pages, cursor = [], None
    while True:
        request = describe_topic_partitions.Request(topics=[], response_partition_limit=2, cursor=cursor)
        answer = client.ask(describe_topic_partitions, request)
        pages.append([(topic.name, [one.partition for one in topic.partitions]) for topic in answer.topics])
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert pages == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])], [("c", [1, 2])], [("c", [3])]]


def test_a_page_begins_where_its_cursor_is_even_if_that_topic_is_gone(client: Client) -> None:
    for name in ("a", "c"):
        client.create(name, 2)
    cursor = describe_topic_partitions.Cursor(topic="b", partition=1)
    request = describe_topic_partitions.Request(topics=[], cursor=cursor)
    answer = client.ask(describe_topic_partitions, request)
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("c", 2)]


def test_a_topic_that_is_not_there_is_described_as_such(client: Client) -> None:
    asked = [describe_topic_partitions.Topic(name=name) for name in ("nowhere", "not a name")]
    answer = client.ask(describe_topic_partitions, describe_topic_partitions.Request(topics=asked))
    assert {topic.name: topic.error for topic in answer.topics} == {
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "not a name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
