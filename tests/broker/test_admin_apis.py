"""DescribeQuorum, ListConfigResources, DescribeProducers, ListTransactions with what only Coterie has.

What Apache Kafka answers as well is compared in `conformance/cases/stories/admin.txt`.
"""

from __future__ import annotations

import pytest

from broker.cluster_world import Three, ready
from broker.driver import World
from coterie.errors import ErrorCode
from coterie.protocol.api import ResourceType
from coterie.protocol.apis import (
    describe_producers,
    describe_quorum,
    list_config_resources,
    list_transactions,
)

THE_QUORUM = describe_quorum.Request(
    topics=[
        describe_quorum.Topic(topic=describe_quorum.METADATA_TOPIC, partitions=[describe_quorum.Partition(partition=0)])
    ]
)


@pytest.fixture
def world() -> Three:
    return ready()


# --- the quorum -------------------------------------------------------------------------------------------------------


def test_every_node_can_be_the_controller_and_the_first_is(world: Three) -> None:
    """There is no metadata log: its epoch and offsets are 0. Nobody is behind, since all share one state."""
    response = world.client().ask(describe_quorum, THE_QUORUM)
    (found,) = response.topics[0].partitions
    assert (response.error, found.error, found.leader_id, found.leader_epoch, found.high_watermark) == (0, 0, 1, 0, 0)
    now = {(voter.last_fetch_timestamp, voter.last_caught_up_timestamp) for voter in found.current_voters}
    assert now == {(world.now_ms, world.now_ms)}
    assert [(voter.replica_id, voter.log_end_offset) for voter in found.current_voters] == [(1, 0), (2, 0), (3, 0)]
    assert [(node.node_id, [(one.host, one.port) for one in node.listeners]) for node in response.nodes] == [
        (number, [("broker.test", 9091 + number)]) for number in (1, 2, 3)
    ]


def test_a_stopped_node_stays_a_voter_of_which_nothing_is_known(world: Three) -> None:
    world.stop_node(1)
    response = world.client(2).ask(describe_quorum, THE_QUORUM)
    (found,) = response.topics[0].partitions
    assert found.leader_id == 2
    assert [voter.last_fetch_timestamp for voter in found.current_voters] == [-1, world.now_ms, world.now_ms]


# --- what has configs -------------------------------------------------------------------------------------------------


def test_every_node_that_is_up_has_configs(world: Three) -> None:
    world.stop_node(2)
    asked = list_config_resources.Request(resource_types=[ResourceType.BROKER])
    found = world.client().ask(list_config_resources, asked).config_resources
    assert [(one.resource_name, one.resource_type) for one in found] == [("1", 4), ("3", 4)]


# --- producers --------------------------------------------------------------------------------------------------------


def producers(world: World, node: int | None = None) -> describe_producers.DescribedPartition:
    asked = [describe_producers.Topic(name="t", partitions=[0])]
    response = world.client(node).ask(describe_producers, describe_producers.Request(topics=asked))
    found: describe_producers.DescribedPartition = response.topics[0].partitions[0]
    return found


def test_idempotent_producers_are_described_by_their_last_batch() -> None:
    world = World()
    client = world.client()
    client.create("t")
    client.produce("t", b"a")
    assert producers(world).active_producers == [], "who has no id is not one of them"
    client.produce("t", b"b", b"c", producer=(7, 2, 0), timestamps=[5, 9])
    client.produce("t", b"d", producer=(7, 2, 2), timestamps=[11])
    client.produce("t", b"e", producer=(8, 0, 0), timestamps=[12])
    assert producers(world).active_producers == [
        describe_producers.Producer(producer_id=7, producer_epoch=2, last_sequence=2, last_timestamp=11),
        describe_producers.Producer(producer_id=8, producer_epoch=0, last_sequence=0, last_timestamp=12),
    ]


def test_a_partition_that_is_named_twice_is_described_once() -> None:
    world = World()
    world.client().create("t", 2)
    asked = [describe_producers.Topic(name="t", partitions=numbers) for numbers in ([1, 0, 1], [0])]
    response = world.client().ask(describe_producers, describe_producers.Request(topics=asked))
    assert [(topic.name, [one.partition for one in topic.partitions]) for topic in response.topics] == [("t", [1, 0])]


def test_producers_are_described_by_the_leader_alone(world: Three) -> None:
    leader = world.leader("t")
    assert producers(world, leader).error is ErrorCode.NONE
    assert producers(world, world.other_than(leader)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- transactions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["(" * 5_000, "a{9999999999999}", "x" * 10_001, "[", "(?P<a>"])
def test_a_pattern_that_is_none_or_too_long_is_refused(pattern: str) -> None:
    request = list_transactions.Request(transactional_id_pattern=pattern)
    assert World().client().ask(list_transactions, request).error is ErrorCode.INVALID_REGULAR_EXPRESSION
