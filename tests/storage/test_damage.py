"""What was durable and is missing or wrong is damage: it is named, all of it, and nothing is cut or created again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coterie.errors import ErrorCode
from coterie.protocol.batch import batches
from coterie.storage import DamageError, Files, LogConfig, MemoryFiles, RefusedError
from coterie.storage.durable_ends import (
    CHECKPOINT,
    ENDS_FILE,
    LogFound,
    LogState,
    SegmentFound,
    SegmentState,
    damages_of,
    read_checkpoint,
)
from coterie.storage.files import read_file
from coterie.storage.log_errors import DamagedFileError
from coterie.structs import replace
from logs import SMALL, batch, compact, read_all
from storage.directories import NOW, ORDERS, change, flipped, flush, make, opened, segments, written


def refused(files: Files) -> DamageError:
    before = {path: read_file(files, path) for path in segments(files)}
    with pytest.raises(DamageError) as raised:
        opened(files)
    assert {path: read_file(files, path) for path in segments(files)} == before, "nothing is cut or made"
    return raised.value


@pytest.fixture(params=[True, False], ids=["clean", "killed"])
def clean(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_what_is_whole_is_opened(clean: bool) -> None:
    files = MemoryFiles()
    content = written(files, clean=clean)
    for _ in range(2):
        directory = opened(files)
        assert read_all(directory.logs["orders", 0]) == content
        directory.close()


def test_the_active_segment_is_gone(clean: bool) -> None:
    """Else the log would end earlier, and give its offsets away again."""
    files = MemoryFiles()
    written(files, clean=clean)
    *_, before, last = segments(files)
    files.delete(last)
    (damage,) = refused_without(files, last).damages
    assert damage.path == (last if clean else before)
    assert damage.lost is not None and damage.lost == (int(last[-24:-4]), 30)


def refused_without(files: Files, path: str) -> DamageError:
    error = refused(files)
    assert path not in segments(files), "it is not created again"
    return error


def test_all_segments_are_gone(clean: bool) -> None:
    files = MemoryFiles()
    written(files, clean=clean)
    for path in segments(files):
        files.delete(path)
    (damage,) = refused(files).damages
    assert damage.lost == (0, 30) and not segments(files)


@pytest.mark.parametrize("which", [0, 1, -2])
def test_a_closed_segment_is_gone(clean: bool, which: int) -> None:
    files = MemoryFiles()
    written(files, clean=clean)
    path = segments(files)[which]
    after = segments(files)[which + 1]
    files.delete(path)
    (damage,) = refused_without(files, path).damages
    assert damage.lost == (int(path[-24:-4]), int(after[-24:-4]))


@pytest.mark.parametrize("which", [0, 1, -2, -1])
@pytest.mark.parametrize("left", ["but a byte", "a batch less", "nothing"])
def test_a_segment_is_truncated(clean: bool, which: int, left: str) -> None:
    files = MemoryFiles()
    written(files, clean=clean)
    path = segments(files)[which]
    size = len(batch(b"29" + bytes(40)))
    sizes = {"but a byte": files.size(path) - 1, "a batch less": files.size(path) - size, "nothing": 0}
    file = files.open(path)
    file.truncate(sizes[left])
    file.close()
    assert [damage.path for damage in refused(files).damages] == [path]


def test_a_partitions_directory_is_gone(clean: bool) -> None:
    files = MemoryFiles()
    written(files, clean=clean)
    for name in files.names("orders-0"):
        files.delete(f"orders-0/{name}")
    files.rmdir("orders-0")
    with pytest.raises(DamageError, match="orders-0 is missing; at stake: offsets 0 to 29 of orders-0"):
        opened(files)
    assert not files.exists("orders-0")


def test_all_damage_is_named(clean: bool) -> None:
    files = MemoryFiles()
    written(files, clean=clean)
    first, second, third, *_ = segments(files)
    files.delete(first)
    change(files, third, lambda content: content[:-1])
    for name in files.names("orders-1"):
        files.delete(f"orders-1/{name}")
    files.rmdir("orders-1")
    said = str(refused(files))
    assert "orders-1 is missing" in said and third in said and "offsets 0 to" in said and second not in said
    assert "coterie repair" in said and "--accept-loss" in said


@pytest.mark.parametrize("which", [0, -1])
def test_a_flipped_bit_is_told_at_the_start_or_by_whoever_reads(clean: bool, which: int) -> None:
    """Never cut, never skipped, whatever bit of whatever batch; only a leader's epoch has no checksum."""
    for at in [*range(12), *range(16, len(batch(b"0" + bytes(40))))]:
        files = MemoryFiles()
        content = written(files, clean=clean)
        path = segments(files)[which]
        change(files, path, lambda content, at=at: flipped(content, at))  # type: ignore[misc]
        try:
            directory = opened(files)
        except DamageError as error:
            named = [damage.path for damage in error.damages]
        else:
            named = []
        if named:
            assert named == [path]
            continue
        log = directory.logs["orders", 0]
        assert log.log_end_offset == 30
        with pytest.raises(RefusedError, match="is damaged") as raised:
            assert read_all(log) == content, "or it says so"
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE and path in str(raised.value)
        directory.release()


def test_what_is_torn_beyond_what_was_durable_is_cut() -> None:
    files = MemoryFiles()
    content = written(files, clean=False)
    path = segments(files)[-1]
    change(files, path, lambda content: content + content[:70])
    directory = opened(files)
    assert read_all(directory.logs["orders", 0]) == content
    assert directory.logs["orders", 0].recovery.cuts


def test_retention_says_so_before_it_deletes() -> None:
    """What was deleted is not missed."""
    files = MemoryFiles()
    written(files, clean=True)
    directory = opened(files)
    log = directory.logs["orders", 0]
    make(directory.checkpoints.delete_records(("orders", 0), 17, 30))
    deleted = log.retain(NOW, 30)
    assert deleted
    for each in deleted:
        for path in each.paths:
            files.delete(path)
    directory.release()
    directory = opened(files)
    assert directory.logs["orders", 0].log_start_offset == 17
    directory.release()
    files.delete(segments(files)[0])
    refused(files)


def test_a_compacted_log_has_no_holes_between_its_segments(clean: bool) -> None:
    files = MemoryFiles()
    config = LogConfig(segment_bytes=1000, index_interval_bytes=150, compacts=True)
    directory = opened(files, config)
    make(directory.create_topic(ORDERS, NOW))
    log = directory.logs["orders", 0]
    for number in range(60):
        log.append(batch(b"%d" % number + bytes(40)), NOW)
    flush(directory)
    make(directory.checkpoints.write())  # as before each compaction by the broker
    assert compact(files, log, NOW) is not None and log.segment_count > 1
    content = read_all(log)
    if clean:
        directory.close()
    else:
        directory.release()
    directory = opened(files, config)
    assert read_all(directory.logs["orders", 0]) == content
    directory.release()
    files.delete(segments(files)[0])
    with pytest.raises(DamageError):
        opened(files, config)


def test_an_older_copy_of_a_time_index_is_built_again(clean: bool) -> None:
    """Its rows are true, and say nothing of what came later: retention would take the segment for older than it is."""
    files = MemoryFiles()
    written(files, clean=True)
    if not clean:
        opened(files).release()
    path = segments(files)[0].replace(".log", ".timeindex")
    change(files, path, lambda content: content[:-12])
    directory = opened(files)
    log = directory.logs["orders", 0]
    found = log.offset_for_timestamp(log.segments[0].next_offset - 1, 30)
    assert found is not None and found.offset == log.segments[0].next_offset - 1
    assert log.segments[0].max_timestamp == log.segments[0].next_offset - 1


def test_an_older_copy_of_the_epochs_is_not_believed(clean: bool) -> None:
    files = MemoryFiles()
    directory = opened(files)
    make(directory.create_topic(ORDERS, NOW))
    log = directory.logs["orders", 0]
    kept = []
    for epoch in (1, 4):
        log.lead(epoch)()
        kept.append(read_file(files, "orders-0/leader-epoch-checkpoint"))
        log.append(batch(b"a"), NOW)
        flush(directory)
    directory.close()
    if not clean:
        opened(files).release()
    change(files, "orders-0/leader-epoch-checkpoint", lambda _: kept[0])
    log = opened(files).logs["orders", 0]
    assert (log.end_of_epoch(1), log.end_of_epoch(4)) == ((1, 1), (4, 2))


@pytest.mark.parametrize("has_file", [True, False])
def test_a_wrong_leader_epoch_in_a_batch_is_not_believed_before_the_checkpoint(has_file: bool) -> None:
    """No checksum covers it. A consumer would hear that all it has read was truncated, and begin again."""
    files = MemoryFiles()
    written(files, clean=True)
    opened(files).release()
    if not has_file:
        files.delete("orders-0/leader-epoch-checkpoint")
    first = segments(files)[0]
    change(files, segments(files)[-1], lambda content: _with_bit(content, 8 * 15 + 2))  # the last byte of the epoch
    change(files, first, lambda content: _with_bit(content, 8 * 15 + 2))
    log = opened(files).logs["orders", 0]
    assert log.end_of_epoch(0) == (0, 30)


# --- what is known ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", ["missing", "flipped", "cut", "older"])
def test_a_checkpoint_that_is_not_the_one_we_wrote_is_refused(clean: bool, spoil: str) -> None:
    files = MemoryFiles()
    written(files, clean=clean)
    older = read_file(files, CHECKPOINT.path)
    directory = opened(files)
    make(directory.checkpoints.write())
    if clean:
        directory.close()
    else:
        directory.release()
    spoils: dict[str, Callable[[bytearray], bytes]] = {
        "flipped": lambda content: bytes(flipped(content, len(content) // 2)),
        "cut": lambda content: bytes(content[:-5]),
        "older": lambda _: older,
    }
    if spoil == "missing":
        files.delete(CHECKPOINT.path)
    else:
        change(files, CHECKPOINT.path, spoils[spoil])
    with pytest.raises(DamagedFileError, match=r"coterie-checkpoint\.json"):
        opened(files)


@pytest.mark.parametrize("spoil", ["missing", "flipped", "cut", "zeros"])
def test_without_the_durable_ends_less_is_known_and_nothing_is_wrong(clean: bool, spoil: str) -> None:
    files = MemoryFiles()
    content = written(files, clean=clean)
    if spoil == "missing":
        files.delete(ENDS_FILE)
    else:
        spoils: dict[str, Callable[[bytearray], bytes]] = {
            "flipped": lambda content: bytes(flipped(content, len(content) // 2)),
            "cut": lambda content: bytes(content[:-5]),
            "zeros": lambda content: bytes(len(content)),
        }
        change(files, ENDS_FILE, spoils[spoil])
    assert read_all(opened(files).logs["orders", 0]) == content


def test_a_directory_of_an_earlier_release_is_opened(clean: bool) -> None:
    files = MemoryFiles()
    content = written(files, clean=clean)
    files.delete(CHECKPOINT.path)
    files.delete(ENDS_FILE)
    directory = opened(files)
    assert not directory.opening.knew_ends and read_all(directory.logs["orders", 0]) == content
    directory.release()
    directory = opened(files)
    assert directory.opening.knew_ends
    directory.release()
    files.delete(segments(files)[-1])
    refused(files)


def test_ends_are_kept_until_a_checkpoint_has_them() -> None:
    files = MemoryFiles()
    directory = opened(files)
    make(directory.create_topic(ORDERS, NOW))
    log = directory.logs["orders", 0]
    log.append(batch(b"a"), NOW)
    assert log.key is not None
    directory.ends.add([(log.key, 1)])  # by the journal: the segments are not synced
    make(directory.checkpoints.write())
    checkpoint = read_checkpoint(files)
    assert checkpoint is not None and checkpoint.logs[log.key].end == 0
    assert directory.ends.read() == {log.key: 1}
    flush(directory)
    make(directory.checkpoints.write())
    assert directory.ends.read() == {}


# --- the rules --------------------------------------------------------------------------------------------------------

KNOWN = LogState(start=5, end=30, segments=(SegmentState(0, 100, 8, 12), SegmentState(10, 90, 8, 12)))


def found(*rows: tuple[int, int, int | None], next_base: int = 20, is_clean: bool = False) -> LogFound:
    return LogFound(
        "t-0", [SegmentFound(f"t-0/{base}", base, size, end) for base, size, end in rows], next_base, is_clean
    )


@pytest.mark.parametrize(
    ("what", "lost"),
    [
        (found((0, 100, 10), (10, 90, 20)), []),
        (found((0, 100, 10), (10, 90, 20), is_clean=True), []),
        (found((0, 99, 10), (10, 90, 20)), []),  # it may have been compacted since
        (found((0, 99, 10), (10, 90, 20), is_clean=True), [(0, 10)]),
        (found((0, 100, 10), next_base=10, is_clean=True), [(10, 30)]),
        (found((10, 90, 20)), [(5, 10)]),
        (found((0, 100, 10), next_base=20), [(10, 20)]),
        (found((0, 100, 8), (10, 90, 20)), [(8, 10)]),
        (found((0, 100, None), (10, 90, 20)), []),
        (found(next_base=0), []),
        (found(next_base=20), [(5, 20)]),
    ],
)
def test_each_rule(what: LogFound, lost: list[tuple[int, int]]) -> None:
    assert [damage.lost for damage in damages_of(KNOWN, what)] == lost


def test_what_is_before_the_start_of_the_log_is_not_missed() -> None:
    """It was deleted, and a power cut may bring back some of the files."""
    left = found((0, 100, 2), (10, 90, 20))
    assert not damages_of(KNOWN._replace(start=10), left) and damages_of(KNOWN._replace(start=9), left)


def test_gaps_that_an_earlier_release_left_are_no_holes() -> None:
    gap = found((0, 100, 8), (10, 90, 20))
    assert not damages_of(KNOWN._replace(gaps_below=10), gap)


@pytest.mark.parametrize("bit", range(64))
def test_no_bit_of_a_base_offset_hides_records_of_a_compacted_log(clean: bool, bit: int) -> None:
    """No checksum covers a base offset, and a compacted log has gaps: a wrong one must not pass for a gap."""
    config = replace(SMALL, compacts=True)
    for which in range(len(_positions(_compacted(clean=clean)))):
        files = _compacted(clean=clean)
        expected = _read(files, config)
        files = _compacted(clean=clean)
        at = _positions(files)[which]
        change(files, segments(files)[-1], lambda content, at=at: _with_bit(content, 8 * at + bit))  # type: ignore[misc]
        assert _read(files, config) in (expected, None)


@pytest.mark.parametrize("bit", range(64))
def test_no_bit_of_a_base_offset_hides_what_only_the_journal_has(bit: int) -> None:
    """The batch seems to end later. The journal's batches of these offsets must not be taken for known ones."""
    config = replace(SMALL, compacts=True)
    expected = _read(_half_journaled(config), config)
    for which in range(len(_positions(_half_journaled(config)))):
        files = _half_journaled(config)
        at = _positions(files)[which]
        change(files, segments(files)[-1], lambda content, at=at: _with_bit(content, 8 * at + bit))  # type: ignore[misc]
        assert _read(files, config) in (expected, None)


def _half_journaled(config: LogConfig) -> MemoryFiles:
    """Return a directory after kill -9: the file of the segment has five batches, the journal the last six of eight."""
    files = MemoryFiles()
    directory = opened(files, config)
    make(directory.create_topic(replace(ORDERS, configs={"cleanup.policy": "compact"}), NOW))
    log = directory.logs["orders", 0]
    assert log.journal is not None and log.key is not None and directory.journal is not None
    for number in range(8):
        log.append(batch(b"%d" % number, timestamps=[number]), NOW)
        if number < 2:
            flush(directory)
            make(directory.checkpoints.write())
        else:
            target = log.journal_target()
            directory.journal.write([(log.journal.key, target.batches)])
            log.flushed(target)
            directory.ends.add([(log.key, target.end)])
        if number == 4:
            log.write_out()
    directory.release()
    return files


def _compacted(*, clean: bool) -> MemoryFiles:
    files = MemoryFiles()
    written(files, clean=clean, topic=replace(ORDERS, configs={"cleanup.policy": "compact"}))
    return files


def _positions(files: Files) -> list[int]:
    return [at for at, _ in batches(read_file(files, segments(files)[-1]))]


def _with_bit(content: bytearray, bit: int) -> bytearray:
    content[bit // 8] ^= 1 << bit % 8
    return content


def _read(files: Files, config: LogConfig) -> list[bytes | None] | None:
    """Return the values of all records; None if the damage is reported at the opening or by a read."""
    try:
        return [value for _, value in read_all(opened(files, config).logs["orders", 0])]
    except (DamageError, RefusedError):
        return None
