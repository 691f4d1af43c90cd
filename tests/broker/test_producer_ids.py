"""Producer ids: none is given out twice, whatever happens to the file."""

from __future__ import annotations

import pytest

from coterie.broker.maintenance.producer_ids import BLOCK, ProducerIds
from coterie.storage import MemoryFiles
from coterie.storage.files import read_file, replace_file
from coterie.storage.log_errors import DamagedFileError
from coterie.storage.metadata_files import PRODUCER_IDS


def taken(files: MemoryFiles, highest_seen: int = -1) -> int:
    ids = ProducerIds(files, highest_seen)
    change = ids.another_block()
    change.run()
    change.done()
    found = ids.next()
    assert found is not None
    return found


def test_a_new_owner_begins_another_block() -> None:
    files = MemoryFiles()
    assert [taken(files), taken(files)] == [0, BLOCK]


def test_without_the_file_they_go_on_behind_the_highest_in_the_logs() -> None:
    assert taken(MemoryFiles(), highest_seen=4_711) == 4_712
    assert taken(MemoryFiles(), highest_seen=2**63 - 1) == 0, "some client's own id, behind which there are no more"


def test_an_old_copy_of_the_file_repeats_none_that_the_logs_have() -> None:
    files = MemoryFiles()
    taken(files)
    assert taken(files, highest_seen=5 * BLOCK) == 5 * BLOCK + 1


def test_a_wrong_character_is_noticed() -> None:
    files = MemoryFiles()
    taken(files)
    replace_file(files, PRODUCER_IDS.path, read_file(files, PRODUCER_IDS.path).replace(b"1000", b"1001"))
    with pytest.raises(DamagedFileError, match=r"coterie-producer-ids\.properties has a wrong checksum"):
        ProducerIds(files)


def test_a_file_of_an_earlier_release_is_read_and_gets_its_checksum() -> None:
    files = MemoryFiles()
    replace_file(files, PRODUCER_IDS.path, b"next=3000\n")
    assert taken(files) == 3_000
    assert PRODUCER_IDS.read(files).version == 2
