"""AlterPartitionReassignments, ElectLeaders, AlterReplicaLogDirs with several nodes.

What one node answers is compared with Apache Kafka's answers in `conformance/cases/stories/admin.txt`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.cluster_world import Three, ready
from coterie.broker.broker_facts import LeadersChanged
from coterie.errors import ErrorCode
from coterie.protocol.apis import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    elect_leaders,
    list_partition_reassignments,
)
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from logs import FaultyFiles

NONE = ErrorCode.NONE
Asked = tuple[str, int, Sequence[int] | None]
Answered = list[tuple[ErrorCode, str | None]]


@pytest.fixture
def world() -> Three:
    return ready()


def reassign(world: Three, *asked: Asked, change: bool = True, node: int | None = None) -> Answered:
    topics = [
        alter_partition_reassignments.Topic(
            name=topic,
            partitions=[alter_partition_reassignments.Partition(partition=number, replicas=replicas)],
        )
        for topic, number, replicas in asked
    ]
    request = alter_partition_reassignments.Request(topics=topics, allow_replication_factor_change=change)
    response = world.client(node).ask(alter_partition_reassignments, request)
    return [(one.error, one.message) for topic in response.responses for one in topic.partitions]


def elect(world: Three, *asked: tuple[str, int], kind: int = elect_leaders.PREFERRED) -> Answered:
    topics = [elect_leaders.Topic(topic=topic, partitions=[number]) for topic, number in asked]
    response = world.client().ask(elect_leaders, elect_leaders.Request(election_type=kind, topic_partitions=topics))
    return [(one.error, one.message) for topic in response.results for one in topic.partitions]


# --- reassignments ----------------------------------------------------------------------------------------------------


def test_a_partition_is_reassigned_to_another_node_with_all_its_records(world: Three) -> None:
    world.of_leader("t").produce("t", b"a", b"b")
    node = world.other_than(world.leader("t"))
    assert reassign(world, ("t", 0, [node])) == [(NONE, None)]
    assert (world.leader("t"), world.epoch("t")) == (node, 1)
    assert world.client(node).read_all("t") == [(0, b"a"), (1, b"b")]
    (topic,) = [one for one in world.described(node).topics if one.name == "t"]
    assert (topic.partitions[0].leader_id, list(topic.partitions[0].replicas)) == (node, [node])


def test_every_node_takes_a_reassignment_and_none_is_ever_under_way(world: Three) -> None:
    node = world.other_than(world.leader("t"))
    assert reassign(world, ("t", 0, [node]), node=3) == [(NONE, None)]
    listed = world.client().ask(list_partition_reassignments, list_partition_reassignments.Request(topics=None))
    assert (listed.error, listed.topics) == (NONE, [])
    assert reassign(world, ("t", 0, None)) == [(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)]


def test_partitions_of_one_request_move_together_and_each_has_its_answer(world: Three) -> None:
    nodes = {number: world.other_than(world.leader("t", number)) for number in (0, 1)}
    answers = reassign(world, ("t", 0, [nodes[0]]), ("t", 9, [1]), ("t", 1, [nodes[1]]))
    assert [error for error, _ in answers] == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE]
    assert {number: world.leader("t", number) for number in (0, 1)} == nodes
    (told,) = [fact for fact in world.facts if isinstance(fact, LeadersChanged)]
    assert (told.why, told.partitions) == ("partitions are reassigned", 2)


def test_what_changes_nothing_is_no_change(world: Three) -> None:
    assert reassign(world, ("t", 0, [world.leader("t")])) == [(NONE, None)]
    assert world.epoch("t") == 0
    assert not [fact for fact in world.facts if isinstance(fact, LeadersChanged)]


def test_of_a_partition_that_is_named_twice_the_last_counts(world: Three) -> None:
    preferred_leader = world.leader("t")
    node = world.other_than(preferred_leader)
    assert reassign(world, ("t", 0, [node]), ("t", 0, [preferred_leader])) == [(NONE, None), (NONE, None)]
    assert (world.leader("t"), world.epoch("t")) == (preferred_leader, 0)


def test_groups_move_with_their_partition_of_the_offsets_topic(world: Three) -> None:
    world.client(world.coordinator("g")).commit("g", {("t", 0): 7})
    node = world.other_than(world.coordinator("g"))
    number = next(
        number for (topic, number) in world.cluster.leadership.led[world.coordinator("g")] if topic == OFFSETS_TOPIC
    )
    assert reassign(world, (OFFSETS_TOPIC, number, [node])) == [(NONE, None)]
    assert world.coordinator("g") == node
    assert world.client(node).offsets_of("g") == {("t", 0): 7}


def test_a_reassignment_outlives_the_broker(world: Three) -> None:
    node = world.other_than(world.leader("t"))
    reassign(world, ("t", 0, [node]))
    world.stop()
    again = Three(world.files, now_ms=2_000_000)
    assert (again.leader("t"), again.epoch("t")) == (node, 1)


def test_a_stopped_node_cannot_be_reassigned_to(world: Three) -> None:
    """As in CreateTopics, it counts as not registered."""
    world.stop_node(3)
    ((error, message),) = reassign(world, ("t", 0, [3]))
    assert error is ErrorCode.INVALID_REPLICA_ASSIGNMENT and message is not None and "broker 3" in message


def test_several_replicas_are_refused_for_there_is_one_copy_of_each_log(world: Three) -> None:
    ((error, message),) = reassign(world, ("t", 0, [1, 2]))
    assert error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message is not None and "coterie.replicas.as.one" in message
    ((error, _),) = reassign(world, ("t", 0, [1, 2]), change=False)
    assert error is ErrorCode.INVALID_REPLICATION_FACTOR


def test_several_replicas_count_as_the_first_if_the_broker_is_told_so() -> None:
    world = ready(coterie_replicas_as_one=True)
    node = world.other_than(world.leader("t"))
    assert reassign(world, ("t", 0, [node, world.other_than(node)])) == [(NONE, None)]
    assert world.leader("t") == node
    ((error, _),) = reassign(world, ("t", 0, [1, 1]))
    assert error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_disk_that_refuses_leaves_everything_as_it_was() -> None:
    files = FaultyFiles()
    world = ready(files)
    preferred_leader = world.leader("t")
    node = world.other_than(preferred_leader)
    files.refuses_sync = True
    answers = reassign(world, ("t", 0, [node]), ("t", 1, [world.leader("t", 1)]))
    assert [error for error, _ in answers] == [ErrorCode.KAFKA_STORAGE_ERROR, NONE], "the second had nothing to move"
    assert (world.leader("t"), world.epoch("t")) == (preferred_leader, 0)
    files.refuses_sync = False
    assert reassign(world, ("t", 0, [node])) == [(NONE, None)]


# --- elections --------------------------------------------------------------------------------------------------------


@pytest.fixture
def without_rebalance() -> Three:
    """Partition 0 of `t` is not led by its preferred leader, although that is up."""
    world = ready(auto_leader_rebalance_enable=False)
    preferred_leader = world.leader("t")
    world.stop_node(preferred_leader)
    world.start_node(preferred_leader)
    return world


def test_partitions_come_back_at_once_unless_the_broker_is_told_not_to(without_rebalance: Three) -> None:
    world = ready()
    preferred_leader = world.leader("t")
    world.stop_node(preferred_leader)
    world.start_node(preferred_leader)
    assert world.leader("t") == preferred_leader
    assert without_rebalance.leader("t") != preferred_leader


def test_an_election_gives_a_partition_back_to_its_preferred_node(without_rebalance: Three) -> None:
    world = without_rebalance
    preferred_leader = world.cluster.leadership.partition_states["t", 0].preferred_leader
    assert elect(world, ("t", 0)) == [(NONE, None)]
    assert (world.leader("t"), world.epoch("t")) == (preferred_leader, 2)
    ((error, _),) = elect(world, ("t", 0))
    assert error is ErrorCode.ELECTION_NOT_NEEDED


def test_an_election_of_all_leaders_tells_of_those_that_changed(without_rebalance: Three) -> None:
    world = without_rebalance
    states = world.cluster.leadership.partition_states
    away = {key for key, state in states.items() if state.leader != state.preferred_leader}
    assert away
    response = world.client().ask(elect_leaders, elect_leaders.Request(topic_partitions=None))
    told = {(topic.topic, one.partition): one.error for topic in response.results for one in topic.partitions}
    assert told == dict.fromkeys(away, NONE)
    assert {topic.topic for topic in response.results} == set(world.cluster.directory.topics)
    assert all(state.leader == state.preferred_leader for state in states.values())


def test_an_unclean_election_is_not_needed_while_somebody_leads(without_rebalance: Three) -> None:
    ((error, _),) = elect(without_rebalance, ("t", 0), kind=elect_leaders.UNCLEAN)
    assert error is ErrorCode.ELECTION_NOT_NEEDED


def test_a_preferred_node_that_is_stopped_cannot_be_elected(world: Three) -> None:
    preferred_leader = world.leader("t")
    world.stop_node(preferred_leader)
    leader = world.leader("t")
    topics = [elect_leaders.Topic(topic="t", partitions=[0])]
    response = world.client(leader).ask(elect_leaders, elect_leaders.Request(topic_partitions=topics))
    assert response.results[0].partitions[0].error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert world.leader("t") == leader


def test_a_long_name_is_not_repeated_for_each_of_its_partitions(world: Three) -> None:
    """A small request must not cause an answer of gigabytes."""
    name, numbers = "x" * 30_000, list(range(50))
    partitions = [alter_partition_reassignments.Partition(partition=number, replicas=[1]) for number in numbers]
    topics = [alter_partition_reassignments.Topic(name=name, partitions=partitions)]
    client = world.client()
    client.send(alter_partition_reassignments, alter_partition_reassignments.Request(topics=topics))
    assert len(client.next_frame()) < 2 * len(name)
    client.forget()
    request = elect_leaders.Request(topic_partitions=[elect_leaders.Topic(topic=name, partitions=numbers)])
    client.send(elect_leaders, request)
    assert len(client.next_frame()) < 2 * len(name)


# --- log directories --------------------------------------------------------------------------------------------------


def test_only_the_node_that_leads_a_partition_has_its_replica(world: Three) -> None:
    asked = [alter_replica_log_dirs.Topic(name="t", partitions=[0])]
    own = alter_replica_log_dirs.LogDir(path=world.cluster.data_path, topics=asked)
    errors = {
        node: world.client(node)
        .ask(alter_replica_log_dirs, alter_replica_log_dirs.Request(dirs=[own]))
        .results[0]
        .partitions[0]
        .error
        for node in world.cluster.nodes
    }
    leader = world.leader("t")
    assert errors == {node: NONE if node == leader else ErrorCode.REPLICA_NOT_AVAILABLE for node in errors}
