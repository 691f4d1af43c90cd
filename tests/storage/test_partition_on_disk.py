"""One partition's log and its disk: what is durable when, and a disk that refuses."""

from __future__ import annotations

import errno

import pytest

from coterie.errors import ErrorCode
from coterie.storage import (
    Files,
    LogConfig,
    LogWriteError,
    MemoryFiles,
    rename_files,
)
from logs import NOW, FaultyFiles, batch, fill, opened, read_all

# --- making durable ---------------------------------------------------------------------------------------------------


def test_what_is_appended_is_durable_only_after_a_flush(files: Files) -> None:
    log = opened(files)
    fill(log, 3)
    assert (log.log_end_offset, log.durable_end) == (3, 0)
    target = log.flush_target()
    assert target is not None
    fill(log, 2)
    target.run()
    log.flushed(target)
    assert (log.log_end_offset, log.durable_end) == (5, 3)
    log.flush()
    assert log.durable_end == 5 and log.flush_target() is None


def test_a_flush_syncs_old_segments_first_and_new_names_last() -> None:
    """What is durable is always a beginning of the log."""
    disk = FaultyFiles()
    log = opened(disk)
    fill(log, 25, size=60)
    log.flush()
    logs = [path for path in disk.synced if path.endswith(".log")]
    assert logs == sorted(logs) and len(logs) == log.segment_count
    assert disk.synced[-2:] == ["t-0/", "/"]


def test_only_one_flush_at_a_time(files: Files) -> None:
    log = opened(files)
    fill(log, 1)
    log.flush_target()
    with pytest.raises(RuntimeError, match="under way"):
        log.flush_target()


def test_a_roll_makes_one_file_and_the_next_flush_does_the_rest(files: Files) -> None:
    """Whoever appends does not wait for it; until then the old segment is read with what is in memory."""
    log = opened(files)
    fill(log, 30)
    assert log.segment_count > 2 and log.is_sealing
    assert {name.rpartition(".")[2] for name in files.names("t-0")} == {"log"}
    before = read_all(log)
    target = log.flush_target()
    assert target is not None
    target.run()
    assert read_all(log) == before
    log.flushed(target)
    assert not log.is_sealing and read_all(log) == before
    assert sum(name.endswith(".index") for name in files.names("t-0")) == log.segment_count - 1
    log.release()
    again = opened(files, recovery_point=log.durable_end)
    assert read_all(again) == before and not again.recovery.indexes_rebuilt


def test_indexes_that_do_not_fit_on_the_disk_are_written_with_the_next_flush() -> None:
    """They are a shortcut: what is durable is durable without them."""
    disk = FaultyFiles()
    log = opened(disk)
    fill(log, 30)
    before = read_all(log)
    disk.room = 0
    log.flush()
    assert log.durable_end == 30 and log.is_sealing and read_all(log) == before
    disk.room = None
    log.flush()
    assert not log.is_sealing and read_all(log) == before


def test_a_segment_that_is_dropped_before_it_is_sealed_leaves_the_producers_it_knew() -> None:
    disk = MemoryFiles()
    log = opened(disk)
    for sequence in range(30):
        log.append(batch(bytes(40), producer=(1, 0, sequence)), NOW)
    target = log.flush_target()
    assert target is not None
    log.delete_records(30, 30)
    rename_files(disk, log.retain(NOW, 30))
    target.run()
    log.flushed(target)
    log.close()
    again = opened(disk, log_start_offset=30, clean=True)
    assert again.append(batch(bytes(40), producer=(1, 0, 29)), NOW).is_duplicate


def test_after_a_failed_flush_the_log_ends_where_it_is_durable() -> None:
    disk = FaultyFiles()
    log = opened(disk)
    log.append(batch(b"a", producer=(1, 0, 0)), NOW)
    log.flush()
    log.append(batch(b"b", producer=(1, 0, 1)), NOW)
    fill(log, 40)
    target = log.flush_target()
    assert target is not None
    disk.refuses_sync = True
    with pytest.raises(LogWriteError) as error:
        target.run()
    assert error.value.errno == errno.EIO and error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.refuses_sync = False
    log.flush_failed(target)
    with pytest.raises(LogWriteError, match="still to be cut back"):
        log.append(batch(b"early"), NOW)
    repairing = log.repair(NOW)
    repairing.run()
    repairing.done()
    assert (log.log_end_offset, log.durable_end) == (1, 1) and read_all(log) == [(0, b"a")]
    again = log.append(batch(b"b", producer=(1, 0, 1)), NOW)
    assert (again.base_offset, again.is_duplicate) == (1, False)


def test_after_a_flush_that_failed_nothing_more_is_called_durable() -> None:
    """The next sync ends well, but nobody knows whether the pages that failed are on disk."""
    disk = FaultyFiles()
    log = opened(disk)
    fill(log, 1)
    log.flush()
    fill(log, 1)
    disk.refuses_sync = True
    with pytest.raises(LogWriteError):
        log.flush()
    disk.refuses_sync = False
    fill(log, 1)
    log.flush()
    assert (log.durable_end, log.log_end_offset) == (1, 3)
    log.release()
    assert opened(disk).durable_end == 3


# --- a disk that refuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1, 60, 100])
def test_a_full_disk_refuses_the_batch_and_keeps_the_log(room: int) -> None:
    disk = FaultyFiles()
    log = opened(disk, LogConfig())
    fill(log, 3)
    before = disk.size("t-0/00000000000000000000.log")
    disk.room = room
    for _ in range(3):
        with pytest.raises(LogWriteError, match="no space left") as error:
            log.append(batch(b"x" * 50), NOW)
        assert error.value.errno == errno.ENOSPC
        assert disk.size("t-0/00000000000000000000.log") == before
    disk.room = None
    assert log.append(batch(b"fits"), NOW).base_offset == 3
    assert [value for _, value in read_all(log)][-1] == b"fits"


def test_a_torn_write_that_cannot_be_cut_is_cut_before_the_next() -> None:
    disk = FaultyFiles()
    log = opened(disk, LogConfig())
    fill(log, 1)
    disk.room, disk.refuses_truncate = 70, True
    for _ in range(2):
        with pytest.raises(LogWriteError):
            log.append(batch(b"x" * 50), NOW)
    disk.room, disk.refuses_truncate = None, False
    log.append(batch(b"fits"), NOW)
    assert read_all(log)[-1] == (1, b"fits")


@pytest.mark.parametrize("room", range(0, 300, 7))
def test_a_roll_on_a_full_disk_can_be_tried_again(room: int) -> None:
    disk = FaultyFiles()
    log = opened(disk)
    fill(log, 8)
    disk.room = room
    failures = 0
    for _ in range(6):
        try:
            fill(log, 1)
        except LogWriteError:
            failures += 1
    disk.room = None
    fill(log, 8)
    assert failures
    assert [offset for offset, _ in read_all(log)] == list(range(log.log_end_offset))
    log.release()
    again = opened(disk)
    assert [offset for offset, _ in read_all(again)] == list(range(log.log_end_offset)) and not again.recovery.cuts
