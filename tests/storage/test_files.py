"""The port to the disk: what every implementation of `Files` promises."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from coterie.storage.files import DiskFile, DiskFiles, Files, parent_of, read_file, replace_file


def test_what_is_appended_is_read_anywhere(files: Files) -> None:
    file = files.open("a", create=True)
    file.append(b"hello ")
    file.append(bytearray(b"world"))
    file.append(memoryview(b"!"))
    assert file.size == files.size("a") == 12
    assert file.pread(5, 6) == b"world"
    assert file.pread(100, 6) == b"world!"
    assert file.pread(1, 12) == file.pread(5, 100) == b""
    file.close()


def test_a_file_goes_on_where_it_ended(files: Files) -> None:
    first = files.open("a", create=True)
    first.append(b"one")
    first.close()
    again = files.open("a")
    again.append(b"two")
    assert again.pread(10, 0) == b"onetwo"
    again.close()


def test_truncating_cuts_and_the_next_append_follows_the_cut(files: Files) -> None:
    file = files.open("a", create=True)
    file.append(b"abcdef")
    file.truncate(2)
    file.append(b"X")
    assert (file.size, file.pread(10, 0)) == (3, b"abX")
    file.truncate(5)
    assert file.pread(10, 0) == b"abX\0\0"
    file.close()


def test_two_handles_see_one_file(files: Files) -> None:
    writer, reader = files.open("a", create=True), files.open("a")
    writer.append(b"news")
    assert reader.pread(4, 0) == b"news"
    writer.close()
    reader.close()


def test_a_missing_file_is_not_opened_unless_asked_to(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("a")
    with pytest.raises(FileNotFoundError):
        files.size("a")
    with pytest.raises(FileNotFoundError):
        files.open("nowhere/a", create=True)
    assert not files.exists("a")


def test_directories_are_made_listed_and_removed(files: Files) -> None:
    files.mkdir("d/e")
    files.mkdir("d/e")
    files.open("d/b", create=True).close()
    files.open("d/a", create=True).close()
    assert files.names("d") == ["a", "b", "e"] and files.names() == ["d"]
    assert files.exists("d") and files.exists("d/e")
    with pytest.raises(OSError, match="d"):
        files.rmdir("d")
    files.delete("d/a")
    files.delete("d/b")
    files.rmdir("d/e")
    files.rmdir("d")
    assert files.names() == []
    with pytest.raises(FileNotFoundError):
        files.names("d")


def test_a_rename_replaces_a_file_in_one_step(files: Files) -> None:
    for name, content in (("old", b"1"), ("new", b"2")):
        file = files.open(name, create=True)
        file.append(content)
        file.close()
    files.rename("new", "old")
    assert read_file(files, "old") == b"2" and files.names() == ["old"]
    files.rename("old", "old")
    assert files.names() == ["old"]
    with pytest.raises(FileNotFoundError):
        files.rename("missing", "old")


def test_a_directory_is_renamed_with_what_is_in_it(files: Files) -> None:
    files.mkdir("d/inner")
    files.open("d/inner/f", create=True).close()
    files.rename("d", "moved")
    assert files.names() == ["moved"] and files.exists("moved/inner/f") and not files.exists("d/inner/f")
    files.mkdir("full")
    files.open("full/f", create=True).close()
    with pytest.raises(OSError, match=r"full|moved"):
        files.rename("moved", "full")
    assert files.exists("moved/inner/f")


def test_deleting_what_is_not_there_is_fine_and_a_directory_is_no_file(files: Files) -> None:
    files.delete("nothing")
    files.mkdir("d")
    with pytest.raises(OSError, match="d"):
        files.delete("d")
    assert files.exists("d")


def test_a_deleted_file_can_still_be_synced_by_who_has_it_open(files: Files) -> None:
    file = files.open("a", create=True)
    file.append(b"x")
    later = file.later()
    files.delete("a")
    file.close()
    later.run()


def test_syncing_later_on_another_thread_while_appends_go_on(files: Files) -> None:
    file = files.open("a", create=True)
    file.append(b"x")
    thread = threading.Thread(target=file.later().run)
    thread.start()
    file.append(b"y")
    thread.join()
    file.sync()
    files.sync_directory()
    assert file.pread(2, 0) == b"xy"
    file.close()


def test_a_lock_is_held_by_one(files: Files) -> None:
    lock = files.lock(".lock")
    with pytest.raises(BlockingIOError):
        files.lock(".lock")
    lock.release()
    files.lock(".lock").release()


def test_a_replaced_file_has_the_old_content_or_the_new(files: Files) -> None:
    files.mkdir("d")
    replace_file(files, "d/f", b"old")
    replace_file(files, "d/f", b"new", sync=False)
    assert read_file(files, "d/f") == b"new" and files.names("d") == ["f"]
    leftover = files.open("d/f.tmp", create=True)
    leftover.append(b"torn by a crash")
    leftover.close()
    replace_file(files, "d/f", b"newer")
    assert read_file(files, "d/f") == b"newer"


def test_the_parent_of_a_path() -> None:
    assert [parent_of(path) for path in ("a", "a/b", "a/b/c")] == ["", "a", "a/b"]


def _open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_sync_that_is_never_run_lets_go_of_its_descriptor(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    file = files.open("a", create=True)
    before = _open_descriptors()
    laters = [file.later() for _ in range(10)]
    assert _open_descriptors() == before + 10
    del laters
    assert _open_descriptors() == before
    file.close()


def test_a_lock_keeps_other_processes_out_and_dies_with_its_owner(tmp_path: Path) -> None:
    script = "import sys; from coterie.storage.files import DiskFiles; lock = DiskFiles(sys.argv[1]).lock('.lock')"
    command = [sys.executable, "-c", script, str(tmp_path)]
    lock = DiskFiles(tmp_path).lock(".lock")
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "BlockingIOError" in refused.stderr
    lock.release()
    subprocess.run(command, check=True)
    DiskFiles(tmp_path).lock(".lock").release()


# --- more files than may be open --------------------------------------------------------------------------------------


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_files_that_are_not_used_have_no_descriptor(tmp_path: Path) -> None:
    """Else a broker with many logs could take no connection, and could not start again."""
    files = DiskFiles(tmp_path, most_open=8)
    before = open_descriptors()
    opened = [files.open(f"f{number}", create=True) for number in range(100)]
    assert open_descriptors() - before <= 8
    for turn in range(3):
        for number, file in enumerate(opened):
            file.append(b"%d of %d " % (turn, number))
            file.sync()
        assert open_descriptors() - before <= 8
    for number, file in enumerate(opened):
        assert file.pread(100, 0) == b"0 of %d 1 of %d 2 of %d " % (number, number, number)
        file.close()
    assert open_descriptors() == before


def test_what_is_not_synced_keeps_its_descriptor_as_long_as_others_can_be_closed(tmp_path: Path) -> None:
    """The system reports a write that failed to the descriptors that are open, and to others perhaps not."""
    files = DiskFiles(tmp_path, most_open=8)
    unsynced = [files.open(f"u{number}", create=True) for number in range(4)]
    later = []
    for file in unsynced:
        file.append(b"x")
        later.append(file.later())
        file.append(b"y")
    synced = [files.open(f"s{number}", create=True) for number in range(40)]
    assert [file.descriptor is not None for file in unsynced] == [True] * 4  # type: ignore[attr-defined]
    for sync in later:
        sync.run()
    assert not any(file.is_synced for file in unsynced), "the second write came later"  # type: ignore[attr-defined]
    for file in unsynced:
        file.later().run()
    assert all(file.is_synced for file in unsynced)  # type: ignore[attr-defined]
    for file in [*unsynced, *synced]:
        file.close()


def test_a_file_that_loses_its_name_stays_the_same_file_for_who_has_it_open(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path, most_open=1)
    files.mkdir("d")
    held = {name: files.open(name, create=True) for name in ("deleted", "renamed", "d/inside", "replaced", "new")}
    for name, file in held.items():
        file.append(name.encode())
        file.sync()
    files.delete("deleted")
    files.rename("renamed", "elsewhere")
    files.rename("d", "e")
    files.rename("new", "replaced")
    for _ in range(2):
        for name, file in held.items():
            others = files.open("another", create=True)
            assert file.pread(100, 0) == name.encode()
            others.close()
    for file in held.values():
        file.close()


def test_a_file_that_was_closed_is_not_opened_again(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path, most_open=1)
    first = files.open("a", create=True)
    files.open("b", create=True).close()
    first.close()
    with pytest.raises(OSError, match="closed"):
        first.pread(1, 0)


def test_a_file_with_room_is_written_out_beforehand_and_appends_overwrite_it(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    file = files.open("a", create=True)
    assert isinstance(file, DiskFile)
    file.append(b"head")
    file.reserve(10)
    file.append(b"one")
    assert (file.size, read_file(files, "a")) == (7, b"headone" + bytes(10))
    file.append(b"two")
    file.append(b"fourteen")
    assert (file.size, read_file(files, "a")) == (18, b"headonetwofourteen" + bytes(10))
    file.truncate(4)
    assert (file.size, files.size("a")) == (4, 4)
    file.append(b"!")
    assert read_file(files, "a") == b"head!" + bytes(10)
    file.close()


def test_a_volume_has_space_if_there_is_one(files: Files, tmp_path: Path) -> None:
    found = files.space()
    assert found is None or found.total >= found.usable > 0
    assert (found is None) is not isinstance(files, DiskFiles)
    assert (DiskFiles(tmp_path).space() or (0, 0))[0] == shutil.disk_usage(tmp_path).total
