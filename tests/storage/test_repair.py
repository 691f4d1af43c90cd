"""Repair saves what is whole, loses no more than is lost, says what it was, and leaves a directory that opens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coterie.storage import DamageError, Files, MemoryFiles
from coterie.storage.durable_ends import CHECKPOINT
from coterie.storage.files import read_file
from coterie.storage.log_errors import DamagedFileError, DirectoryError
from coterie.storage.metadata_files import META, TOPICS
from coterie.storage.repair import Findings, carry_out, inspect
from coterie.structs import replace
from logs import batch, read_all
from storage.directories import NOW, ORDERS, change, flipped, make, opened, segments, written


def base_of(path: str) -> int:
    return int(path[-24:-4])


def repaired(files: Files) -> Findings:
    before = {path: read_file(files, path) for path in segments(files)}
    found = inspect(files, cluster_id="cluster")
    assert {path: read_file(files, path) for path in segments(files)} == before, "a look changes nothing"
    carry_out(files, found, "damaged-1", b"what was lost\n")
    for path, content in before.items():
        kept = f"damaged-1/{path}"
        assert read_file(files, path) == content or read_file(files, kept) == content, "never deleted"
    assert read_file(files, "damaged-1/report.txt") == b"what was lost\n"
    assert not inspect(files, cluster_id="cluster").is_damaged
    return found


@pytest.fixture(params=[True, False], ids=["clean", "killed"])
def clean(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def gone(which: int) -> Callable[[Files], tuple[int, int]]:
    def spoil(files: Files) -> tuple[int, int]:
        paths = segments(files)
        path = paths[which]
        after = [*map(base_of, paths[1:]), 30][which]
        files.delete(path)
        return base_of(path), after

    return spoil


def cut(which: int) -> Callable[[Files], tuple[int, int]]:
    """Without its last batch and a half of the one before."""

    def spoil(files: Files) -> tuple[int, int]:
        paths = segments(files)
        after = [*map(base_of, paths[1:]), 30][which]
        change(files, paths[which], lambda content: content[: -len(batch(b"10" + bytes(40))) - 20])
        return after - 2, after

    return spoil


def bit(which: int, at: int) -> Callable[[Files], tuple[int, int]]:
    """Of the first batch."""

    def spoil(files: Files) -> tuple[int, int]:
        path = segments(files)[which]
        change(files, path, lambda content: flipped(content, at))
        return base_of(path), base_of(path) + 1

    return spoil


def zeros(files: Files) -> tuple[int, int]:
    path = segments(files)[0]
    size = len(batch(b"1" + bytes(40)))
    change(files, path, lambda content: content[:size] + bytes(size + 10) + content[2 * size + 10 :])
    return 1, 3


def directory(files: Files) -> tuple[int, int]:
    for name in files.names("orders-0"):
        files.delete(f"orders-0/{name}")
    files.rmdir("orders-0")
    return 0, 30


@pytest.mark.parametrize(
    "spoil",
    [gone(0), gone(1), gone(-1), cut(0), cut(-1), bit(0, 3), bit(0, 9), bit(1, 70), bit(-1, 70), zeros, directory],
)
def test_what_is_whole_is_saved_and_what_is_lost_is_said(
    clean: bool, spoil: Callable[[Files], tuple[int, int]]
) -> None:
    files = MemoryFiles()
    content = written(files, clean=clean)
    first, after = spoil(files)
    (log,) = repaired(files).damaged_logs
    assert log.path == "orders-0" and log.lost == [(first, after)]
    for _ in range(2):
        data = opened(files)
        log_again = data.logs["orders", 0]
        assert log_again.log_end_offset == 30, "no offset is given away again"
        assert read_all(log_again) == [item for item in content if not first <= item[0] < after]
        data.close()
    data = opened(files)
    assert data.logs["orders", 0].append(batch(b"more"), NOW).base_offset == 30


@pytest.mark.parametrize("at", [0, 1, 2, 3])
@pytest.mark.parametrize("which", [0, -1])
def test_a_wrong_base_offset_in_a_compacted_log_is_damage(at: int, which: int) -> None:
    """A compacted log has gaps, but none that its indexes cannot hold: the rule of `Segment.recover`."""
    files = MemoryFiles()
    written(files, clean=True, topic=replace(ORDERS, configs={"cleanup.policy": "compact"}))
    first, after = bit(which, at)(files)
    (log,) = repaired(files).damaged_logs
    assert log.lost == [(first, after)]
    assert opened(files).logs["orders", 0].log_end_offset == 30


def test_an_interrupted_repair_is_begun_again() -> None:
    files = MemoryFiles()
    content = written(files, clean=True)
    first, after = bit(1, 70)(files)
    found = inspect(files, cluster_id="cluster")
    found.files.clear()
    carry_out(files, found, "damaged-1", b"")
    files.delete(CHECKPOINT.path)  # as if it had not come to that
    again = inspect(files, cluster_id="cluster")
    carry_out(files, again, "damaged-2", b"")
    assert read_all(opened(files).logs["orders", 0]) == [item for item in content if not first <= item[0] < after]


def test_a_lost_checkpoint_is_written_anew(clean: bool) -> None:
    files = MemoryFiles()
    content = written(files, clean=clean)
    files.delete(CHECKPOINT.path)
    with pytest.raises(DamagedFileError):
        opened(files)
    assert [one.path for one in repaired(files).files] == [CHECKPOINT.path]
    data = opened(files)
    assert read_all(data.logs["orders", 0]) == content
    data.close()
    files.delete(segments(files)[1])
    with pytest.raises(DamageError):
        opened(files)


def test_lost_topics_are_found_in_their_directories(clean: bool) -> None:
    files = MemoryFiles()
    content = written(files, clean=clean)
    change(files, TOPICS.path, lambda content: flipped(content, len(content) // 2))
    files.delete(META.path)
    found = repaired(files)
    assert [one.path for one in found.files] == [TOPICS.path, META.path] and not found.damaged_logs
    data = opened(files)
    assert data.topics["orders"].partitions == 2 and data.meta["cluster.id"] == "cluster"
    assert read_all(data.logs["orders", 0]) == content


def test_a_whole_directory_needs_no_repair(clean: bool) -> None:
    files = MemoryFiles()
    written(files, clean=clean)
    found = inspect(files, cluster_id="cluster")
    assert not found.is_damaged and found.batches == 30
    data = opened(files)
    make(data.checkpoints.delete_records(("orders", 0), 17, 30))
    data.release()
    assert not inspect(files, cluster_id="cluster").is_damaged


def test_what_is_no_data_directory_is_left_alone() -> None:
    files = MemoryFiles()
    files.open("thesis.txt", create=True).close()
    with pytest.raises(DirectoryError, match="not a data directory"):
        inspect(files, cluster_id="cluster")
