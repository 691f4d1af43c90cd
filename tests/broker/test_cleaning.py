"""The cleaner: logs are compacted while everybody goes on, and whatever happens meanwhile."""

from __future__ import annotations

from itertools import pairwise

import pytest

from broker.driver import World
from broker.keyed_topic import EAGER, QUICK, KeyedTopic
from coterie.broker.maintenance.log_cleaner import CleanDue
from coterie.errors import ErrorCode
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.protocol.records import BatchRecord, build_batch
from coterie.storage import DamageError, MemoryFiles
from coterie.storage.files import read_file
from coterie.storage.flush import JOURNAL_FILE
from coterie.structs import replace
from logs import read_all

CHECKPOINT = "cleaner-offset-checkpoint"


def test_a_user_topic_is_compacted_and_read_on() -> None:
    topic = KeyedTopic()
    topic.write(60)
    assert topic.values == list(range(1, 61))
    segments = topic.log.segment_count
    topic.world.advance(1_000)
    topic.world.do_tasks()
    assert topic.values[-3:] == [58, 59, 60] and len(topic.values) < 12
    assert topic.log.segment_count <= segments and not topic.leftovers
    topic.write(60)
    topic.world.advance(1_000)
    assert topic.values[-3:] == [118, 119, 120] and len(topic.values) < 12
    assert not topic.world.troubles
    topic.world.stop()
    again = World(topic.world.files)
    assert [int(value or b"") for _, value in again.client().read_all("t")] == topic.values


def test_how_far_a_log_was_compacted_is_kept_in_kafkas_file() -> None:
    topic = KeyedTopic()
    topic.write(60)
    topic.world.advance(1_000)
    bound = topic.log._segments[-1].base_offset
    assert read_file(topic.world.files, CHECKPOINT) == b"0\n1\nt 0 %d\n" % bound
    topic.world.stop()
    again = World(topic.world.files)
    assert again.cluster.directory.checkpoints.compacted_to(("t", 0)) == bound


def test_a_topic_made_anew_was_never_compacted() -> None:
    topic = KeyedTopic()
    topic.write(60)
    topic.world.advance(1_000)
    topic.client.delete("t")
    topic.client.create("t")
    assert topic.world.cluster.directory.checkpoints.compacted_to(("t", 0)) == 0
    assert read_file(topic.world.files, CHECKPOINT) == b"0\n0\n"


def test_a_compacted_log_that_has_lost_segments_is_refused() -> None:
    files = MemoryFiles()
    topic = KeyedTopic(files)
    topic.write(60)
    topic.world.advance(1_000)
    topic.world.cluster.directory.release()
    for name in files.names("t-0"):
        if not name.startswith("0" * 20):
            files.delete(f"t-0/{name}")
    with pytest.raises(DamageError, match="t-0"):
        World(files)


def test_readers_get_the_old_records_until_they_get_the_new_ones() -> None:
    topic = KeyedTopic()
    topic.write(60)
    everything = topic.values
    topic.begin()
    seen = []
    while topic.world.background_tasks or topic.world.flushes:
        topic.background_task()
        seen.append(topic.values)
        if topic.world.flushes:
            topic.world.flush()
        seen.append(topic.values)
    assert seen[0] == everything and len(seen[-1]) < 12
    for earlier, later in pairwise(seen):
        assert set(later) <= set(earlier), "record by record they go, and none comes back"
        assert later[-3:] == [58, 59, 60]


def test_what_is_produced_meanwhile_is_there() -> None:
    topic = KeyedTopic()
    topic.write(60)
    topic.begin()
    others = [topic.world.client() for _ in range(20)]
    for other in others:
        topic.background_task()
        topic.number += 1
        other.send_produce("t", records=build_batch([BatchRecord(b"new", b"%d" % topic.number, 1)]))
        topic.world.flush()
    topic.go_on()
    assert not any(other.produced().error for other in others)
    assert topic.values[-1] == 80 and {58, 59, 60} < set(topic.values)


def test_a_record_without_a_key_is_refused() -> None:
    """As Kafka: INVALID_RECORD, and which records are to blame."""
    topic = KeyedTopic()
    content = [BatchRecord(key, b"v", 1) for key in (b"k", None, b"k", None)]
    answer = topic.client.produce("t", records=build_batch(content))
    assert answer.error is ErrorCode.INVALID_RECORD and topic.values == []
    assert [error.batch_index for error in answer.record_errors] == [1, 3]


def test_the_cleaner_can_be_switched_off() -> None:
    topic = KeyedTopic(settings={"log.cleaner.enable": False})
    topic.write(60)
    topic.world.advance(1_000_000)
    assert topic.values == list(range(1, 61))


def test_the_dirtiest_log_comes_first() -> None:
    topic = KeyedTopic()
    topic.client.create("u")
    other = topic.world.node.replicas.log("u", 0)
    assert other is not None
    other.config = EAGER
    topic.write(60)
    topic.world.advance(1_000)
    topic.write(40)
    for number in range(30):
        topic.client.produce("u", records=build_batch([BatchRecord(b"k", b"%d" % number, 1)]))
    topic.begin()
    current = topic.world.cluster.cleaner._cleaning
    assert current is not None and current.log is other, "of the other a part was compacted"


# --- groups


def offsets_size(world: World) -> int:
    return sum(log.size for (topic, _), log in world.cluster.directory.logs.items() if topic == OFFSETS_TOPIC)


def test_commits_again_and_again_keep_the_log_of_the_groups_small() -> None:
    """200 000 offsets of 300 keys. Without compaction they would take 24 MB."""
    world = World(settings=QUICK)
    client = world.client()
    client.find_coordinator()
    client.create("t", 100)
    groups = ("g", "h", "i")
    largest = 0
    for number in range(667):
        for group in groups:
            assert set(client.commit(group, {("t", part): number for part in range(100)})) == {ErrorCode.NONE}
        if number % 20 == 0:
            world.advance(1_000)
            largest = max(largest, offsets_size(world))
    assert largest < 3_000_000
    world.advance(1_000)
    world.advance(1_000)
    assert offsets_size(world) < 60_000
    world.cluster.directory.release()
    again = World(world.files)
    for group in groups:
        assert again.client().offsets_of(group) == {("t", part): 666 for part in range(100)}
    assert not world.troubles


def test_what_was_compacted_does_not_come_back_from_the_journal() -> None:
    """It has every commit of the last minute, and a crash looks there for what segments have lost."""
    world = World(settings={**QUICK, "offsets.topic.num.partitions": 1})
    client = world.client()
    client.find_coordinator()
    client.create("t", 100)
    log = world.node.replicas.log(OFFSETS_TOPIC, 0)
    assert log is not None
    log.config = replace(EAGER, segment_bytes=3_000)
    for number in range(100):
        partition = 0 if number % 5 else number  # of which each is written once
        assert client.commit("g", {("t", partition): number}) == [ErrorCode.NONE]
    before_size = log.size
    world.advance(1_000)
    assert log.size < before_size / 2 and world.files.size(JOURNAL_FILE) > 10_000
    before = read_all(log)
    world.cluster.directory.release()
    again = World(world.files).node.replicas.log(OFFSETS_TOPIC, 0)
    assert again is not None and read_all(again) == before


def test_each_compaction_needs_a_recovery_point_behind_what_it_compacts() -> None:
    """The first one writes a checkpoint in any case, since the log gets gaps; the next one must look."""
    world = World(settings={**QUICK, "offsets.topic.num.partitions": 1})
    client = world.client()
    client.find_coordinator()
    client.create("t", 100)
    key, checkpoints = (OFFSETS_TOPIC, 0), world.cluster.directory.checkpoints
    log = world.node.replicas.log(*key)
    assert log is not None
    log.config = replace(EAGER, segment_bytes=3_000)
    compacted = [0]
    for _ in range(3):
        for number in range(100):
            assert client.commit("g", {("t", 0): number}) == [ErrorCode.NONE]
        world.advance(1_000)
        compacted.append(checkpoints.compacted_to(key))
        assert checkpoints.recovery_point(key) >= compacted[-1] > compacted[-2]


def test_it_is_compacted_also_where_commits_do_not_wait_for_the_disk() -> None:
    """`--flush os`: a segment that was rolled is flushed, and only then compacted."""
    world = World(settings=QUICK, sync=False)
    client = world.client()
    client.find_coordinator()
    client.create("t")
    for number in range(200):
        assert client.commit("g", {("t", 0): number}) == [ErrorCode.NONE]
    world.advance(1_000)
    world.advance(1_000)
    assert offsets_size(world) < 500
    world.cluster.directory.release()
    assert World(world.files).client().offsets_of("g") == {("t", 0): 199}


def test_members_come_back_from_a_compacted_log() -> None:
    world = World(settings=QUICK)
    client = world.client()
    client.find_coordinator()
    client.create("t")
    member = client.enter("g", b"mine")
    for number in range(200):
        assert client.commit("g", {("t", 0): number}, member=member) == [ErrorCode.NONE]
    before = offsets_size(world)
    world.advance(1_000)
    world.advance(1_000)
    assert offsets_size(world) < before / 5
    world.cluster.directory.release()
    again = World(world.files, now_ms=world.now_ms).client()
    assert again.heartbeat("g", member.member_id, member.generation_id) is ErrorCode.NONE
    assert again.sync("g", member).assignment == b"mine"
    assert again.offsets_of("g") == {("t", 0): 199}


def test_a_due_round_while_one_is_stopped_does_nothing() -> None:
    topic = KeyedTopic()
    topic.write(60)
    topic.world.cluster.cleaner.stop()
    topic.world.node.coordinator.timers.arm("cleaner", topic.world.now_ms, CleanDue())
    topic.world.advance(0)
    assert not topic.world.background_tasks and topic.values == list(range(1, 61))
