"""The journal: many small writes made durable at once, and found again after a crash."""

from __future__ import annotations

from uuid import UUID

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from coterie.storage import DataDirectory, Files, MemoryFiles, PartitionLog, StoredTopic
from coterie.storage.files import read_file, replace_file
from coterie.storage.flush import JOURNAL_FILE, Journal, journal_key, read_journal
from coterie.storage.log_errors import DamagedFileError, LogWriteError
from coterie.storage.segment_files import LOG
from logs import SMALL, FaultyFiles, batch, read_all

NOW = 1_000
ORDERS = StoredTopic("orders", UUID(int=7), 2)


def opened(files: Files) -> DataDirectory:
    return DataDirectory.open(files, NOW, cluster_id="cluster", config_of=lambda _: SMALL, journaled=True)


def started(files: Files) -> DataDirectory:
    """Two logs with a batch each, synced in place, names and all."""
    directory = opened(files)
    change = directory.create_topic(ORDERS, NOW)
    change.run()
    change.done()
    for log in directory.logs.values():
        log.append(batch(b"first"), NOW)
        log.flush()
    return directory


def journal(directory: DataDirectory, *, writes_out: bool = True) -> None:
    """Make durable what is new, by the journal alone; then let the segments have it, without a sync."""
    assert directory.journal is not None
    logs = [log for log in directory.logs.values() if log.is_small_flush]
    targets = [(log, log.journal_target()) for log in logs]
    directory.journal.write([(key_of(log), target.batches) for log, target in targets])
    for log, target in targets:
        log.flushed(target)
        if writes_out:
            log.write_out()


def key_of(log: PartitionLog) -> bytes:
    assert log.journal is not None
    return log.journal.key


def lose_tail(files: MemoryFiles, log: PartitionLog, size: int) -> None:
    """What a power cut leaves of the segment's last bytes: nothing."""
    files.open(f"{log.path}/{0:020d}.log").truncate(size)


def test_what_only_the_journal_has_is_found_again_with_the_same_bytes_and_offsets() -> None:
    files = MemoryFiles()
    directory = started(files)
    zero, one = directory.logs.values()
    sizes = zero.size, one.size
    zero.append(batch(b"a", b"b"), NOW)
    one.append(batch(b"c"), NOW)
    zero.append(batch(b"d"), NOW)
    journal(directory)
    assert (zero.durable_end, zero.synced_end) == (4, 1)
    before = read_file(files, f"{zero.path}/{0:020d}.log")
    directory.release()
    for log, size in zip((zero, one), sizes, strict=True):
        lose_tail(files, log, size)

    again = opened(files)
    assert read_file(files, f"{zero.path}/{0:020d}.log") == before
    assert [log.recovery.restored for log in again.logs.values()] == [2, 1]
    assert read_all(again.logs["orders", 0]) == [(0, b"first"), (1, b"a"), (2, b"b"), (3, b"d")]
    assert read_all(again.logs["orders", 1]) == [(0, b"first"), (1, b"c")]
    assert not files.exists(JOURNAL_FILE), "the logs have it all"


def test_what_the_log_has_already_is_not_appended_twice() -> None:
    files = MemoryFiles()
    directory = started(files)
    log = directory.logs["orders", 0]
    for value in (b"a", b"b"):
        log.append(batch(value), NOW)
        journal(directory)
    half = log.size - len(batch(b"b")) - 1  # the last batch of the two whole ones is torn
    directory.release()
    lose_tail(files, log, half + 1)
    again = opened(files).logs["orders", 0]
    assert read_all(again) == [(0, b"first"), (1, b"a"), (2, b"b")] and again.recovery.restored == 1


def test_a_segment_gets_what_the_journal_has_when_it_is_synced_or_written_out() -> None:
    for reach in (PartitionLog.flush, PartitionLog.write_out, PartitionLog.close):
        files = MemoryFiles()
        directory = started(files)
        log = directory.logs["orders", 0]
        path, size = f"{log.path}/{0:020d}.log", log.size
        for value in (b"a", b"b"):
            log.append(batch(value), NOW)
            journal(directory, writes_out=False)
        assert read_all(log) == [(0, b"first"), (1, b"a"), (2, b"b")]
        assert files.size(path) == size < log.size, "it is written to the journal, and not to the segment"
        reach(log)
        assert files.size(path) == size + 2 * len(batch(b"a"))


def test_what_was_never_written_to_the_segment_is_found_again() -> None:
    """As after kill -9: the segment's file has nothing of it, though the machine went on."""
    files = MemoryFiles()
    directory = started(files)
    log = directory.logs["orders", 0]
    for value in (b"a", b"b"):
        log.append(batch(value), NOW)
        journal(directory, writes_out=False)
    log.append(batch(b"nobody was told"), NOW)
    directory.release()
    again = opened(files).logs["orders", 0]
    assert read_all(again) == [(0, b"first"), (1, b"a"), (2, b"b")] and again.recovery.restored == 2


def test_a_segment_that_was_begun_leaves_no_hole_if_the_end_of_the_one_before_it_is_lost() -> None:
    """The name of the next segment is on disk; batches before it were never written. The log ends where they began."""
    files = MemoryFiles()
    directory = started(files)
    log = directory.logs["orders", 0]
    log.append(batch(b"a"), NOW)
    journal(directory, writes_out=False)
    while log.segment_count == 1:
        log.append(batch(b"nobody was told"), NOW)
    directory.release()
    for _ in range(2):
        directory = opened(files)
        again = directory.logs["orders", 0]
        assert (again.log_end_offset, again.segment_count) == (2, 1)
        assert read_all(again) == [(0, b"first"), (1, b"a")]
        directory.release()
    again = opened(files).logs["orders", 0]
    assert again.append(batch(b"next"), NOW).base_offset == 2


def test_the_producers_of_restored_batches_are_known() -> None:
    """A retry of what only the journal had is a duplicate."""
    files = MemoryFiles()
    directory = started(files)
    log = directory.logs["orders", 0]
    size = log.size
    log.append(batch(b"a", producer=(5, 0, 0)), NOW)
    journal(directory)
    directory.release()
    lose_tail(files, log, size)
    assert opened(files).logs["orders", 0].append(batch(b"a", producer=(5, 0, 0)), NOW).is_duplicate


def test_a_topic_made_anew_gets_nothing_of_the_old_one() -> None:
    files = MemoryFiles()
    directory = started(files)
    directory.logs["orders", 0].append(batch(b"old"), NOW)
    journal(directory)
    logs_of_old = directory.delete_topic("orders")
    logs_of_old.run()
    directory.clear_away(ORDERS, logs_of_old.done()).run()
    creation = directory.create_topic(StoredTopic("orders", UUID(int=8), 2), NOW)
    creation.run()
    creation.done()
    directory.logs["orders", 0].append(batch(b"new"), NOW)
    directory.logs["orders", 0].flush()
    directory.release()
    again = opened(files).logs["orders", 0]
    assert read_all(again) == [(0, b"new")] and not again.recovery.restored


def test_an_orderly_stop_leaves_no_journal() -> None:
    files = MemoryFiles()
    directory = started(files)
    directory.logs["orders", 0].append(batch(b"a"), NOW)
    journal(directory)
    assert files.exists(JOURNAL_FILE)
    directory.close()
    assert not files.exists(JOURNAL_FILE)
    assert read_all(opened(files).logs["orders", 0]) == [(0, b"first"), (1, b"a")]


def test_how_far_the_segments_are_synced_is_the_recovery_point() -> None:
    files = MemoryFiles()
    directory = started(files)
    directory.logs["orders", 0].append(batch(b"a"), NOW)
    journal(directory)
    directory.checkpoints.write().run()
    assert b"orders 0 1\n" in read_file(files, "recovery-point-offset-checkpoint")


def test_a_log_that_is_repaired_keeps_what_the_journal_has() -> None:
    """A sync that failed may have cost the system's cache; what was acknowledged before it comes from the journal."""
    files = MemoryFiles()
    directory = started(files)
    log = directory.logs["orders", 0]
    size = log.size
    log.append(batch(b"a"), NOW)
    journal(directory)
    log.append(batch(b"lost"), NOW)
    target = log.flush_target()
    assert target is not None
    log.flush_failed(target)
    lose_tail(files, log, size)
    repairing = log.repair(NOW)
    repairing.run()
    repairing.done()
    assert read_all(log) == [(0, b"first"), (1, b"a")] and log.synced_end == 2


def test_what_a_failed_sync_left_in_the_cache_alone_is_written_anew() -> None:
    """The system takes pages for written after the sync that failed, so that no later one brings them to the disk."""
    files = FaultyFiles()
    directory = started(files)
    log = directory.logs["orders", 0]
    size = log.size
    log.append(batch(b"a"), NOW)
    journal(directory)
    target = log.flush_target(in_place=True)
    assert target is not None
    log.flush_failed(target)
    files.room = 1_000
    repairing = log.repair(NOW)
    repairing.run()
    repairing.done()
    assert files.room == 1_000 - (log.size - size), "all that was not synced in place"
    assert read_all(log) == [(0, b"first"), (1, b"a")]


def test_a_repair_writes_nothing_to_a_segment_that_was_sealed_and_synced() -> None:
    """A write that fails on a full disk may leave a part there, and a start takes such a segment for whole."""
    files = FaultyFiles()
    directory = started(files)
    log = directory.logs["orders", 0]
    log._roll(NOW)  # as for a compaction
    log.flush()
    sealed, active = log.segments
    size = sealed.size
    assert log.synced_end == active.base_offset
    log.append(batch(b"a"), NOW)
    journal(directory)
    target = log.flush_target(in_place=True)
    assert target is not None
    log.flush_failed(target)
    files.room = 9
    for _ in range(2):
        with pytest.raises(LogWriteError):
            log.repair(NOW).run()
        assert files.size(sealed.path(LOG)) == size
    files.room = None
    repairing = log.repair(NOW)
    repairing.run()
    repairing.done()
    assert [segment.base_offset for segment in log.segments] == [0, active.base_offset]
    assert read_all(log)[-1] == (active.base_offset, b"a") and files.size(sealed.path(LOG)) == size


def test_a_segment_gets_its_end_back_though_the_next_one_was_begun() -> None:
    """The file of the next segment may reach the disk before the end of the last one does."""
    files = MemoryFiles()
    directory = started(files)
    log = directory.logs["orders", 0]
    size = log.size
    log.append(batch(b"a"), NOW)
    journal(directory)
    while log.segment_count == 1:
        log.append(batch(b"nobody was told"), NOW)
    begun = log.log_end_offset - 1
    log.write_out()
    directory.release()
    lose_tail(files, log, size)
    again = opened(files).logs["orders", 0]
    assert again.recovery.restored == 1
    assert read_all(again) == [(0, b"first"), (1, b"a"), (begun, b"nobody was told")]


def test_of_a_write_that_failed_nothing_is_appended_to_what_came_after_it() -> None:
    """It may still be in the file, if that could not be cut; nobody was told that it is safe."""
    files = MemoryFiles()
    directory = started(files)
    log = directory.logs["orders", 0]
    assert directory.journal is not None
    for value in (b"refused", b"refused as well"):
        log.append(batch(value), NOW)
    target = log.journal_target()
    directory.journal.write([(key_of(log), target.batches)])  # and then the disk said that it failed
    log.flush_failed(target)
    repairing = log.repair(NOW)
    repairing.run()
    repairing.done()
    log.append(batch(b"a"), NOW)
    log.flush()
    directory.release()
    assert read_all(opened(files).logs["orders", 0]) == [(0, b"first"), (1, b"a")]


def test_what_is_much_or_has_new_names_is_not_for_the_journal() -> None:
    directory = opened(MemoryFiles())
    change = directory.create_topic(ORDERS, NOW)
    change.run()
    change.done()
    log = directory.logs["orders", 0]
    assert not log.is_small_flush, "there is nothing to flush"
    log.append(batch(b"a"), NOW)
    assert not log.is_small_flush, "its directory is new"
    log.flush()
    log.append(batch(b"a"), NOW)
    assert log.is_small_flush
    while log.segment_count == 1:
        log.append(batch(b"a"), NOW)
    assert not log.is_small_flush, "it has rolled"
    log.flush()
    log.config = log.config.__class__(segment_bytes=1 << 20)
    log.append(batch(bytes(65_000)), NOW)
    assert log.is_small_flush
    log.append(batch(bytes(1_000)), NOW)
    assert not log.is_small_flush, "it is more than 64 KiB"


@given(
    writes=st.lists(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=20)), min_size=1), max_size=5),
    data=st.data(),
)
def test_a_torn_journal_gives_back_the_writes_before_the_tear(
    writes: list[list[tuple[int, bytes]]], data: st.DataObject
) -> None:
    files = MemoryFiles()
    book = Journal(files)
    ends = [0]
    for write in writes:
        book.write([(journal_key(UUID(int=1), partition), [content]) for partition, content in write])
        ends.append(book.size)
    whole = read_file(files, JOURNAL_FILE) if writes else b""
    kept = data.draw(st.integers(0, len(whole)))
    zeros = data.draw(st.integers(0, 40))
    if writes:
        file = files.open(JOURNAL_FILE)
        file.truncate(kept)
        file.append(bytes(zeros))
    expected: dict[bytes, list[bytes]] = {}
    damaged = read_file(files, JOURNAL_FILE) if writes else b""
    for write, end in zip(writes, ends[1:], strict=True):
        if damaged[:end] != whole[:end]:
            break
        for partition, content in write:
            expected.setdefault(journal_key(UUID(int=1), partition), []).append(content)
    assert read_journal(files) == expected


@given(at=st.integers(0, 8 * 150))
def test_one_wrong_bit_before_the_last_write_is_damage_and_the_file_is_named(at: int) -> None:
    """Nothing is written behind a write that failed, so a crash leaves no whole one behind it."""
    files = MemoryFiles()
    book = Journal(files)
    key = journal_key(UUID(int=1), 0)
    book.write([(key, [bytes(40)])])
    before_last = book.size
    book.write([(key, [b"acknowledged"])])
    whole = bytearray(read_file(files, JOURNAL_FILE))
    at %= 8 * before_last
    whole[at // 8] ^= 1 << at % 8
    replace_file(files, JOURNAL_FILE, bytes(whole))
    with pytest.raises(DamagedFileError, match="coterie-journal is damaged at byte"):
        read_journal(files)


def test_a_journal_of_an_earlier_release_is_read() -> None:
    files = MemoryFiles()
    key = journal_key(UUID(int=1), 0)
    content = key + (3).to_bytes(4, "big") + b"one"
    head = len(content).to_bytes(4, "big") + crc32c(content).to_bytes(4, "big")
    replace_file(files, JOURNAL_FILE, b"coterie-journal 1\n" + head + content + head + content[:-1])
    assert read_journal(files) == {key: [b"one"]}


def test_a_journal_that_could_not_be_written_takes_no_more_until_it_is_dropped() -> None:
    files = FaultyFiles()
    book = Journal(files)
    key = journal_key(UUID(int=1), 0)
    book.write([(key, [b"one"])])
    files.room = 5
    with pytest.raises(OSError, match=r"."):
        book.write([(key, [b"two"])])
    assert not book.is_sound and read_journal(files) == {key: [b"one"]}
    files.room = None
    book.drop()
    book.write([(key, [b"three"])])
    assert book.is_sound and read_journal(files) == {key: [b"three"]}
