"""`BufferedFile`: a file that is read as any other, and written in large pieces."""

from __future__ import annotations

from contextlib import suppress
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.storage import files as storage_files
from coterie.storage.files import BufferedFile, read_file
from logs import FaultyFiles

MOST = 10


def test_what_is_appended_is_read_before_it_is_written() -> None:
    disk = FaultyFiles()
    with patch.object(storage_files, "MOST_UNWRITTEN", MOST):
        file = BufferedFile(disk.open("a", create=True))
        file.append(b"123")
        file.append(b"456")
        assert (file.size, disk.size("a"), file.pread(9, 1)) == (6, 0, b"23456")
        file.append(b"7890a")
        assert (file.size, read_file(disk, "a")) == (11, b"1234567890a"), "more than it may keep"
        file.append(b"b")
        assert (file.pread(4, 9), file.pread(1, 12)) == (b"0ab", b"")
        file.later()
        assert read_file(disk, "a") == b"1234567890ab"


def test_closing_it_loses_what_is_not_written() -> None:
    disk = FaultyFiles()
    file = BufferedFile(disk.open("a", create=True))
    file.append(b"written")
    file.write_out()
    file.append(b"lost")
    file.close()
    assert read_file(disk, "a") == b"written"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 2 * MOST)),
        st.tuples(st.just("truncate"), st.integers(0, 5 * MOST)),
        st.tuples(st.just("room"), st.integers(0, 3 * MOST)),
        st.tuples(st.sampled_from(["write_out", "sync", "later", "free"]), st.just(0)),
    ),
    max_size=30,
)


@given(steps=STEPS)
def test_it_has_what_was_accepted_also_if_writes_fail(steps: list[tuple[str, int]]) -> None:
    """A write that fails leaves a part behind. It is no part of the file, and what is in memory is written again."""
    disk, accepted, count = FaultyFiles(), b"", 0
    with patch.object(storage_files, "MOST_UNWRITTEN", MOST):
        file = BufferedFile(disk.open("a", create=True))
        for what, number in steps:
            if what in {"room", "free"}:
                disk.room = number if what == "room" else None
            elif what == "append":
                data = bytes((count + each) % 251 for each in range(number))
                count += number
                with suppress(OSError):
                    file.append(data)
                    accepted += data
            elif what == "truncate":
                with suppress(OSError):
                    file.truncate(number)
                    accepted = accepted[:number].ljust(number, b"\0")
            else:
                with suppress(OSError):
                    getattr(file, what)()
                    assert read_file(disk, "a") == accepted
            assert (file.size, file.pread(len(accepted) + 9, 0)) == (len(accepted), accepted)
        disk.room = None
        file.sync()
        assert read_file(disk, "a") == accepted


def test_a_failed_write_is_cut_off_before_the_next() -> None:
    disk = FaultyFiles()
    file = BufferedFile(disk.open("a", create=True))
    file.append(b"abcdef")
    disk.room = 2
    with pytest.raises(OSError, match="no space"):
        file.write_out()
    assert read_file(disk, "a") == b"ab"
    disk.room = None
    file.append(b"g")
    file.write_out()
    assert read_file(disk, "a") == b"abcdefg"
