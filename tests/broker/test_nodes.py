"""Several nodes in one process: each answers for what it leads, and says of the rest that it does not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from broker.cluster_world import Three
from broker.driver import Client
from broker.speaker import commit_request, fetch_request, join_request, list_request, produce_request
from coterie.broker.calls import PLAINTEXT
from coterie.errors import CoterieError, ErrorCode
from coterie.protocol.api import ResourceType
from coterie.protocol.apis import (
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_topic_partitions,
    fetch,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from coterie.protocol.messages import (
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
)


@pytest.fixture
def world() -> Three:
    """Topic `t` of six partitions, and groups are served."""
    world = Three()
    client = world.client()
    client.find_coordinator()
    client.create("t", 6)
    return world


# --- what all say -----------------------------------------------------------------------------------------------------


def test_every_node_describes_the_same_cluster(world: Three) -> None:
    first, second, third = (world.described(node) for node in (1, 2, 3))
    assert first == second == third
    assert [(one.node_id, one.host, one.port) for one in first.brokers] == [
        (1, "broker.test", 9092),
        (2, "broker.test", 9093),
        (3, "broker.test", 9094),
    ]
    assert first.controller_id == 1


def test_partitions_are_spread_over_the_nodes(world: Three) -> None:
    (topic,) = [topic for topic in world.described(2).topics if topic.name == "t"]
    assert Counter(one.leader_id for one in topic.partitions) == {1: 2, 2: 2, 3: 2}
    assert {one.leader_epoch for one in topic.partitions} == {0}
    assert all(list(one.replicas) == list(one.isr) == [one.leader_id] for one in topic.partitions)
    request = describe_topic_partitions.Request(topics=[describe_topic_partitions.Topic(name="t")])
    (paged,) = world.client(3).ask(describe_topic_partitions, request).topics
    assert [(one.leader_id, one.leader_epoch) for one in paged.partitions] == [
        (one.leader_id, one.leader_epoch) for one in topic.partitions
    ]


def test_a_topic_made_by_one_node_is_there_on_all_and_its_id_too(world: Three) -> None:
    made = world.client(3).create("made-by-3", 3)
    for node in (1, 2, 3):
        (topic,) = [topic for topic in world.described(node).topics if topic.name == "made-by-3"]
        assert topic.topic_id == made


def test_find_coordinator_names_the_leader_of_the_groups_partition_on_every_node(world: Three) -> None:
    """C1, C2."""
    groups = [f"g{number}" for number in range(10)]
    found = {node: [world.client(node).find_coordinator(group).node_id for group in groups] for node in (1, 2, 3)}
    assert found[1] == found[2] == found[3] == [world.coordinator(group) for group in groups]
    assert set(found[1]) == {1, 2, 3}
    one = world.client(1).find_coordinator("g0")
    assert (one.host, one.port) == world.cluster.metadata.endpoints[PLAINTEXT][one.node_id]


def test_a_node_lists_the_groups_and_the_logs_that_are_its_own(world: Three) -> None:
    """Admin clients ask every broker and put the lists together."""
    groups = {f"g{number}" for number in range(10)}
    for group in groups:
        assert world.of_coordinator(group).commit(group, {("t", 0): 1}) == [ErrorCode.NONE]
    lists = [world.client(node).ask(list_groups, ListGroups(None, [], [])) for node in (1, 2, 3)]
    listed = [{one.group_id for one in found} for _, found in lists]
    assert set().union(*listed) == groups and sum(map(len, listed)) == len(groups)

    directories = [world.client(node).ask(describe_log_dirs, describe_log_dirs.Request(topics=None)) for node in (1, 2)]
    for node, answer in zip((1, 2), directories, strict=True):
        sizes = [(topic.name, one.partition) for topic in answer.results[0].topics for one in topic.partitions]
        assert sizes and {world.leader(*key) for key in sizes} == {node}


def test_a_node_knows_its_own_configs_alone(world: Three) -> None:
    """Kafka's brokers say so too; admin clients ask the broker they mean."""

    def asked(of: str, node: int) -> describe_configs.Result:
        resource = describe_configs.Resource(resource_type=ResourceType.BROKER, resource_name=of)
        (result,) = world.client(node).ask(describe_configs, describe_configs.Request(resources=[resource])).results
        assert isinstance(result, describe_configs.Result)
        return result

    assert {one.name: one.value for one in asked("2", 2).configs}["node.id"] == "2"
    assert asked("2", 3).error is ErrorCode.INVALID_REQUEST


# --- the wrong node ---------------------------------------------------------------------------------------------------


def wrong_for(world: Three, topic: str) -> Client:
    return world.client(world.other_than(world.leader(topic)))


def test_records_are_asked_of_the_leader_and_of_nobody_else(world: Three) -> None:
    client = wrong_for(world, "t")
    assert client.produce("t", b"a").error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert client.fetch("t", 0).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    (listed,) = client.ask(list_offsets, list_request("t", -1)).topics[0].partitions
    assert listed.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    epoch = offset_for_leader_epoch.Partition(partition=0, leader_epoch=0)
    asked = offset_for_leader_epoch.Request(topics=[offset_for_leader_epoch.Topic(topic="t", partitions=[epoch])])
    assert client.ask(offset_for_leader_epoch, asked).topics[0].partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition = delete_records.Partition(partition=0, offset=-1)
    delete = delete_records.Request(topics=[delete_records.Topic(name="t", partitions=[partition])], timeout_ms=1)
    assert client.ask(delete_records, delete).topics[0].partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.of_leader("t").fetch("t", 0, max_wait_ms=0).high_watermark == 0, "nothing was written"


def test_what_does_not_exist_is_unknown_to_every_node(world: Three) -> None:
    for node in (1, 2, 3):
        client = world.client(node)
        assert client.produce("absent", b"a").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.fetch("t", 0, partition=6).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_who_asks_the_wrong_node_hears_whom_to_ask(world: Three) -> None:
    """KIP-951: from Produce v10 and Fetch v16 on, with the address."""
    leader = world.leader("t")
    topic_id = world.cluster.directory.topics["t"].id
    client = wrong_for(world, "t")
    there = [(leader, *world.cluster.metadata.endpoints[PLAINTEXT][leader])]
    for version in (9, 10, 13):
        answer = client.ask(produce, produce_request("t", b"a", topic_id=topic_id), version)
        hint = answer.responses[0].partitions[0].current_leader
        assert (hint is not None and (hint.leader_id, hint.leader_epoch)) == ((leader, 0) if version >= 10 else False)
        assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == (there if version >= 10 else [])
    for version in (12, 15, 16, 18):
        request = fetch_request({"t": {0: 0}}, ids={"t": topic_id})
        answer = client.ask(fetch, request, version)
        hint = answer.responses[0].partitions[0].current_leader
        assert (hint is not None and (hint.leader_id, hint.leader_epoch)) == ((leader, 0) if version >= 16 else False)
        assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == (there if version >= 16 else [])


def test_a_produce_without_answer_to_the_wrong_node_ends_the_connection(world: Three) -> None:
    """D2: there is no answer to carry the error."""
    client = wrong_for(world, "t")
    client.send_produce("t", b"a", acks=0)
    client.forget()
    assert client.closed == "a produce with acks=0 failed: NOT_LEADER_OR_FOLLOWER"


GROUP_REQUESTS: list[tuple[Any, Any, int]] = [
    (join_group, join_request("g"), 9),
    (sync_group, SyncGroup(None, "g", "m", None, 1, [], "consumer", "range"), 5),
    (heartbeat, Heartbeat(None, "g", "m", None, 1), 4),
    (leave_group, LeaveGroup(None, "g", [LeavingMember("m")]), 5),
    (offset_commit, commit_request("g", {("t", 0): 1}), 8),
    (offset_fetch, [OffsetFetch(None, "g", None)], 8),
    (offset_delete, OffsetDelete(None, "g", [("t", [0])]), 0),
    (describe_groups, [DescribeGroup(None, "g")], 5),
    (delete_groups, [DeleteGroup(None, "g")], 2),
]


def errors_in(api: Any, answer: Any) -> list[ErrorCode]:
    if api is heartbeat:
        return [answer]
    if api is delete_groups:
        return [error for _, error in answer]
    if api is offset_commit:
        return list(answer.errors)
    return [one.error for one in (answer if isinstance(answer, list) else [answer])]


@pytest.mark.parametrize(("api", "request_", "version"), GROUP_REQUESTS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_group_is_asked_of_its_coordinator_and_of_nobody_else(
    world: Three, api: Any, request_: Any, version: int
) -> None:
    """C3."""
    there = world.coordinator("g")
    for node in {1, 2, 3} - {there}:
        assert errors_in(api, world.client(node).ask(api, request_, version)) == [ErrorCode.NOT_COORDINATOR]
    assert ErrorCode.NOT_COORDINATOR not in errors_in(api, world.client(there).ask(api, request_, version))


def test_before_there_are_groups_every_node_is_no_coordinator() -> None:
    """C3: and whoever is asked for one first has the topic made, with a leader for each of its partitions."""
    world = Three()
    assert [world.client(node).heartbeat("g", "m", 1) for node in (1, 2, 3)] == [ErrorCode.NOT_COORDINATOR] * 3
    found = world.client(2).find_coordinator("g")
    assert found.error is ErrorCode.NONE and found.node_id == world.coordinator("g")
    assert world.of_coordinator("g").heartbeat("g", "m", 1) is ErrorCode.UNKNOWN_MEMBER_ID


# --- topics for nodes -------------------------------------------------------------------------------------------------


def create(client: Client, **asked: Any) -> create_topics.CreatedTopic:
    (made,) = client.ask(create_topics, create_topics.Request(topics=[create_topics.NewTopic(**asked)])).topics
    assert isinstance(made, create_topics.CreatedTopic)
    return made


def assignment(*nodes: list[int]) -> list[create_topics.Assignment]:
    return [create_topics.Assignment(partition=number, broker_ids=ids) for number, ids in enumerate(nodes)]


def test_a_topic_can_be_made_for_certain_nodes(world: Three) -> None:
    made = create(world.client(2), name="u", num_partitions=-1, replication_factor=-1, assignments=assignment([3], [3]))
    assert made.error is ErrorCode.NONE
    assert [world.leader("u", number) for number in (0, 1)] == [3, 3]
    grow = create_partitions.Topic(name="u", count=3, assignments=[create_partitions.Assignment(broker_ids=[2])])
    answer = world.client(1).ask(create_partitions, create_partitions.Request(topics=[grow], timeout_ms=1_000))
    assert answer.results[0].error is ErrorCode.NONE
    assert world.leader("u", 2) == 2

    world.stop()
    again = Three(world.files)
    assert [again.leader("u", number) for number in (0, 1, 2)] == [3, 3, 2], "and stays there"


@pytest.mark.parametrize("nodes", [[4], [], [1, 2], [1, 1], [2, 4]])
def test_a_replica_is_on_one_node_that_is_there(world: Three, nodes: list[int]) -> None:
    made = create(world.client(), name="u", num_partitions=-1, replication_factor=-1, assignments=assignment(nodes))
    assert made.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_more_replicas_than_one_are_refused_in_kafkas_words(world: Three) -> None:
    made = create(world.client(), name="u", num_partitions=1, replication_factor=4)
    assert made.error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert made.message == (
        "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because "
        "only 3 broker(s) are registered."
    )
    made = create(world.client(), name="u", num_partitions=1, replication_factor=3)
    assert made.error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert made.message is not None and "one copy of each log" in made.message
    assert create(world.client(), name="u", num_partitions=1, replication_factor=0).message == (
        "Replication factor must be larger than 0, or -1 to use the default value."
    )


def test_more_replicas_than_one_are_taken_as_one_where_that_is_set() -> None:
    """Scripts that create topics for a cluster of three run unchanged; the answer says what there is."""
    world = Three(settings={"coterie.replicas.as.one": True})
    made = create(world.client(), name="t", num_partitions=2, replication_factor=3)
    assert (made.error, made.replication_factor) == (ErrorCode.NONE, 1)
    made = create(
        world.client(), name="u", num_partitions=-1, replication_factor=-1, assignments=assignment([3, 1], [2, 3])
    )
    assert (made.error, made.replication_factor) == (ErrorCode.NONE, 1)
    assert [world.leader("u", number) for number in (0, 1)] == [3, 2]
    refused = create(world.client(), name="v", num_partitions=-1, replication_factor=-1, assignments=assignment([3, 4]))
    assert refused.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert create(world.client(), name="v", num_partitions=1, replication_factor=0).error


# --- one node ---------------------------------------------------------------------------------------------------------


def test_one_node_leads_everything_and_keeps_no_file_about_it() -> None:
    world = Three(nodes=1)
    world.client().find_coordinator()
    world.client().create("t", 3)
    assert not world.files.exists("coterie-leaders.json")
    assert {world.leader("t", number) for number in range(3)} == {1}


@pytest.mark.parametrize("nodes", [0, -1, 101])
def test_a_number_of_nodes_that_makes_no_sense_is_refused(nodes: int) -> None:
    with pytest.raises(CoterieError, match="a broker has 1 to 100"):
        Three(nodes=nodes)


def test_describe_cluster_lists_the_nodes_and_those_that_are_stopped_if_asked(world: Three) -> None:
    world.stop_node(1)
    world.happened()
    client = world.client(2)
    answer = client.ask(describe_cluster, describe_cluster.Request())
    assert ([one.node_id for one in answer.brokers], answer.controller_id) == ([2, 3], 2)
    answer = client.ask(describe_cluster, describe_cluster.Request(include_fenced_brokers=True), 2)
    assert [(one.node_id, one.is_fenced) for one in answer.brokers] == [(1, True), (2, False), (3, False)]
