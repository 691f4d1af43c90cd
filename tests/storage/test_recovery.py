"""Opening a log: after a clean stop next to nothing is read; after a crash a torn tail is cut, and never more."""

from __future__ import annotations

import pytest

from broker.lossy import LossyFiles
from coterie.errors import ErrorCode
from coterie.protocol.batch import batches
from coterie.sim.disk import Disk
from coterie.sim.schedule import Rng
from coterie.storage import (
    DamageError,
    Files,
    LogConfig,
    LogError,
    MemoryFiles,
    PartitionLog,
    RefusedError,
    rename_files,
)
from coterie.storage.durable_ends import LogState
from coterie.storage.files import read_file
from coterie.storage.segment_files import named
from coterie.structs import replace
from logs import SMALL, batch, cut, offsets_in, read_all, values_in

NOW = 1_000
FIRST = "t-0/00000000000000000000.log"


def opened(files: Files, config: LogConfig = SMALL, **how: int) -> PartitionLog:
    return PartitionLog.open(
        files,
        "t-0",
        config,
        NOW,
        log_start_offset=how.get("log_start_offset", 0),
        recovery_point=how.get("recovery_point", 0),
        clean=bool(how.get("clean")),
    )


def written(files: Files, count: int, config: LogConfig = SMALL) -> list[tuple[int, bytes | None]]:
    """A log of `count` batches, left as a crash of the process leaves it."""
    log = opened(files, config)
    for number in range(count):
        log.append(batch(b"%d" % number + bytes(40), timestamps=[number]), NOW)
    content = read_all(log)
    log.flush()
    log.release()
    return content


def overwrite(files: Files, path: str, at: int, data: bytes) -> None:
    file = files.open(path)
    content = bytearray(file.pread(file.size, 0))
    content[at : at + len(data)] = data
    file.truncate(0)
    file.append(content)
    file.close()


def truncated(files: Files, path: str, size: int) -> None:
    file = files.open(path)
    file.truncate(size)
    file.close()


# --- torn tails -------------------------------------------------------------------------------------------------------


def test_a_tail_torn_at_any_byte_is_cut_to_the_batch_before() -> None:
    source = MemoryFiles()
    content = written(source, 3, LogConfig())
    whole = source.open(FIRST).pread(10_000, 0)
    start = source.size(FIRST) * 2 // 3
    for size in range(start, len(whole) + 1):
        files = MemoryFiles()
        files.mkdir("t-0")
        files.open(FIRST, create=True).append(whole[:size])
        log = opened(files)
        is_whole = size == len(whole)
        assert read_all(log) == (content if is_whole else content[:2])
        assert files.size(FIRST) == (size if is_whole else start)
        cuts = [(cut.position, cut.size, cut.offset, cut.kept_as) for cut in log.recovery.cuts]
        assert cuts == ([] if is_whole or size == start else [(start, size - start, 2, None)])
        assert log.append(batch(b"next"), NOW).base_offset == (3 if is_whole else 2)


@pytest.mark.parametrize("garbage", [bytes(1), bytes(61), bytes(5000), b"\xff" * 200, b"garbage " * 30])
def test_garbage_after_the_last_batch_is_cut(files: Files, garbage: bytes) -> None:
    """A file system may have made the file longer before its content came: then there are zeros."""
    content = written(files, 3)
    file = files.open(FIRST)
    size = file.size
    file.append(garbage)
    file.close()
    log = opened(files)
    assert read_all(log) == content and files.size(FIRST) == size
    assert [cut.size for cut in log.recovery.cuts] == [len(garbage)] and log.recovery.cuts[0].why


def test_what_was_cut_leaves_the_producer_where_it_was(files: Files) -> None:
    log = opened(files)
    for sequence in range(3):
        log.append(batch(b"x" * 10, producer=(1, 0, sequence)), NOW)
    log.release()
    truncated(files, FIRST, files.size(FIRST) - 1)
    log = opened(files)
    assert log.append(batch(b"x" * 10, producer=(1, 0, 1)), NOW).is_duplicate
    assert log.append(batch(b"x" * 10, producer=(1, 0, 2)), NOW).base_offset == 2


def test_an_empty_log_opens_empty(files: Files) -> None:
    opened(files).release()
    log = opened(files)
    assert (log.log_end_offset, log.durable_end, log.segment_count) == (0, 0, 1) and not log.recovery.cuts


def test_what_is_recovered_is_durable(files: Files) -> None:
    written(files, 30)
    assert opened(files).durable_end == 30


# --- damage that is no torn tail --------------------------------------------------------------------------------------


def test_whole_batches_behind_a_damaged_one_are_kept_in_a_file_beside(files: Files) -> None:
    """The log ends at the first hole, since nobody can say what was in it; but nothing whole is thrown away."""
    content = written(files, 4, LogConfig())
    size = files.size(FIRST) // 4
    overwrite(files, FIRST, size + 70, b"damage")
    log = opened(files, LogConfig())
    assert read_all(log) == content[:1]
    (cut,) = log.recovery.cuts
    assert cut.kept_as is not None and "checksum" in cut.why
    kept = files.open(cut.kept_as).pread(10_000, 0)
    assert len(kept) == 3 * size and values_in(kept[size:]) == content[2:]
    log.append(batch(b"new"), NOW)
    log.release()
    assert [offset for offset, _ in read_all(opened(files, LogConfig()))] == [0, 1]


@pytest.mark.parametrize("spoil", ["cut", "zeros"])
def test_a_closed_segment_that_is_damaged_is_named_and_nothing_is_cut(files: Files, spoil: str) -> None:
    """Whatever the disk has done to what was closed long ago: its owner is told where, and what can be done."""
    written(files, 30)
    size = files.size(FIRST)
    if spoil == "cut":
        truncated(files, FIRST, size - 1)
    else:
        overwrite(files, FIRST, 0, bytes(size))
    for name in files.names("t-0"):
        if name.endswith((".snapshot", ".index", "leader-epoch-checkpoint")):
            files.delete(f"t-0/{name}")  # so that it has to be read
    with pytest.raises(DamageError, match=r"000\.log is damaged, though it was whole when it was closed") as raised:
        opened(files, recovery_point=30)
    assert "Bring the files back from a copy" in str(raised.value)
    assert "client" not in str(raised.value)
    for name in files.names("t-0"):
        if name.endswith(".log"):
            files.delete(f"t-0/{name}")
    assert opened(files).log_end_offset == 0


def test_segments_behind_a_tear_are_set_aside(files: Files) -> None:
    content = written(files, 30)
    size = files.size(FIRST)
    truncated(files, FIRST, size - 1)
    log = opened(files)
    assert log.segment_count == 1
    assert read_all(log) == content[: log.log_end_offset] and 0 < log.log_end_offset < 30
    assert len(log.recovery.cuts) > 2
    kept = [values_in(files.open(cut.kept_as).pread(10_000, 0)) for cut in log.recovery.cuts[1:] if cut.kept_as]
    assert [item for part in kept for item in part] == content[log.log_end_offset + 1 :]
    assert {name[:20] for name in files.names("t-0") if name.endswith(("index", ".snapshot"))} == {"0" * 20}


def test_a_batch_that_goes_back_in_offsets_ends_the_log(files: Files) -> None:
    written(files, 2, LogConfig())
    file = files.open(FIRST)
    file.append(file.pread(file.size // 2, 0))
    file.close()
    log = opened(files)
    assert log.log_end_offset == 2 and "offset 0" in log.recovery.cuts[0].why


@pytest.mark.parametrize("base_offset", [0, 1])
def test_a_page_that_ends_within_a_base_offset_may_be_lost_alone(files: Files, base_offset: int) -> None:
    """The base offset was 257. A page that was not written leaves zeros of its first bytes; no checksum covers them."""
    position = _with_base_offset(files, base_offset)
    log = PartitionLog.open(files, "t-0", LogConfig(), NOW, known=LogState(start=0, end=257))
    assert log.log_end_offset == 257 and [cut.position for cut in log.recovery.cuts] == [position]


@pytest.mark.parametrize("base_offset", [2, 255, 256])
def test_a_base_offset_that_no_torn_write_leaves_is_damage(files: Files, base_offset: int) -> None:
    _with_base_offset(files, base_offset)
    with pytest.raises(DamageError, match=f"starts at offset {base_offset}"):
        PartitionLog.open(files, "t-0", LogConfig(), NOW, known=LogState(start=0, end=257))


def _with_base_offset(files: Files, base_offset: int) -> int:
    """Write a batch of 257 records and one at offset 257, which gets another base offset; return its position."""
    log = opened(files, LogConfig())
    log.append(batch(*[b"many"] * 257), NOW)
    position = log.size
    log.append(batch(b"one"), NOW)
    log.flush()
    log.release()
    overwrite(files, FIRST, position, base_offset.to_bytes(8))
    return position


# --- how much is read -------------------------------------------------------------------------------------------------


def test_after_a_clean_stop_no_segment_but_the_end_is_checked(files: Files) -> None:
    content = written(files, 40)
    log = opened(files)
    log.close()
    log = opened(files, clean=1)
    assert log.recovery.batches_checked == 0 and not log.recovery.indexes_rebuilt
    assert read_all(log) == content
    log.append(batch(b"more"), NOW)
    log.close()
    log = opened(files, clean=1)
    assert log.log_end_offset == 41 and log.recovery.batches_checked == 0
    log.close()


def test_after_a_crash_only_what_is_beyond_the_recovery_point_is_checked(files: Files) -> None:
    content = written(files, 40)
    log = opened(files, recovery_point=39)
    assert 0 < log.recovery.batches_checked < 10
    assert read_all(log) == content
    log.release()
    assert opened(files, recovery_point=20).recovery.batches_checked > 15


def test_a_marker_of_a_clean_stop_that_lies_does_no_harm(files: Files) -> None:
    written(files, 3, LogConfig())
    truncated(files, FIRST, files.size(FIRST) - 1)
    log = opened(files, LogConfig(), clean=1)
    assert log.log_end_offset == 2 and len(log.recovery.cuts) == 1


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_offset_that_makes_no_sense_is_damage_when_indexes_are_built_again(files: Files, number: int) -> None:
    written(files, 40)
    first, *_ = (header for _, header in batches(read_file(files, FIRST)))
    overwrite(files, FIRST, number * first.size, (2**40).to_bytes(8, "big"))
    for suffix in (".index", ".timeindex"):
        files.delete(FIRST.replace(".log", suffix))
    with pytest.raises(LogError, match=f"{FIRST} is damaged"):
        opened(files, recovery_point=39)


def test_damage_in_front_of_the_recovery_point_is_not_looked_for(files: Files) -> None:
    """As in Kafka; whoever reads it will see that the checksum differs."""
    written(files, 40)
    overwrite(files, FIRST, 70, b"damage")
    log = opened(files, recovery_point=39)
    assert log.log_end_offset == 40 and not log.recovery.cuts


# --- indexes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "spoil", ["missing", "empty", "zeros", "beyond the end", "torn", "another batch", "preallocated"]
)
@pytest.mark.parametrize("segment", [0, 2, -1])
def test_an_index_that_is_no_use_is_built_again(files: Files, suffix: str, spoil: str, segment: int) -> None:
    content = written(files, 40)
    opened(files).close()
    bases = [int(name[:20]) for name in files.names("t-0") if name.endswith(".log")]
    path = f"t-0/{named(bases[segment], suffix)}"
    good = files.open(path).pread(10_000, 0)
    if spoil == "missing":
        files.delete(path)
    else:
        row = 8 if suffix == ".index" else 12
        spoiled = {
            "empty": b"",
            "zeros": bytes(len(good)),
            "beyond the end": good + b"\x7f\xff\xff\xff" * (row // 4),
            "torn": good[:-3],
            "another batch": good[:-row] + good[-row:-1] + b"\x01",
            "preallocated": good + bytes(row * 10),
        }[spoil]
        truncated(files, path, 0)
        file = files.open(path)
        file.append(spoiled)
        file.close()
    log = opened(files, clean=1)
    assert read_all(log) == content
    for offset in range(40):
        assert offsets_in(log.read(offset, 1, 40)) == [offset]
    for timestamp in range(40):
        found = log.offset_for_timestamp(timestamp, 40)
        assert found is not None and found.offset == timestamp
    log.close()


def test_the_index_does_not_depend_on_how_often_the_log_was_opened() -> None:
    indexes = []
    for restarts in (False, True):
        files = MemoryFiles()
        log = opened(files, LogConfig(index_interval_bytes=150))
        for number in range(40):
            log.append(batch(bytes(number), timestamps=[number]), NOW)
            if restarts:
                log.close()
                log = opened(files, LogConfig(index_interval_bytes=150), clean=1)
        log.close()
        indexes.append(files.open(FIRST.replace(".log", ".index")).pread(10_000, 0))
    assert indexes[0] == indexes[1] != b""


def test_an_index_without_a_log_is_removed_and_strange_names_are_left_alone(files: Files) -> None:
    written(files, 3)
    for name in (named(500, ".index"), named(500, ".timeindex"), named(9, ".log.deleted"), "notes.txt", "7.log"):
        files.open(f"t-0/{name}", create=True).close()
    log = opened(files)
    assert log.segment_count == 1
    assert "notes.txt" in files.names("t-0") and "7.log" in files.names("t-0")
    assert not any("500" in name or "deleted" in name for name in files.names("t-0"))


# --- what follows from batches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"0\n2\n5 0\n3 1\n", b"9\n0\n"])
def test_lost_epochs_are_read_from_the_batches(files: Files, content: bytes | None) -> None:
    log = opened(files)
    for epoch in (1, 4):
        log.lead(epoch)()
        for _ in range(10):
            log.append(batch(bytes(50)), NOW)
    log.close()
    path = "t-0/leader-epoch-checkpoint"
    files.delete(path)
    if content is not None:
        file = files.open(path, create=True)
        file.append(content)
        file.close()
    log = opened(files, clean=1)
    assert (log.end_of_epoch(1), log.end_of_epoch(4)) == ((1, 10), (4, 20))


def test_what_the_snapshot_knows_is_not_counted_twice(files: Files) -> None:
    """Epochs are read from the log again, where only two of the producer's five batches are left."""
    log = opened(files)
    for sequence in range(40):
        log.append(batch(bytes(50), producer=(1, 0, sequence)), NOW)
    log.delete_records(38, 40)
    rename_files(files, log.retain(NOW, 40))
    log.close()
    assert len([name for name in files.names("t-0") if name.endswith(".log")]) == 1
    files.delete("t-0/leader-epoch-checkpoint")
    log = opened(files, log_start_offset=38, clean=1)
    for sequence in range(35, 40):
        assert log.append(batch(bytes(50), producer=(1, 0, sequence)), NOW).base_offset == sequence


def test_lost_or_damaged_snapshots_are_made_up_for_from_the_log(files: Files) -> None:
    log = opened(files)
    for sequence in range(40):
        log.append(batch(bytes(50), producer=(1, 0, sequence)), NOW)
    log.close()
    snapshots = [name for name in files.names("t-0") if name.endswith(".snapshot")]
    assert len(snapshots) > 2
    files.delete(f"t-0/{snapshots[0]}")
    for name in snapshots[1:]:
        overwrite(files, f"t-0/{name}", 8, b"xx")
    log = opened(files, clean=1)
    assert log.append(batch(bytes(50), producer=(1, 0, 36)), NOW).base_offset == 36
    with pytest.raises(RefusedError) as error:
        log.append(batch(bytes(50), producer=(1, 0, 41)), NOW)
    assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producers_that_have_expired_are_not_restored(files: Files) -> None:
    log = opened(files)
    log.append(batch(b"a", producer=(1, 0, 0), timestamps=[NOW]), NOW)
    log.close()
    later = NOW + SMALL.producer_id_expiration_ms
    log = PartitionLog.open(files, "t-0", SMALL, later, clean=True)
    assert log.producer_count == 0


def test_a_log_start_beyond_the_end_is_refused_and_nothing_is_erased(files: Files) -> None:
    content = written(files, 5)
    with pytest.raises(DamageError, match="starts at offset 100, and the log ends at 5"):
        opened(files, log_start_offset=100)
    assert read_all(opened(files)) == content


def test_records_that_were_deleted_and_never_durable_leave_a_log_that_starts_where_it_should(files: Files) -> None:
    """The start has a checksum then, and nothing that was durable is missing."""
    written(files, 5)
    log = PartitionLog.open(files, "t-0", SMALL, NOW, log_start_offset=100, known=LogState(start=0, end=5))
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (100, 100, 1)
    assert log.append(batch(b"a"), NOW).base_offset == 100


def test_a_log_start_within_the_log_hides_what_is_before(files: Files) -> None:
    written(files, 30)
    log = opened(files, log_start_offset=17)
    assert log.log_start_offset == 17 and [offset for offset, _ in read_all(log)] == list(range(17, 30))
    found = log.offset_for_timestamp(0, 30)
    assert found is not None and found.offset == 17


def test_truncating_goes_back_to_a_batch(files: Files) -> None:
    log = opened(files)
    for start in range(0, 60, 2):
        log.append(batch(bytes(40), bytes(40), producer=(1, 0, start)), NOW)
    cut(log, 60, NOW)
    assert log.log_end_offset == 60
    cut(log, 31, NOW)
    assert log.log_end_offset == 30
    assert log.append(batch(b"x", producer=(1, 0, 30)), NOW).base_offset == 30
    cut(log, 0, NOW)
    assert (log.log_end_offset, log.segment_count, log.producer_count) == (0, 1, 0)


def test_settings_may_change_between_openings(files: Files) -> None:
    content = written(files, 30)
    log = opened(files, replace(SMALL, segment_bytes=300, index_interval_bytes=4096))
    log.append(batch(b"x"), NOW)
    assert read_all(log)[:-1] == content


def test_a_log_that_was_closed_empty_keeps_its_files_when_the_power_goes() -> None:
    """Its names were never part of a flush, and whoever opens it after a clean stop takes them for durable."""
    disk = LossyFiles()
    opened(disk).close()
    log = opened(disk, clean=True)
    log.append(batch(b"a"), NOW)
    log.flush()
    left = disk.crash(lambda _most: 0)
    assert [value for _, value in read_all(opened(left))] == [b"a"]


def test_a_log_that_was_made_anew_and_closed_untouched_keeps_its_files_when_the_power_goes() -> None:
    disk = LossyFiles()
    opened(disk, clean=True).close()
    log = opened(disk, clean=True)
    log.append(batch(b"a"), NOW)
    log.flush()
    left = disk.crash(lambda _most: 0)
    assert [value for _, value in read_all(opened(left))] == [b"a"]


def test_an_empty_log_that_was_opened_and_closed_again_and_again_keeps_its_files_when_the_power_goes() -> None:
    """A close of an empty log syncs nothing: the next owner must not take its names for durable."""
    for seed in range(20):
        disk = Disk(Rng(seed).of("disk"))
        for clean in (0, 1, 1):
            opened(disk, clean=clean).close()
        log = opened(disk, clean=1)
        log.append(batch(b"a"), NOW)
        log.flush()
        disk.crash()
        assert [value for _, value in read_all(opened(disk))] == [b"a"]
