"""Durability: who is answered when, many writes in one flush, and a disk that refuses."""

from __future__ import annotations

import pytest

from broker.driver import Client, World
from broker.held_disk import ready
from broker.speaker import produce_request
from coterie.broker.broker_effects import Effects, TimersDue
from coterie.errors import ErrorCode
from coterie.protocol.apis import delete_records, delete_topics, init_producer_id, leave_group, metadata, produce
from coterie.protocol.messages import LeaveGroup, LeavingMember
from logs import FaultyFiles

# --- when -------------------------------------------------------------------------------------------------------------


def test_a_commit_is_answered_when_the_disk_has_it() -> None:
    """Rule 22."""
    world, client = ready()
    client.send_commit("g", {("t", 0): 7})
    assert client.answers == 0
    world.flush()
    assert client.committed() == [ErrorCode.NONE]


def test_with_flush_os_nobody_waits_for_the_disk() -> None:
    world, client = ready(sync=False)
    assert client.commit("g", {("t", 0): 7}) == [ErrorCode.NONE]
    assert client.produce("t", b"a").base_offset == 0
    assert client.fetch("t", 0).high_watermark == 1
    assert not world.flushes


def test_a_leaders_sync_is_answered_when_the_disk_has_the_assignment() -> None:
    """Rule 11: nobody is answered before the record is durable."""
    world, client = ready()
    client.send_join("g", version=3)  # the group's record is on its way; a join is answered all the same
    world.flush()
    joined = client.answer()
    client.send_sync("g", joined, {joined.member_id: b"mine"})
    assert client.answers == 0
    world.flush()
    assert client.answer().assignment == b"mine"


def test_the_last_leave_is_answered_when_the_disk_has_it() -> None:
    """C4: a member that was told it has left does not come back after a crash."""
    world, client = ready()
    world.auto = True
    member = client.enter("g")
    world.auto = False
    client.send(leave_group, LeaveGroup(None, "g", [LeavingMember(member.member_id)]))
    assert client.answers == 0
    world.flush()
    assert client.answer().members[0].error is ErrorCode.NONE


def test_acks_all_waits_for_the_disk_and_acks_1_does_not() -> None:
    world, _ = ready()
    one, every = world.client(), world.client()
    assert one.produce("t", b"a", acks=1).base_offset == 0
    every.send_produce("t", b"b", acks=-1)
    assert every.answers == 0
    world.flush()  # of what was written first
    assert every.answers == 0
    world.flush()
    assert every.produced().base_offset == 1


def test_a_request_for_many_partitions_is_answered_when_the_last_is_durable() -> None:
    world, client = ready()
    request = produce_request("t", b"a")
    request.topics[0].partitions = [
        *request.topics[0].partitions,
        *produce_request("t", b"b", partition=1).topics[0].partitions,
    ]
    client.send(produce, request, 9)
    assert client.answers == 0
    world.flush()
    answer = client.answer()
    assert [one.base_offset for one in answer.responses[0].partitions] == [0, 0]


def test_all_that_is_written_during_a_flush_shares_the_next() -> None:
    """Group commit: three logs, six requests, two flushes."""
    world, _ = ready()
    clients = [world.client() for _ in range(6)]
    clients[0].send_produce("u", b"first")
    for client in clients[1:4]:
        client.send_produce("t", b"x")
    clients[4].send_commit("g", {("t", 0): 1})
    clients[5].send_commit("g", {("t", 0): 2})
    assert len(world.flushes) == 1
    world.flush()
    assert [client.answers for client in clients] == [1, 0, 0, 0, 0, 0]
    world.flush()
    assert [client.answers for client in clients] == [1, 1, 1, 1, 1, 1]
    assert not world.flushes
    assert clients[5].committed() == [ErrorCode.NONE]
    assert clients[5].offsets_of("g") == {("t", 0): 2}


def test_commits_that_come_while_their_log_is_flushed_are_in_its_next_batch() -> None:
    """Three commits of one group: the first is alone, the others wait for its flush and are written together."""
    world, client = ready()
    more = [world.client(), world.client()]
    log = world.node.replicas.log("__consumer_offsets", world.cluster.partition_of("g"))
    assert log is not None
    end = log.log_end_offset
    client.send_commit("g", {("t", 0): 1})
    for number, each in enumerate(more, 2):
        each.send_commit("g", {("t", 0): number})
    assert log.log_end_offset == end + 1
    world.flush()
    assert [each.answers for each in (client, *more)] == [1, 0, 0]
    assert log.log_end_offset == end + 3
    world.flush()
    assert [each.committed() for each in (client, *more)] == [[ErrorCode.NONE]] * 3
    assert client.offsets_of("g") == {("t", 0): 3}


def test_a_commit_the_disk_keeps_waiting_is_refused_in_time() -> None:
    """Rule 22: after offsets.commit.timeout.ms; it counts all the same if the write ends."""
    world, client = ready()
    client.send_commit("g", {("t", 0): 7})
    world.advance(5_000)
    assert client.committed() == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.flush()
    assert client.offsets_of("g") == {("t", 0): 7}


def test_a_produce_the_disk_keeps_waiting_is_refused_in_time() -> None:
    """Kafka's REQUEST_TIMED_OUT; the producer asks again, and it counts once."""
    world, client = ready()
    slow, quick = world.client(), world.client()
    slow.send(produce, produce_request("t", b"a", producer=(1, 0, 0), timeout_ms=5_000), 9)
    quick.send(produce, produce_request("u", b"b", timeout_ms=0), 9)
    world.advance(999)
    assert (slow.answers, quick.answers) == (0, 0), "a disk that works gets a second, whatever the client says"
    world.advance(1)
    assert quick.produced().error is ErrorCode.REQUEST_TIMED_OUT
    world.advance(4_000)
    assert slow.produced().error is ErrorCode.REQUEST_TIMED_OUT
    slow.send_produce("t", b"a", producer=(1, 0, 0))
    world.auto = True
    world.perform([])
    assert slow.produced().base_offset == 0
    assert (slow.answers, quick.answers) == (0, 0)
    world.advance(60_000)
    assert client.read_all("t") == [(0, b"a")]


def test_only_what_waits_for_the_disk_is_refused_for_its_time() -> None:
    world, client = ready()
    request = produce_request("t", b"a", timeout_ms=2_000)
    request.topics[0].partitions = [
        *produce_request("t", b"", partition=7).topics[0].partitions,
        *request.topics[0].partitions,
    ]
    client.send(produce, request, 9)
    world.advance(2_000)
    assert [one.error for one in client.answer().responses[0].partitions] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
    ]
    while world.flushes:
        world.flush()
    assert client.answers == 0


def test_who_need_not_wait_is_told_after_the_event_and_not_from_within() -> None:
    """With --flush os what follows a write may write again, thousands of times: that must not go into the depth."""
    world, _ = ready(sync=False)
    flusher, log = world.cluster.flusher, world.node.replicas.log("t", 0)
    assert log is not None
    told = []

    def again(error: ErrorCode, now_ms: int) -> Effects:
        told.append(error)
        if len(told) < 10_000:
            flusher.written(log, again)
        return []

    flusher.written(log, again)
    assert not told
    world.perform(world.cluster.handle(TimersDue(), world.now_ms))
    assert len(told) == 10_000


def test_with_flush_os_a_roll_is_flushed_and_nobody_waits_for_it() -> None:
    """Kafka flushes a segment when the next one begins."""
    disk = FaultyFiles()
    world, client = ready(disk, sync=False)
    log = world.node.replicas.log("t", 0)
    assert log is not None
    log.config = log.config.__class__(segment_bytes=300)
    for number in range(3):
        assert client.produce("t", bytes(150)).base_offset == number
    assert len(world.flushes) == 1
    while world.flushes:
        world.flush()
    assert log.durable_end == 3 and not log.is_sealing
    disk.refuses_sync = True
    for number in range(3, 6):
        assert client.produce("t", bytes(150)).base_offset == number
    while world.flushes:
        world.flush()
    assert any("broken disk" in trouble for trouble in world.troubles)
    assert log.is_in_order and len(client.read_all("t")) == 6, "what was acknowledged is not cut"


# --- duplicates -------------------------------------------------------------------------------------------------------


def test_a_duplicate_of_a_batch_that_is_not_durable_waits_for_it() -> None:
    """D1: NONE would be a lie before."""
    world, client = ready()
    again = world.client()
    client.send_produce("t", b"a", producer=(1, 0, 0))
    again.send_produce("t", b"a", producer=(1, 0, 0))
    assert (client.answers, again.answers) == (0, 0)
    world.flush()
    assert client.produced().base_offset == 0
    assert again.produced().base_offset == 0
    assert not world.flushes


def test_a_duplicate_is_answered_though_other_logs_are_always_busy() -> None:
    world, client = ready()
    again, busy = world.client(), world.client()
    client.send_produce("t", b"a", producer=(1, 0, 0))
    again.send_produce("t", b"a", producer=(1, 0, 0))
    busy.send_produce("u", b"x")
    world.flush()
    assert again.answers == 1
    assert len(world.flushes) == 1  # that of the busy one


def test_what_stands_behind_a_duplicate_is_answered_too() -> None:
    """The waiters of a duplicate are told outside of a flush; what they let through may write."""
    world, client = ready()
    world.auto = True
    client.produce("t", b"a", producer=(1, 0, 0))
    world.auto = False
    client.send_produce("t", b"a", producer=(1, 0, 0))
    client.send_produce("u", b"b")
    client.send_commit("g", {("t", 0): 1})
    world.auto = True
    world.perform([])
    assert client.produced().base_offset == 0
    assert client.produced().base_offset == 0
    assert client.committed() == [ErrorCode.NONE]


# --- deleting during a flush ------------------------------------------------------------------------------------------


def test_deleting_a_topic_during_its_flush_tells_its_producers_and_nobody_else() -> None:
    world, client = ready()
    other, third = world.client(), world.client()
    client.send_delete("t")
    other.send_produce("t", b"lost")
    third.send_produce("u", b"kept")
    world.flush()  # the deletion, which was asked for first
    assert client.deleted() is ErrorCode.NONE
    assert other.produced().error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    while world.flushes:
        world.flush()
    assert third.produced().base_offset == 0
    client.send_produce("u", b"next")
    world.flush()
    assert client.produced().base_offset == 1
    world.do_tasks()
    assert not [name for name in world.files.names() if name.startswith("t-") or name.endswith("-delete")]


# --- a disk that refuses ----------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_and_the_broker_works_again_when_there_is_room() -> None:
    """A write that fails is answered, the broker stays up and says what is wrong."""
    disk = FaultyFiles()
    world, client = ready(disk)
    world.auto = True
    client.produce("t", b"before")
    client.commit("g", {("t", 0): 1})
    disk.room = 10
    failed = client.produce("t", b"too much")
    assert failed.error is ErrorCode.KAFKA_STORAGE_ERROR and failed.base_offset == -1
    assert client.commit("g", {("t", 0): 2}) == [ErrorCode.NOT_COORDINATOR]
    assert any("no space left" in trouble for trouble in world.troubles)
    assert client.read_all("t") == [(0, b"before")]
    assert client.offsets_of("g") == {("t", 0): 1}
    disk.room = None
    assert client.produce("t", b"after").base_offset == 1
    assert client.commit("g", {("t", 0): 2}) == [ErrorCode.NONE]
    assert client.read_all("t") == [(0, b"before"), (1, b"after")]


def test_a_flush_that_fails_is_taken_back_and_nobody_was_told_otherwise() -> None:
    """After a failed fsync nothing is known of what was written: it is cut off."""
    disk = FaultyFiles()
    world, client = ready(disk)
    reader, other = world.client(), world.client()
    world.auto = True
    client.produce("t", b"kept", producer=(1, 0, 0))
    client.commit("g", {("t", 0): 1})
    world.auto = False
    disk.refuses_sync = True
    client.send_produce("t", b"lost", producer=(1, 0, 1))
    other.send_commit("g", {("t", 0): 2})
    reader.send_fetch("t", 1, max_wait_ms=600_000)
    while world.flushes:
        world.flush()
    assert client.produced().error is ErrorCode.KAFKA_STORAGE_ERROR
    assert other.committed() == [ErrorCode.NOT_COORDINATOR]
    assert reader.answers == 0
    assert any("broken disk" in trouble for trouble in world.troubles)
    disk.refuses_sync = False
    world.auto = True
    world.advance(1_000)
    assert client.offsets_of("g") == {("t", 0): 1}
    assert client.produce("t", b"again", producer=(1, 0, 1)).base_offset == 1
    assert [offset for offset, _ in client.read_all("t")] == [0, 1]
    assert reader.fetched().high_watermark == 2
    assert client.commit("g", {("t", 0): 3}) == [ErrorCode.NONE]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_log_that_cannot_be_cut_back_takes_nothing_until_it_can(*, sealed: bool) -> None:
    """What was refused must not come back to life behind what is accepted later."""
    disk = FaultyFiles()
    world, client = ready(disk)
    log = world.node.replicas.log("t", 0)
    assert log is not None
    repeated = 20_000  # too large for the journal
    if sealed:
        log.config = log.config.__class__(segment_bytes=300)
        repeated = 20
    world.auto = True
    client.produce("t", b"kept")
    world.auto = False
    disk.refuses_sync = disk.refuses_truncate = True
    client.send_produce("t", b"lost" * repeated)
    other = world.client()
    other.send_produce("t", b"lost too" * repeated)
    while world.flushes:
        world.flush()
    assert client.produced().error is other.produced().error is ErrorCode.KAFKA_STORAGE_ERROR
    disk.refuses_sync = False
    world.auto = True
    world.advance(1_000)
    assert client.produce("t", b"still not").error is ErrorCode.KAFKA_STORAGE_ERROR
    disk.refuses_truncate = False
    world.advance(1_000)
    assert client.produce("t", b"new").base_offset == 1
    assert client.read_all("t") == [(0, b"kept"), (1, b"new")]
    world.stop()
    assert World(disk, now_ms=2_000_000).client().read_all("t") == [(0, b"kept"), (1, b"new")]


def test_a_log_that_is_to_be_repaired_takes_part_in_no_flush() -> None:
    """Repairing it could end first, and whoever waits for another log in that flush would never be answered."""
    disk = FaultyFiles()
    world, client = ready(disk)
    log = world.node.replicas.log("t", 0)
    assert log is not None
    disk.refuses_sync = disk.refuses_truncate = True
    client.send_produce("t", b"lost")
    world.flush()
    assert client.produced().error is ErrorCode.KAFKA_STORAGE_ERROR and not log.is_in_order
    disk.refuses_sync = False
    world.cluster.flusher.written(log, None)  # as the cleaner does when it has rolled one
    client.send_produce("u", b"kept")
    disk.refuses_truncate = False
    world.auto = True
    world.advance(1_000)
    assert client.produced().base_offset == 0 and log.is_in_order


def with_a_log_to_repair(disk: FaultyFiles) -> tuple[World, Client]:
    """The disk refuses to sync: one record was kept before, one is lost since, and still to be cut off."""
    world, client = ready(disk)
    world.auto = True
    client.produce("t", b"kept")
    disk.refuses_sync = True
    assert client.produce("t", b"lost").error is ErrorCode.KAFKA_STORAGE_ERROR
    return world, client


def test_a_log_that_could_not_be_cut_back_is_repaired_without_anybody_writing() -> None:
    disk = FaultyFiles()
    world, client = with_a_log_to_repair(disk)
    assert client.fetch("t", 0).error is ErrorCode.KAFKA_STORAGE_ERROR
    world.advance(60_000)
    assert client.fetch("t", 0).error is ErrorCode.KAFKA_STORAGE_ERROR
    disk.refuses_sync = False
    world.advance(1_000)
    assert client.read_all("t") == [(0, b"kept")]


def test_a_log_that_is_to_be_repaired_is_repaired_before_the_broker_stops() -> None:
    """Else the directory could not be left clean, though the disk is well again."""
    disk = FaultyFiles()
    world, _ = with_a_log_to_repair(disk)
    disk.refuses_sync = False
    world.stop()
    assert World(disk, now_ms=2_000_000).client().read_all("t") == [(0, b"kept")]


def test_an_assignment_that_cannot_be_written_starts_another_rebalance() -> None:
    """Rule 11: the parked syncs hear the mapped error, the group prepares again."""
    disk = FaultyFiles()
    world, client = ready(disk)
    world.auto = True
    joined = client.join("g", version=3)
    disk.room = 0
    assert client.sync("g", joined, {joined.member_id: b"x"}).error is ErrorCode.NOT_COORDINATOR
    disk.room = None
    assert client.heartbeat("g", joined.member_id, joined.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    again = client.join("g", joined.member_id)
    assert client.sync("g", again, {again.member_id: b"y"}).assignment == b"y"


def test_what_concerns_topics_fails_whole_on_a_full_disk() -> None:
    disk = FaultyFiles()
    world, client = ready(disk)
    world.auto = True
    client.produce("t", b"a", b"b")
    disk.room = 0
    asked = metadata.Request(topics=[metadata.Topic(name="new")])
    assert client.ask(metadata, asked).topics[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert client.delete("u") is ErrorCode.KAFKA_STORAGE_ERROR
    part = delete_records.Partition(partition=0, offset=1)
    topic = delete_records.Topic(name="t", partitions=[part])
    deleted = client.ask(delete_records, delete_records.Request(topics=[topic])).topics[0].partitions[0]
    assert deleted.error is ErrorCode.KAFKA_STORAGE_ERROR
    producer = init_producer_id.Request(transactional_id=None, transaction_timeout_ms=1)
    assert client.ask(init_producer_id, producer).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.advance(600_000)  # checkpoints and retention find the disk full too
    disk.room = None
    assert not client.ask(metadata, asked).topics[0].error
    assert client.ask(delete_records, delete_records.Request(topics=[topic])).topics[0].partitions[0].low_watermark == 1
    assert not client.ask(init_producer_id, producer).error
    gone = client.ask(delete_topics, delete_topics.Request(topics=[delete_topics.Topic(name="u")]))
    assert gone.responses[0].error is ErrorCode.NONE
    assert len(world.troubles) >= 3


def test_a_coordinator_whose_topic_cannot_be_made_is_not_available_yet() -> None:
    """C2."""
    disk = FaultyFiles()
    world = World(disk)
    client = world.client()
    disk.room = 0
    assert client.find_coordinator().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert any("groups" in trouble for trouble in world.troubles)
    disk.room = None
    assert client.find_coordinator().error is ErrorCode.NONE
    client.create("t")
    assert client.commit("g", {("t", 0): 1}) == [ErrorCode.NONE]
