"""What a log need not keep: Kafka's three reasons, from the oldest segment on."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar
from uuid import UUID

import pytest

from coterie.sim.disk import Disk, PowerCut
from coterie.sim.schedule import Rng
from coterie.storage import (
    UNLIMITED,
    DataDirectory,
    DiskChange,
    Files,
    LogConfig,
    LogOffsetOutOfRangeError,
    PartitionLog,
    StoredTopic,
    remove_files,
    rename_files,
)
from coterie.structs import replace
from logs import SMALL, batch, read_all

NOW = 10_000
KEEP = replace(SMALL, retention_ms=UNLIMITED, segment_ms=10**12)
T = TypeVar("T")


def make(change: DiskChange[T]) -> T:
    change.run()
    return change.done()


def filled(files: Files, config: LogConfig, count: int = 40) -> PartitionLog:
    """One record a batch, one millisecond apart, the last one now."""
    log = PartitionLog.open(files, "t-0", config, NOW)
    for number in range(count):
        log.append(batch(bytes(40), timestamps=[NOW - count + 1 + number]), NOW)
    return log


def segment_size(files: Files) -> int:
    return files.size("t-0/00000000000000000000.log")


def test_without_limits_everything_is_kept(files: Files) -> None:
    log = filled(files, KEEP)
    assert log.retain(NOW + 10**15, log.log_end_offset) == [] and len(read_all(log)) == 40


def test_old_segments_go_by_their_latest_record(files: Files) -> None:
    log = filled(files, replace(KEEP, retention_ms=20))
    deleted = log.retain(NOW, log.log_end_offset)
    assert deleted and {each.why for each in deleted} == {"retention.ms"}
    assert log.log_start_offset == deleted[-1].next_offset
    # A segment stays as long as its newest record is young enough.
    assert log.log_start_offset <= 40 - 20 - 1 < log.log_start_offset + 9
    assert [offset for offset, _ in read_all(log)] == list(range(log.log_start_offset, 40))


def test_what_is_deleted_is_gone_at_once_then_by_name_and_then_freed(files: Files) -> None:
    log = filled(files, replace(KEEP, retention_ms=20))
    deleted = log.retain(NOW, log.log_end_offset)
    assert read_all(log)[0][0] == log.log_start_offset == deleted[-1].next_offset
    rename_files(files, deleted)
    names = files.names("t-0")
    assert "00000000000000000000.log.deleted" in names and "00000000000000000000.log" not in names
    remove_files(files, deleted)
    assert not any(name.endswith(".deleted") for name in files.names("t-0"))
    log.close()
    again = PartitionLog.open(files, "t-0", KEEP, NOW, clean=True)
    assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, 40)


def test_when_all_is_old_the_log_is_empty_and_goes_on_from_its_end(files: Files) -> None:
    log = filled(files, replace(KEEP, retention_ms=20))
    log.retain(NOW + 1_000, log.log_end_offset)
    assert (log.log_start_offset, log.log_end_offset, log.segment_count, log.size) == (40, 40, 1, 0)
    assert log.append(batch(b"x", timestamps=[NOW]), NOW).base_offset == 40
    assert log.retain(NOW, log.log_end_offset) == []


def test_an_empty_log_is_left_alone(files: Files) -> None:
    log = PartitionLog.open(files, "t-0", replace(KEEP, retention_ms=0, retention_bytes=0), NOW)
    assert log.retain(NOW + 1, 0) == [] and log.segment_count == 1


def test_segments_beyond_the_size_go_but_never_below_it(files: Files) -> None:
    log = filled(files, KEEP)
    total, one = log.size, segment_size(files)
    for excess, gone in ((one - 1, 0), (one, 1), (one + 1, 1), (2 * one, 2)):
        log.config = replace(KEEP, retention_bytes=total - excess)
        deleted = log.retain(NOW, log.log_end_offset)
        assert [each.why for each in deleted] == ["retention.bytes"] * gone
        total -= sum(each.size for each in deleted)
        assert log.size == total >= log.config.retention_bytes
        total = log.size


def test_nothing_beyond_the_high_watermark_goes(files: Files) -> None:
    log = filled(files, replace(KEEP, retention_ms=0))
    assert log.retain(NOW + 10**6, 0) == []
    deleted = log.retain(NOW + 10**6, 20)
    assert deleted and log.log_start_offset == deleted[-1].next_offset <= 20


def test_a_compacted_topic_without_delete_keeps_by_no_limit(files: Files) -> None:
    log = filled(files, replace(KEEP, deletes=False, retention_ms=0, retention_bytes=0))
    assert log.retain(NOW + 10**6, log.log_end_offset) == []


def test_segments_without_timestamps_age_from_their_last_write(files: Files) -> None:
    log = PartitionLog.open(files, "t-0", replace(KEEP, retention_ms=100), NOW)
    for number in range(20):
        log.append(batch(bytes(40), timestamps=[-1]), NOW + number)
    assert log.retain(NOW + 100, log.log_end_offset) == []
    assert log.retain(NOW + 115, log.log_end_offset)


def test_deleted_records_are_hidden_at_once_and_freed_by_segments(files: Files) -> None:
    log = filled(files, KEEP)
    assert log.delete_records(13, high_watermark=40) == 13
    assert [offset for offset, _ in read_all(log)] == list(range(13, 40))
    with pytest.raises(LogOffsetOutOfRangeError):
        log.read(12, 100, 40)
    deleted = log.retain(NOW, log.log_end_offset)
    assert {each.why for each in deleted} == {"before the log start"} and deleted[-1].next_offset <= 13
    assert log.log_start_offset == 13 and log.delete_records(5, high_watermark=40) == 13


def test_all_records_may_be_deleted_but_none_that_cannot_be_read(files: Files) -> None:
    log = filled(files, KEEP)
    with pytest.raises(LogOffsetOutOfRangeError, match="can be read to 40"):
        log.delete_records(41, high_watermark=40)
    assert log.delete_records(40, high_watermark=40) == 40
    log.retain(NOW, log.log_end_offset)
    assert log.segment_count == 1 and log.read(40, 100, 40) == b""


def test_epochs_before_the_start_are_forgotten(files: Files) -> None:
    log = PartitionLog.open(files, "t-0", KEEP, NOW)
    for epoch in range(4):
        log.lead(epoch)()
        log.append(batch(bytes(40)), NOW)
    log.delete_records(2, high_watermark=4)
    assert [log.end_of_epoch(epoch) for epoch in (0, 2, 3)] == [(0, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("retention_ms", [20, 0], ids=["some", "all"])
def test_a_power_cut_while_old_segments_go_costs_no_offset_and_leaves_no_hole(retention_ms: int) -> None:
    """Each name may survive or not: the start of the log is durable first, so that nothing follows from them."""
    config = replace(KEEP, retention_ms=retention_ms)
    for seed in range(5):
        for steps in range(30):
            disk = Disk(Rng(seed).of("disk"))
            directory = DataDirectory.open(disk, NOW, cluster_id="c", config_of=lambda _topic: config)
            make(directory.create_topic(StoredTopic("t", UUID(int=7), 1), NOW))
            log = directory.logs["t", 0]
            for number in range(40):
                log.append(batch(b"%d" % number + bytes(50), timestamps=[NOW - 40 + number]), NOW)
            log.flush()
            make(directory.checkpoints.write())
            deleted = log.retain(NOW + 1, log.log_end_offset)
            assert deleted
            disk.steps_left = steps
            with suppress(PowerCut):
                removal = directory.remove_segments(deleted)
                removal.run()
                remove_files(disk, removal.done())
            disk.crash()
            again = DataDirectory.open(disk, NOW, cluster_id="c").logs["t", 0]
            assert again.log_end_offset == 40
            assert [offset for offset, _ in read_all(again)] == list(range(again.log_start_offset, 40))
