"""Transactions after a crash, on other nodes, after their timeout, and on a disk that fails."""

from __future__ import annotations

from typing import Any

import pytest

from broker.cluster_world import Three
from broker.driver import World
from broker.transactional import QUICK, TX, TransactionalClient, world_with_topics
from coterie.coordinator.transactions import partition_of
from coterie.errors import ErrorCode
from coterie.protocol.apis import find_coordinator
from coterie.protocol.transaction_state import TRANSACTION_STATE_TOPIC
from logs import FaultyFiles

NONE, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
EPOCH, FENCED = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED
T0 = ("t", 0)


def crashed(world: World, client: TransactionalClient, settings: dict[str, Any] | None = None) -> TransactionalClient:
    """The same client, connected to the broker that starts after a crash of this one."""
    world.cluster.directory.release()
    again = World(world.files, {**QUICK, **(settings or {})}, now_ms=world.now_ms + 5_000)
    after = TransactionalClient(again)
    after.ids, after.sequences = client.ids, dict(client.sequences)
    return after


def test_an_open_transaction_is_open_after_a_crash() -> None:
    """TR3: with its epoch, partitions, sequences and pending offsets; the last stable offset is held."""
    world, client = world_with_topics()
    client.find_coordinator()
    client.produce("t", b"plain")
    client.write(b"a")
    client.commit_offsets({T0: 7})
    after = crashed(world, client)
    assert (after.state, len(after.partitions), after.last_stable_offset()) == ("Ongoing", 2, 1)
    assert after.fetch_offsets(stable=True)[T0][1] is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert after.write(b"a", sequence=0).base_offset == 1, "a duplicate is known"
    after.sequences["t", 0] = 1
    assert not after.write(b"b").error
    assert not after.end(commit=True).error
    assert after.committed_values() == [b"plain", b"a", b"b"]
    assert after.fetch_offsets(stable=True)[T0] == (7, NONE)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("flushes", [1, 2])
def test_a_decided_transaction_is_completed_after_a_crash(commit: bool, flushes: int) -> None:
    """TR3, TR5: the markers of all partitions are written again."""
    world, client = world_with_topics()
    client.find_coordinator()
    client.write(b"a")
    client.write(b"b", partition=1)
    client.commit_offsets({T0: 7})
    world.auto = False
    client.send_end(commit=commit)
    for _ in range(flushes):
        world.flush()
    after = crashed(world, client)
    assert after.state == ("CompleteCommit" if commit else "CompleteAbort")
    assert after.committed_values() == ([b"a"] if commit else [])
    assert after.committed_values(1) == ([b"b"] if commit else [])
    assert after.fetch_offsets(stable=True)[T0] == ((7, NONE) if commit else (-1, NONE))
    answer = after.end(commit=commit)
    assert (answer.error, answer.producer_epoch) == (NONE, client.ids[1] + 1), "TE2: a repeated end is known"


def test_a_decision_is_not_seen_before_it_is_durable() -> None:
    """TS3."""
    world, client = world_with_topics()
    client.write(b"a")
    world.auto = False
    client.send_end(commit=True)
    looking = TransactionalClient(world)
    assert (client.answers, looking.state, looking.committed_values()) == (0, "Ongoing", [])
    world.flush()
    assert (client.answers, looking.state, looking.committed_values()) == (0, "PrepareCommit", [])


def test_the_last_epoch_is_not_kept() -> None:
    """TI3: a repeated Init is fenced after a restart; ends are known by the epoch."""
    world, client = world_with_topics()
    first = client.ids
    client.init(first)
    assert client.init(first).producer_epoch == first[1] + 1
    client.ids = first[0], first[1] + 1
    after = crashed(world, client)
    assert after.init(first).error is FENCED


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    """TT1, TT2, TT3: from its first partition on, looked for every 10 s; the producer can recover."""
    world, client = world_with_topics()
    client.find_coordinator()
    client.init(timeout_ms=30_000)
    old = client.ids
    world.advance(29_000)
    client.write(b"a")
    for _ in range(4):
        world.advance(10_000)
        client.write(b"more")
        if client.state != "Ongoing":
            break
    assert client.state == "CompleteAbort"
    assert client.write(b"b", version=12).error is EPOCH
    assert client.write(b"b", version=11).error is EPOCH
    assert client.write(b"b", partition=2).error is EPOCH
    assert client.add(T0)[T0] is FENCED
    assert client.commit_offsets({T0: 1}) == [EPOCH]
    assert client.end(commit=True, version=4).error is FENCED
    assert client.end(commit=False, version=4).error is FENCED
    assert client.end(commit=True).error is ErrorCode.INVALID_TXN_STATE
    other = TransactionalClient(world)
    answer = other.init(old)
    assert (answer.error, answer.producer_epoch) == (NONE, old[1] + 1)
    assert client.committed_values() == []


def test_the_producer_of_a_transaction_that_timed_out_goes_on_after_its_abort() -> None:
    """TT2, TT3: its abort looks like a repeated one. A plain Init is two epochs ahead."""
    world, client = world_with_topics()
    client.init(timeout_ms=1_000)
    _, epoch = client.ids
    client.write(b"a")
    world.advance(11_000)
    answer = client.end(commit=False)
    assert (answer.error, answer.producer_epoch) == (NONE, epoch + 1)
    assert not client.write(b"b").error
    world.advance(11_000)
    assert client.init().producer_epoch == epoch + 3


def test_the_timeout_goes_on_after_a_crash() -> None:
    """TR3: by its old start time. An Empty one never times out."""
    world, client = world_with_topics()
    client.init(timeout_ms=20_000)
    client.write(b"a")
    world.advance(14_000)
    after = crashed(world, client)
    after.world.advance(9_000)
    assert after.state == "Ongoing"
    after.world.advance(2_000)
    assert after.state == "CompleteAbort"
    after.init(timeout_ms=1)
    after.world.advance(60_000)
    assert after.state == "Empty"


def test_an_id_that_is_not_used_is_forgotten() -> None:
    """TT4: a tombstone is written, and the id is a new one."""
    settings = {"transactional.id.expiration.ms": 7_200_000}
    world, client = world_with_topics(settings=settings)
    busy = TransactionalClient(world, "busy")
    busy.init(timeout_ms=900_000)
    old = client.ids
    world.advance(3_600_000)
    busy.write(b"a", partition=1)
    world.advance(3_600_000)
    world.advance(3_600_000)
    assert client.state == "TRANSACTIONAL_ID_NOT_FOUND"
    assert client.add(T0)[T0] is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    after = crashed(world, client, settings)
    assert after.state == "TRANSACTIONAL_ID_NOT_FOUND"
    answer = after.init(old)
    assert answer.producer_epoch == 0 and answer.producer_id > old[0]


def test_a_producer_that_is_not_used_is_forgotten_by_its_partitions() -> None:
    """TT5: unless it has a transaction open there."""
    world, client = world_with_topics(
        settings={"producer.id.expiration.ms": 60_000, "transaction.max.timeout.ms": 2**31 - 1}
    )
    client.init(timeout_ms=2**31 - 1)
    client.write(b"a")
    other = TransactionalClient(world, "other")
    other.init()
    other.write(b"b")
    other.end(commit=True)
    world.advance(3_600_000)
    assert [one.producer_id for one in client.producers()] == [client.ids[0]]


def test_a_write_that_fails_changes_nothing() -> None:
    """TS4."""
    files = FaultyFiles()
    world, client = world_with_topics(files=files)
    log = world.cluster.directory.logs[TRANSACTION_STATE_TOPIC, partition_of(TX, 3)]
    log.cut_back(log.log_end_offset)  # nothing can be written until it is repaired
    assert client.add(T0)[T0] is ErrorCode.NOT_COORDINATOR
    assert client.init().error is ErrorCode.NOT_COORDINATOR
    assert client.state == "Empty"
    change = log.repair(world.now_ms)
    change.run()
    change.done()
    assert not client.add(T0)[T0]


def test_markers_that_cannot_be_written_are_written_later() -> None:
    """TL8, TS5: the end is answered, and the transaction is completed when the partition is there again."""
    world, client = world_with_topics()
    client.write(b"a")
    client.write(b"b", partition=1)
    log = world.cluster.directory.logs["t", 1]
    log.cut_back(log.log_end_offset)
    assert not client.end(commit=True).error
    assert (client.state, client.partitions) == ("PrepareCommit", [("t", 1)])
    assert client.committed_values() == [b"a"], "TL2: the others are visible"
    assert client.init().error is CONCURRENT
    change = log.repair(world.now_ms)
    change.run()
    change.done()
    world.advance(200)
    assert client.state == "CompleteCommit"
    assert client.committed_values(1) == [b"b"]


# --- several nodes ----------------------------------------------------------------------------------------------------


def three() -> tuple[Three, TransactionalClient]:
    world = Three(settings=QUICK)
    client = TransactionalClient(world)
    client.create("t", 6)
    client.node = world.cluster.nodes[client.find().node_id]
    client.init()
    return world, client


def coordinator_of(world: Three) -> int:
    return world.leader(TRANSACTION_STATE_TOPIC, partition_of(TX, 3))


def at_leader(world: Three, client: TransactionalClient, partition: int) -> TransactionalClient:
    other = TransactionalClient(world, node=world.leader("t", partition))
    other.ids = client.ids
    return other


def test_nodes_work_together() -> None:
    """TF3: a coordinator writes the markers of partitions that other nodes lead."""
    world, client = three()
    assert {world.leader("t", number) for number in range(6)} == {1, 2, 3}
    stranger = TransactionalClient(world, node=world.other_than(coordinator_of(world)))
    stranger.ids = client.ids
    assert stranger.init().error is ErrorCode.NOT_COORDINATOR
    assert stranger.state == "NOT_COORDINATOR"
    assert stranger.listing().transaction_states == []
    for number in range(6):
        assert not at_leader(world, client, number).write(b"%d" % number, partition=number).error
    assert not client.end(commit=True).error
    for number in range(6):
        assert at_leader(world, client, number).committed_values(number) == [b"%d" % number]


def test_a_transaction_goes_on_when_its_coordinator_moves() -> None:
    """TR4: the markers then have the new coordinator's epoch, which is higher."""
    world, client = three()
    at_leader(world, client, 0).write(b"a")
    was = coordinator_of(world)
    now = world.other_than(was)
    world.move(TRANSACTION_STATE_TOPIC, partition_of(TX, 3), now)
    world.happened()
    assert client.state == "NOT_COORDINATOR"
    request = find_coordinator.Request(keys=[TX], key_type=find_coordinator.TRANSACTION)
    assert client.ask(find_coordinator, request).coordinators[0].node_id == now
    moved = TransactionalClient(world, node=now)
    moved.ids = client.ids
    assert moved.state == "Ongoing"
    assert not moved.end(commit=True).error
    reader = at_leader(world, moved, 0)
    assert reader.committed_values() == [b"a"]
    (one,) = reader.producers()
    assert one.coordinator_epoch == world.epoch(TRANSACTION_STATE_TOPIC, partition_of(TX, 3)) > 0


def test_a_request_that_waits_is_answered_when_its_coordinator_moves() -> None:
    """TF3, TR4."""
    world, client = three()
    at_leader(world, client, 0).write(b"a")
    world.auto = False
    client.send_end(commit=True)
    world.flush()
    world.move(TRANSACTION_STATE_TOPIC, partition_of(TX, 3), world.other_than(coordinator_of(world)))
    while world.flushes:
        world.flush()
    assert client.ended().error in (NONE, ErrorCode.NOT_COORDINATOR)
    world.auto = True
    world.advance(200)
    moved = TransactionalClient(world, node=coordinator_of(world))
    assert moved.state == "CompleteCommit"
    assert at_leader(world, client, 0).committed_values() == [b"a"]


def test_a_node_stops_under_an_open_transaction() -> None:
    """TL2: the markers go to the node that leads the partition then."""
    world, client = three()
    number = next(each for each in range(6) if world.leader("t", each) != coordinator_of(world))
    at_leader(world, client, number).write(b"a", partition=number)
    world.stop_node(world.leader("t", number))
    assert not client.end(commit=True).error
    assert at_leader(world, client, number).committed_values(number) == [b"a"]
