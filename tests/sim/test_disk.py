"""The simulated disk: what a power cut leaves of it. That it is a disk at all is held by tests/storage."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from coterie.sim.disk import DAMAGES, Disk, PowerCut
from coterie.sim.schedule import Rng
from coterie.storage.files import read_file, replace_file

SEEDS = range(60)


def disk(seed: int = 0) -> Disk:
    return Disk(Rng(seed).of("disk"))


def test_what_was_synced_survives_every_power_cut() -> None:
    for seed in SEEDS:
        files = disk(seed)
        file = files.open("a", create=True)
        file.append(b"kept")
        file.sync()
        files.sync_directory()
        file.append(b" or not")
        files.crash()
        assert read_file(files, "a").startswith(b"kept")


def test_of_what_was_not_synced_anything_may_be_left() -> None:
    """All of it, a part, nothing, or zeros in its place."""
    left = set()
    for seed in SEEDS:
        files = disk(seed)
        file = files.open("a", create=True)
        files.sync_directory()
        file.append(b"abcd")
        files.crash()
        left.add(read_file(files, "a"))
    assert {b"", b"abcd", b"ab"} <= left
    assert any(content.endswith(b"\0") for content in left)


def test_a_name_whose_directory_was_not_synced_may_be_gone_with_its_content() -> None:
    there = set()
    for seed in SEEDS:
        files = disk(seed)
        file = files.open("a", create=True)
        file.append(b"x")
        file.sync()
        files.crash()
        there.add(files.exists("a"))
    assert there == {True, False}


def test_names_that_were_not_synced_survive_each_by_itself() -> None:
    left = set()
    for seed in SEEDS:
        files = disk(seed)
        for name in "ab":
            files.open(name, create=True)
        files.sync_directory()
        files.rename("a", "a.deleted")
        files.delete("b")
        files.open("c", create=True)
        files.crash()
        left.add(tuple(files.names()))
    assert len(left) == 2**3, "any of the three, whatever became of the others"


def test_what_concerns_one_name_stays_in_order() -> None:
    for seed in SEEDS:
        files = disk(seed)
        files.open("a", create=True)
        files.sync_directory()
        files.rename("a", "b")
        files.rename("b", "c")
        files.crash()
        assert files.names() in (["a"], ["b"], ["c"])


def test_pages_that_were_not_synced_survive_in_any_order() -> None:
    def looks(seed: int) -> tuple[bool, ...]:
        files = disk(seed)
        file = files.open("a", create=True)
        files.sync_directory()
        file.append(b"x" * 1024)
        files.crash()
        content = read_file(files, "a")
        return tuple(content[at : at + 256] == b"x" * 256 for at in range(0, 1024, 256))

    assert {(False, False, False, True), (True, False, True, True)} <= {looks(seed) for seed in range(400)}


def test_a_file_that_was_replaced_is_the_old_one_or_the_new_one() -> None:
    found = set()
    for seed in SEEDS:
        for steps in range(8):
            files = disk(seed)
            replace_file(files, "a", b"old")
            files.steps_left = steps
            with suppress(PowerCut):
                replace_file(files, "a", b"new")
            files.crash()
            found.add(read_file(files, "a"))
    assert found == {b"old", b"new"}


def test_a_file_that_was_cut_and_not_synced_may_be_long_again() -> None:
    found = set()
    for seed in SEEDS:
        files = disk(seed)
        file = files.open("a", create=True)
        file.append(b"long")
        file.sync()
        files.sync_directory()
        file.truncate(1)
        files.crash()
        found.add(read_file(files, "a"))
    assert found == {b"l", b"long"}


def test_a_sync_that_was_asked_for_earlier_covers_what_was_there_then() -> None:
    for seed in SEEDS:
        files = disk(seed)
        file = files.open("a", create=True)
        files.sync_directory()
        file.append(b"then")
        later = file.later()
        file.append(b" now")
        later.run()
        files.crash()
        assert read_file(files, "a").startswith(b"then")


def test_a_killed_process_loses_nothing_but_its_locks() -> None:
    files = disk()
    files.open("a", create=True).append(b"x")
    files.lock(".lock")
    files.killed()
    assert read_file(files, "a") == b"x"
    files.lock(".lock")


@pytest.mark.parametrize(("trouble", "number"), [("is_full", errno.ENOSPC), ("is_failing", errno.EIO)])
def test_a_disk_in_trouble_says_so_and_keeps_a_part(trouble: str, number: int) -> None:
    files = disk()
    file = files.open("a", create=True)
    setattr(files, trouble, True)
    with pytest.raises(OSError, match="of a simulated disk") as refused:
        file.append(b"0123456789")
    assert refused.value.errno == number and file.size < 10 and files.refused == 1


@pytest.mark.parametrize("how", DAMAGES)
def test_what_was_durable_is_damaged_and_brought_back(how: str) -> None:
    for seed in SEEDS:
        files = disk(seed)
        for name in "ab":
            file = files.open(name, create=True)
            file.append(name.encode() * 300)
            file.sync()
            file.append(b"not synced")
        files.sync_directory()
        before = {name: read_file(files, name) for name in "ab"}
        named = files.damage(how)
        changed = [name for name in "ab" if read_file(files, name) != before[name]]
        assert changed and sorted(named) == changed == sorted(files.damaged)
        assert len(changed) == 1 + (how == "a misdirected write")
        if seed % 2:
            files.crash()  # it stays damaged, and is brought back all the same
        files.restore()
        assert all(read_file(files, name)[:300] == before[name][:300] for name in "ab") and not files.damaged


def test_what_a_broker_has_cut_off_is_not_brought_back() -> None:
    files = disk()
    file = files.open("a", create=True)
    file.append(b"abc")
    file.sync()
    files.damage("a lost write")
    file.truncate(0)
    file.append(b"other")
    files.restore()
    assert read_file(files, "a") == b"other"
