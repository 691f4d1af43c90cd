"""Leaders change: nodes stop and start, partitions and coordinators are moved. Nobody who waits is forgotten."""

from __future__ import annotations

import pytest

from broker.cluster_world import Three, ready
from broker.speaker import list_request
from coterie.broker.broker_facts import LeadersChanged
from coterie.broker.placement import preferred_leader_of
from coterie.errors import ErrorCode
from coterie.protocol.apis import (
    create_topics,
    describe_topic_partitions,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
)
from coterie.protocol.batch import batches
from coterie.storage.files import read_file
from coterie.storage.log_errors import DamagedFileError
from logs import FaultyFiles

NONE, NOT_COORDINATOR, LOADING = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture
def world() -> Three:
    return ready()


# --- records ----------------------------------------------------------------------------------------------------------


def test_a_partition_that_moved_goes_on_where_it_stood_under_the_next_epoch(world: Three) -> None:
    old = world.of_leader("t")
    old.produce("t", b"a", b"b")
    world.move("t", 0, world.other_than(world.leader("t")))
    world.happened()
    assert old.produce("t", b"lost").error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    new = world.of_leader("t")
    assert new.produce("t", b"c").base_offset == 2
    assert new.read_all("t") == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert world.epoch("t") == 1
    data = world.cluster.directory.logs["t", 0].read(0, 1 << 20, 3)
    assert [header.leader_epoch for _, header in batches(data)] == [0, 1]


def test_leaders_epochs_are_kept_as_kafka_keeps_them(world: Three) -> None:
    """Version, number of entries, then epoch and first offset; from the topic's creation on."""
    at = "t-0/leader-epoch-checkpoint"
    assert read_file(world.files, at) == b"0\n1\n0 0\n"
    world.of_leader("t").produce("t", b"a", b"b")
    first = world.leader("t")
    world.move("t", 0, world.other_than(first))
    assert read_file(world.files, at) == b"0\n2\n0 0\n1 2\n"
    world.move("t", 0, first)
    assert read_file(world.files, at) == b"0\n2\n0 0\n2 2\n", "one in which nothing was written is dropped"


def test_a_client_of_an_older_or_a_later_epoch_is_told(world: Three) -> None:
    """KIP-320."""
    world.of_leader("t").produce("t", b"a")
    world.move("t", 0, world.other_than(world.leader("t")))
    client = world.of_leader("t")
    assert client.fetch("t", 0, epoch=0).error is ErrorCode.FENCED_LEADER_EPOCH
    assert client.fetch("t", 0, epoch=1).error is NONE
    assert client.fetch("t", 0, epoch=2).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    (listed,) = client.ask(list_offsets, list_request("t", -1, epoch=0)).topics[0].partitions
    assert listed.error is ErrorCode.FENCED_LEADER_EPOCH
    wrong = world.client(world.other_than(world.leader("t")))
    assert wrong.fetch("t", 0, epoch=0).error is ErrorCode.NOT_LEADER_OR_FOLLOWER, "who has nothing knows no epochs"


def test_where_an_epoch_ended_is_told(world: Three) -> None:
    """KIP-320: so a client knows whether what it read is still in the log."""
    world.of_leader("t").produce("t", b"a", b"b")
    world.move("t", 0, world.other_than(world.leader("t")))
    client = world.of_leader("t")
    client.produce("t", b"c")

    def ended(epoch: int) -> tuple[int, int]:
        asked = offset_for_leader_epoch.Partition(partition=0, leader_epoch=epoch)
        request = offset_for_leader_epoch.Request(topics=[offset_for_leader_epoch.Topic(topic="t", partitions=[asked])])
        (found,) = client.ask(offset_for_leader_epoch, request).topics[0].partitions
        return found.leader_epoch, found.end_offset

    assert [ended(epoch) for epoch in (0, 1, 2)] == [(0, 2), (1, 3), (-1, -1)]
    for timestamp, epoch in ((-2, 0), (-1, 1)):
        (listed,) = client.ask(list_offsets, list_request("t", timestamp)).topics[0].partitions
        assert listed.leader_epoch == epoch


def test_a_fetch_that_waits_hears_that_its_partition_has_moved(world: Three) -> None:
    reader = world.of_leader("t")
    reader.send_fetch("t", 0, max_wait_ms=60_000)
    assert reader.answers == 0
    world.move("t", 0, world.other_than(world.leader("t")))
    assert reader.fetched().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(world.cluster.fetches) == 0


def test_a_fetch_that_waits_for_another_partition_goes_on_waiting(world: Three) -> None:
    reader = world.of_leader("t", 1)
    reader.send_fetch("t", 0, partition=1, max_wait_ms=60_000)
    world.move("t", 0, world.other_than(world.leader("t", 0)))
    assert reader.answers == 0
    world.of_leader("t", 1).produce("t", b"a", partition=1)
    assert reader.fetched().high_watermark == 1


@pytest.mark.parametrize("well", [True, False])
def test_a_produce_that_waits_for_the_disk_has_its_true_answer_although_the_partition_moves(well: bool) -> None:
    """The log is the same: what it waits for is not who leads."""
    files = FaultyFiles()
    world = ready(files)
    producer, before = world.of_leader("t"), world.leader("t")
    world.auto = False
    producer.send_produce("t", b"a")
    world.move("t", 0, world.other_than(before))
    assert producer.answers == 0
    files.refuses_sync = not well
    world.flush()
    files.refuses_sync = False
    world.auto = True
    world.flush_all()
    world.advance(2_000)
    answer = producer.produced()
    assert (answer.error, answer.base_offset) == ((NONE, 0) if well else (ErrorCode.KAFKA_STORAGE_ERROR, -1))
    assert world.leader("t") != before
    client = world.of_leader("t")
    assert client.produce("t", b"b").base_offset == (1 if well else 0)
    assert client.read_all("t") == ([(0, b"a"), (1, b"b")] if well else [(0, b"b")])
    data = world.cluster.directory.logs["t", 0].read(0, 1 << 20, 2 if well else 1)
    assert [header.leader_epoch for _, header in batches(data)] == ([0, 1] if well else [1])


def test_an_idempotent_producer_that_sends_again_to_the_new_leader_doubles_nothing(world: Three) -> None:
    """D1: the producers of a log are those of the log, whoever leads."""
    client = world.of_leader("t")
    producer_id = client.ask(init_producer_id, init_producer_id.Request(transaction_timeout_ms=1)).producer_id
    client.produce("t", b"a", producer=(producer_id, 0, 0))
    world.move("t", 0, world.other_than(world.leader("t")))
    again = world.of_leader("t").produce("t", b"a", producer=(producer_id, 0, 0))
    assert (again.error, again.base_offset) == (NONE, 0)
    assert world.of_leader("t").read_all("t") == [(0, b"a")]


def test_two_nodes_never_give_out_the_same_producer_id(world: Three) -> None:
    request = init_producer_id.Request(transaction_timeout_ms=1)
    ids = [world.client(node).ask(init_producer_id, request).producer_id for node in (1, 2, 3, 1, 2, 3)]
    assert len(set(ids)) == 6


# --- nodes stop and start ---------------------------------------------------------------------------------------------


def leaders(world: Three) -> dict[tuple[str, int], int]:
    return {key: state.leader for key, state in world.cluster.leadership.partition_states.items()}


def test_what_a_stopped_node_led_goes_to_the_others_and_comes_back_when_it_starts(world: Three) -> None:
    before = leaders(world)
    world.stop_node(2)
    world.happened()
    now = leaders(world)
    assert {key for key in now if now[key] != before[key]} == {key for key in before if before[key] == 2}
    assert set(now.values()) == {1, 3}
    for key, was in before.items():
        assert world.epoch(*key) == (1 if was == 2 else 0)
    assert [one.node_id for one in world.described(1).brokers] == [1, 3]
    world.start_node(2)
    world.happened()
    assert leaders(world) == before
    assert {world.epoch(*key) for key, was in before.items() if was == 2} == {2}
    assert [one.node_id for one in world.described(1).brokers] == [1, 2, 3]
    told = [(fact.why, fact.nodes_up) for fact in world.facts if isinstance(fact, LeadersChanged)]
    assert told == [("node 2 stops", [1, 3]), ("node 2 starts", [1, 2, 3])]


def test_when_the_controller_stops_another_node_is(world: Three) -> None:
    world.stop_node(1)
    assert world.described(2).controller_id == 2
    assert world.client(3).create("u") is not None


def test_everything_acknowledged_is_there_when_nodes_stop_one_after_the_other(world: Three) -> None:
    for rebalance_ in range(3):
        for node in (1, 2, 3):
            world.stop_node(node)
            for number in range(6):
                world.of_leader("t", number).produce("t", b"%d" % rebalance_, partition=number)
            world.of_coordinator("g").commit("g", {("t", 0): rebalance_})
            world.start_node(node)
    assert world.of_coordinator("g").offsets_of("g") == {("t", 0): 2}
    for number in range(6):
        found = world.of_leader("t", number).read_all("t", number)
        assert [value for _, value in found] == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3
    assert world.outcomes == [None] * 18


def test_with_no_node_up_nobody_leads_and_the_first_to_start_leads_all(world: Three) -> None:
    for node in (1, 2, 3):
        world.stop_node(node)
    assert set(leaders(world).values()) == {-1}
    (topic,) = [topic for topic in world.described(3).topics if topic.name == "t"]
    assert {one.error for one in topic.partitions} == {ErrorCode.LEADER_NOT_AVAILABLE}
    paged = world.client(3).ask(describe_topic_partitions, describe_topic_partitions.Request(topics=[])).topics
    assert {(one.leader_id, len(one.isr)) for topic in paged for one in topic.partitions} == {(-1, 0)}
    assert all(one.replicas[0] > 0 for topic in paged for one in topic.partitions)
    assert world.client(3).find_coordinator("g").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.start_node(3)
    assert set(leaders(world).values()) == {3}
    assert world.client(3).produce("t", b"a").error is NONE


def test_a_topic_made_while_a_node_is_stopped_is_led_by_others_until_it_starts(world: Three) -> None:
    world.stop_node(2)
    world.client(1).create("u", 6)
    at_home_on_2 = [
        number for number in range(6) if world.cluster.leadership.partition_states["u", number].preferred_leader == 2
    ]
    assert len(at_home_on_2) == 2 and 2 not in {world.leader("u", number) for number in range(6)}
    world.start_node(2)
    assert [world.leader("u", number) for number in at_home_on_2] == [2, 2]
    assert [world.epoch("u", number) for number in at_home_on_2] == [1, 1]


@pytest.mark.parametrize(
    ("node", "said"), [(4, "no node 4; the nodes are 1, 2, 3"), (2, "node 2 is stopped: start it first")]
)
def test_what_cannot_be_is_refused_with_a_reason(world: Three, node: int, said: str) -> None:
    world.stop_node(2)
    world.happened()
    before = leaders(world)
    world.stop_node(node)
    world.move("t", 0, node)
    world.move_coordinator("g", node)
    assert [str(outcome) for outcome in world.outcomes] == [said] * 3
    world.start_node(1)
    world.move("absent", 0, 1)
    assert [str(outcome) for outcome in world.outcomes[3:]] == [
        "node 1 is running already",
        "topic 'absent' has no partition 0, so it cannot be moved",
    ]
    assert leaders(world) == before


# --- what is kept -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orderly", [True, False])
def test_after_a_restart_everything_is_at_home_and_no_epoch_is_lower_than_clients_have_seen(orderly: bool) -> None:
    world = ready()
    world.of_leader("t").produce("t", b"a")
    preferred_leader = leaders(world)
    world.stop_node(2)
    world.client(1).create("u", 6)
    world.move("t", 0, 3)
    seen = dict(world.cluster.leadership.partition_states)
    if orderly:
        world.stop()
    else:
        world.cluster.directory.release()
    again = Three(world.files, now_ms=2_000_000)
    for key, state in seen.items():
        now = again.cluster.leadership.partition_states[key]
        assert now.leader == now.preferred_leader == state.preferred_leader
        assert now.leader_epoch == state.leader_epoch + (now.leader != state.leader)
        assert again.cluster.directory.logs[key].leader_epoch == now.leader_epoch
    assert again.leader("t") == 3, "a partition prefers the node that it was moved to"
    assert {key: again.leader(*key) for key in preferred_leader if key != ("t", 0)} == {
        key: node for key, node in preferred_leader.items() if key != ("t", 0)
    }
    assert again.of_leader("t").produce("t", b"b").base_offset == 1


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (3, 2), (2, 5)])
def test_the_number_of_nodes_may_change_from_start_to_start(before: int, after: int) -> None:
    world = Three(nodes=before)
    client = world.client()
    client.find_coordinator()
    client.create("t", 6)
    world.of_leader("t").produce("t", b"a")
    world.of_coordinator("g").commit("g", {("t", 0): 1})
    world.stop()
    was = dict(world.cluster.leadership.partition_states)
    again = Three(world.files, nodes=after)
    for key, state in again.cluster.leadership.partition_states.items():
        assert state.leader == state.preferred_leader == preferred_leader_of(key, range(1, after + 1))
        assert state.leader_epoch == was[key].leader_epoch + (state.leader != was[key].leader)
    assert again.of_leader("t").read_all("t") == [(0, b"a")]
    assert again.of_coordinator("g").offsets_of("g") == {("t", 0): 1}
    again.stop()
    assert (
        dict(Three(world.files, nodes=after).cluster.leadership.partition_states)
        == again.cluster.leadership.partition_states
    )


def test_a_disk_that_cannot_keep_who_leads_changes_nothing() -> None:
    """A leader's epoch that was forgotten would be given twice."""
    files = FaultyFiles()
    world = ready(files)
    before = leaders(world)
    files.room = 0
    world.stop_node(2)
    assert leaders(world) == before and world.cluster.leadership.up == {1, 2, 3}
    assert "cannot keep who leads what" in str(world.outcomes.pop())
    files.room = None
    world.stop_node(2)
    world.happened()
    assert leaders(world) != before


def test_a_topic_whose_leaders_cannot_be_kept_is_not_made() -> None:
    files = FaultyFiles()
    world = ready(files)
    world.stop_node(2)
    files.room = 0
    asked = create_topics.NewTopic(name="u", num_partitions=6, replication_factor=1)
    (made,) = world.client(1).ask(create_topics, create_topics.Request(topics=[asked])).topics
    assert made.error is ErrorCode.KAFKA_STORAGE_ERROR
    files.room = None
    assert "u" not in world.cluster.directory.topics
    world.client(1).create("u", 6)


def test_without_the_file_epochs_do_not_fall() -> None:
    """The batches say under which epoch they were written; a client waits for ever for one that it has seen."""
    world = ready()
    world.move("t", 0, world.other_than(world.leader("t")))
    world.of_leader("t").produce("t", b"a")
    before = world.cluster.leadership.partition_states["t", 0].leader_epoch
    world.stop()
    world.files.delete("coterie-leaders.json")
    assert Three(world.files).cluster.leadership.partition_states["t", 0].leader_epoch >= before > 0


def test_leaders_that_cannot_be_read_stop_the_start_and_the_directory_is_free_again() -> None:
    world = ready()
    world.stop_node(2)
    world.stop()
    name = "coterie-leaders.json"
    content = read_file(world.files, name)
    file = world.files.open(name)
    file.truncate(5)
    file.close()
    for _ in range(2):  # the second time it is not said to be in use
        with pytest.raises(DamagedFileError, match=r"coterie-leaders\.json does not begin with the line"):
            Three(world.files)
    file = world.files.open(name)
    file.truncate(0)
    file.append(content)
    file.close()
    assert Three(world.files).leader("t") in {1, 2, 3}
