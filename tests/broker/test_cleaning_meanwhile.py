"""What may happen while a log is compacted: it is deleted, cut, repaired, stopped; the disk is full, or refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.driver import World
from broker.keyed_topic import EAGER, KeyedTopic
from coterie.broker.broker_effects import BackgroundTask, BackgroundTaskEnded
from coterie.errors import ErrorCode
from coterie.protocol.records import BatchRecord, build_batch
from coterie.storage import MemoryFiles
from coterie.structs import replace
from logs import FaultyFiles, cut


def test_a_topic_that_is_deleted_meanwhile_is_not_compacted() -> None:
    topic = KeyedTopic()
    topic.write(60)
    topic.begin()
    topic.background_task()
    world = topic.world
    assert world.flushes, "a new segment is offered"
    topic.client.send_delete("t")
    topic.go_on()
    assert topic.client.deleted() is ErrorCode.NONE
    world.auto = True
    topic.client.create("t")
    topic.log.config = EAGER
    topic.write(60)
    world.advance(1_000)
    assert topic.values[-3:] == [118, 119, 120] and not world.troubles


@pytest.mark.parametrize("background_tasks_done", [0, 1])
def test_a_topic_made_anew_meanwhile_keeps_its_records(background_tasks_done: int) -> None:
    """The old one's work writes to a directory of the same name, and nothing comes of it."""
    topic = KeyedTopic()
    topic.write(60)
    topic.begin()
    world = topic.world
    for _ in range(background_tasks_done):
        world.background_task()
    background_task = world.background_tasks.popleft()
    world.auto = True
    topic.client.delete("t")
    topic.client.create("t")
    topic.log.config = EAGER
    topic.write(5)
    world.perform(world.cluster.handle(background_task.run(lambda: None), world.now_ms))
    assert topic.values == [61, 62, 63, 64, 65]
    assert not topic.leftovers
    topic.write(40)
    world.advance(1_000)
    assert topic.values[-3:] == [103, 104, 105] and len(topic.values) < 15


def test_a_topic_made_anew_gets_nothing_of_what_was_ready_for_the_old_one() -> None:
    """The thread had ended, and nobody had heard of it yet."""
    topic = KeyedTopic()
    topic.write(60)
    topic.begin()
    world = topic.world
    world.background_task()
    ended = world.background_tasks.popleft().run(lambda: None)
    assert not ended.error
    world.auto = True
    topic.client.delete("t")
    topic.client.create("t")
    topic.log.config = EAGER
    topic.write(5)
    world.perform(world.cluster.handle(ended, world.now_ms))
    assert topic.values == [61, 62, 63, 64, 65]
    assert not topic.leftovers and not world.troubles


def test_segments_that_retention_took_when_the_new_one_was_ready_stay_away() -> None:
    topic = KeyedTopic()
    topic.write(60)
    topic.begin()
    world = topic.world
    world.background_task()
    ended = world.background_tasks.popleft().run(lambda: None)
    world.auto = True
    topic.log.config = replace(EAGER, deletes=True, retention_ms=0)
    world.cluster.log_manager.check_retention()
    topic.go_on()
    world.perform(world.cluster.handle(ended, world.now_ms))
    world.do_tasks()
    assert topic.values == [] and topic.log.log_start_offset == 60 and not topic.leftovers


def test_segments_that_retention_takes_meanwhile_do_not_come_back() -> None:
    topic = KeyedTopic()
    topic.write(60)
    topic.begin()
    topic.background_task()
    topic.log.config = replace(EAGER, deletes=True, retention_ms=0)
    topic.world.cluster.log_manager.check_retention()
    topic.go_on()
    topic.world.do_tasks()
    assert topic.values == [] and not topic.leftovers
    assert topic.log.log_start_offset == 60


def test_segments_that_retention_took_before_they_were_read_are_no_trouble() -> None:
    topic = KeyedTopic()
    topic.write(60)
    topic.begin()
    background_task = topic.world.background_tasks.popleft()
    topic.world.auto = True
    topic.log.config = replace(EAGER, deletes=True, retention_ms=-1, retention_bytes=600)
    topic.world.cluster.log_manager.check_retention()
    topic.go_on()
    topic.world.do_tasks()
    topic.world.perform(topic.world.cluster.handle(background_task.run(lambda: None), topic.world.now_ms))
    assert not topic.world.troubles and topic.values[-1] == 60
    topic.write(60)
    topic.world.advance(1_000)
    assert topic.values[-3:] == [118, 119, 120]


def test_a_log_that_is_repaired_meanwhile_keeps_what_was_acknowledged() -> None:
    files = FaultyFiles()
    topic = KeyedTopic(files)
    topic.write(60)
    topic.begin()
    topic.background_task()
    topic.client.send_produce("t", records=build_batch([BatchRecord(b"lost", b"1000", 1)]))
    offered, written = topic.world.flushes
    files.refuses_sync = True
    topic.world.flushes.clear()
    topic.world.flushes.append(written)
    topic.world.flush()
    assert topic.client.produced().error is ErrorCode.KAFKA_STORAGE_ERROR
    files.refuses_sync = False
    topic.world.flushes.appendleft(offered)
    topic.go_on()
    topic.world.advance(2_000)
    assert topic.values[-3:] == [58, 59, 60] and topic.log.is_in_order
    topic.write(3)
    assert topic.values[-3:] == [61, 62, 63]


def test_a_disk_that_refuses_is_tried_again() -> None:
    told = []
    for room in (0, 50, 100, 150, 200, 250):
        files = FaultyFiles()
        topic = KeyedTopic(files)
        topic.write(60)
        files.room = room
        topic.world.advance(1_000)
        told += topic.world.troubles[:1]
        files.room = None
        assert topic.values[-3:] == [58, 59, 60]
        topic.world.advance(1_000)
        assert len(topic.values) < 12 and topic.values[-3:] == [58, 59, 60]
        topic.world.do_tasks()
        assert not topic.leftovers
    assert len(told) == 6 and any("t-0 could not be compacted" in trouble for trouble in told)


class StubbornFiles(MemoryFiles):
    """A disk that renames only so often."""

    renames: int | None = None

    def rename(self, old: str, new: str) -> None:
        if self.renames is not None:
            if not self.renames:
                raise OSError(5, "no")
            self.renames -= 1
        super().rename(old, new)


@pytest.mark.parametrize("renames", range(9))
def test_a_swap_that_the_disk_refuses_is_finished_later(renames: int) -> None:
    files = StubbornFiles()
    topic = KeyedTopic(files)
    topic.write(60)
    files.renames = renames
    topic.world.advance(1_000)
    assert topic.world.troubles
    assert topic.values[-3:] == [58, 59, 60], "it can be read all the same"
    topic.write(1)
    files.renames = None
    for _ in range(3):
        topic.world.advance(1_000)
    assert topic.values[-3:] == [59, 60, 61] and len(topic.values) < 14
    topic.world.do_tasks()
    assert not topic.leftovers
    topic.world.stop()
    assert [int(value or b"") for _, value in World(files).client().read_all("t")] == topic.values


def test_a_topic_that_is_deleted_before_its_swap_is_finished_is_gone() -> None:
    """The files of a new one of its name may have the names of those that were to be replaced."""
    files = StubbornFiles()
    topic = KeyedTopic(files)
    topic.write(60)
    topic.log.config = replace(EAGER, segment_bytes=100_000)
    files.renames = 8  # the checkpoints, the three files of the new segment, some of the old
    topic.world.advance(1_000)
    current = topic.world.cluster.cleaner._cleaning
    assert current is not None and current.is_offered and len(current.group) > 5
    files.renames = None
    topic.client.delete("t")
    topic.client.create("t")
    topic.log.config = replace(EAGER, compacts=False)
    topic.number = 0
    topic.write(60)
    topic.world.advance(1_000)
    topic.world.do_tasks()
    assert topic.world.cluster.cleaner._cleaning is None
    assert topic.values == list(range(1, 61)) and not topic.leftovers


def test_a_log_that_is_repaired_before_its_swap_is_finished_has_it_finished() -> None:
    files = StubbornFiles()
    topic = KeyedTopic(files)
    topic.write(60)
    files.renames = 8
    topic.world.advance(1_000)
    files.renames = None
    cut(topic.log, 60, topic.world.now_ms)
    for _ in range(3):
        topic.world.advance(1_000)
    assert topic.values[-3:] == [58, 59, 60] and len(topic.values) < 14
    topic.world.do_tasks()
    assert not topic.leftovers


@pytest.mark.parametrize("renames", range(9))
def test_a_swap_that_the_disk_refused_is_finished_by_the_next_start(renames: int) -> None:
    files = StubbornFiles()
    topic = KeyedTopic(files)
    topic.write(60)
    files.renames = renames
    topic.world.advance(1_000)
    values = topic.values
    files.renames = None
    topic.world.cluster.directory.release()
    again = World(files).client().read_all("t")
    assert [int(value or b"") for _, value in again][-3:] == [58, 59, 60]
    assert {int(value or b"") for _, value in again} <= set(values)
    assert not topic.leftovers


def test_a_log_that_is_not_what_was_written_is_left_alone() -> None:
    files = MemoryFiles()
    topic = KeyedTopic(files)
    topic.write(60)
    files._contents[f"t-0/{0:020d}.log"][90] ^= 1
    for _ in range(3):
        topic.world.advance(1_000)
    (trouble,) = topic.world.troubles
    assert "not compacted any more" in trouble and "checksum" in trouble


def test_a_stop_does_not_wait_for_the_end_of_a_round() -> None:
    topic = KeyedTopic()
    topic.log.config = replace(EAGER, segment_bytes=40_000)
    topic.write(1_500)
    topic.begin()
    background_task = topic.world.background_tasks[0]
    topic.world.stop()
    assert not background_task.is_wanted
    assert not topic.world.background_tasks and not topic.leftovers
    again = World(topic.world.files)
    assert len(again.client().read_all("t")) == 1_500


def test_a_stop_finishes_the_change_that_is_under_way_and_begins_no_other() -> None:
    topic = KeyedTopic()
    topic.write(60)
    topic.begin()
    topic.background_task()
    topic.world.flush()  # a checkpoint, before anything is changed
    topic.world.stop()
    topic.world.do_tasks()
    assert not topic.leftovers
    values = [int(value or b"") for _, value in World(topic.world.files).client().read_all("t")]
    assert values[-3:] == [58, 59, 60] and 12 < len(values) < 60


def test_work_that_is_not_wanted_any_more_ends_after_a_step() -> None:
    steps: list[int] = []

    def work() -> Iterator[None]:
        for number in range(10):
            steps.append(number)
            yield

    background_task = BackgroundTask(work(), BackgroundTaskEnded())

    def rest() -> None:
        background_task.is_wanted = len(steps) < 3

    assert background_task.run(rest).error is None
    assert steps == [0, 1, 2, 3]
