"""Small files of ours: what was written is read, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.storage import Files, MemoryFiles
from coterie.storage.files import read_file, replace_file
from coterie.storage.log_errors import DamagedFileError, LaterFormatError
from coterie.storage.metadata_files import ChecksummedFile

FILE = ChecksummedFile("coterie-topics.json", 2, "which topics there are", "it looks for them")


def test_what_was_written_is_read(files: Files) -> None:
    FILE.write(files, b"{}\n")
    FILE.write(files, b'{"topics": []}\n')
    assert FILE.read(files) == (2, b'{"topics": []}\n')
    assert read_file(files, FILE.path) == b'# coterie-topics.json version 2 crc32c 4f0593a9\n{"topics": []}\n'
    assert files.names() == [FILE.path]


def test_a_file_of_an_earlier_release_is_read(files: Files) -> None:
    replace_file(files, FILE.path, b'{"format": 1}')
    assert FILE.read(files) == (1, b'{"format": 1}')


@given(payload=st.binary(max_size=60), data=st.data())
def test_one_wrong_bit_is_noticed(payload: bytes, data: st.DataObject) -> None:
    whole = FILE.encode(payload)
    at = data.draw(st.integers(1, 8 * len(whole) - 1))
    wrong = bytearray(whole)
    wrong[at // 8] ^= 1 << at % 8
    if wrong[0] == whole[0]:
        with pytest.raises(DamagedFileError):
            FILE.decode(bytes(wrong))
    else:
        assert FILE.decode(bytes(wrong)) == (1, bytes(wrong)), "with a line in front that is no JSON and no property"


@given(payload=st.binary(max_size=60), data=st.data())
def test_a_file_that_was_cut_is_noticed(payload: bytes, data: st.DataObject) -> None:
    whole = FILE.encode(payload)
    with pytest.raises(DamagedFileError):
        FILE.decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_the_message_says_what_is_wrong_what_is_at_stake_and_what_to_do() -> None:
    files = MemoryFiles()
    with pytest.raises(DamagedFileError) as missing:
        FILE.read(files)
    assert str(missing.value) == (
        "coterie-topics.json is missing. It holds which topics there are. Nothing was changed. Bring the file back "
        "from a copy, or run `coterie repair` on the data directory: it looks for them"
    )
    replace_file(files, FILE.path, FILE.encode(b"{}") + b" ")
    with pytest.raises(DamagedFileError, match=r"coterie-topics\.json has a wrong checksum"):
        FILE.read(files)


def test_another_files_content_is_not_taken() -> None:
    other = FILE._replace(path="coterie-leaders.json")
    with pytest.raises(DamagedFileError, match=r"has the content of coterie-leaders\.json"):
        FILE.decode(other.encode(b"{}"))


def test_a_later_format_is_told_as_such() -> None:
    with pytest.raises(LaterFormatError, match="has format 3, this version knows 2: use the one that wrote it"):
        FILE.decode(FILE._replace(version=3).encode(b"{}"))
