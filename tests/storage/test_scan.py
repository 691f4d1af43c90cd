"""Walking through a file: wherever a read ends, the next batch is found."""

from __future__ import annotations

import pytest

from coterie.protocol.batch import HEADER_SIZE, CorruptBatchError
from coterie.protocol.records import BatchRecord, EndMarker, build_batch
from coterie.storage import MemoryFiles
from coterie.storage.files import File
from coterie.storage.segment_files import CHUNK, headers, whole_batches
from logs import batch, build_marker


def file_of(*parts: bytes | bytearray) -> File:
    file = MemoryFiles().open("f", create=True)
    for part in parts:
        file.append(part)
    return file


@pytest.mark.parametrize("chunk", range(HEADER_SIZE, 3 * HEADER_SIZE))
def test_small_reads_find_the_same_headers(chunk: int) -> None:
    parts = [batch(bytes(size)) for size in (0, 5, 100, 1, 40)]
    file = file_of(*parts)
    found = [header.size for _, header in headers(file, 0, file.size, chunk)]
    assert found == [len(part) for part in parts]


@pytest.mark.parametrize("into_header", range(-1, HEADER_SIZE + 2))
def test_a_read_that_ends_within_a_header_does_not_end_the_walk(into_header: int) -> None:
    def sized(size: int) -> bytearray:
        overhead = len(batch(bytes(CHUNK // 2))) - CHUNK // 2
        return batch(bytes(size - overhead))

    parts = [sized(CHUNK - into_header), batch(b"second"), batch(b"third")]
    assert len(parts[0]) == CHUNK - into_header
    for verify in (True, False):
        file = file_of(*parts)
        assert len(list(whole_batches(file, 0, file.size, verify=verify))) == 3


def test_a_batch_larger_than_a_read_is_checked_whole() -> None:
    large = batch(bytes(2 * CHUNK))
    file = file_of(large, batch(b"x"))
    assert len(list(whole_batches(file, 0, file.size, verify=True))) == 2
    large[CHUNK + 100] ^= 1
    file = file_of(large, batch(b"x"))
    with pytest.raises(CorruptBatchError):
        list(whole_batches(file, 0, file.size, verify=True))
    assert len(list(whole_batches(file, 0, file.size, verify=False))) == 2


def test_markers_are_read_and_odd_ones_do_no_harm() -> None:
    odd = build_batch([BatchRecord(b"?", b"", 1)], is_control=True, producer_id=1, producer_epoch=0)
    marker = build_marker(EndMarker(committed=False, coordinator_epoch=2), producer_id=1, producer_epoch=0, timestamp=1)
    file = file_of(odd, marker, batch(b"x"))
    for verify in (True, False):
        found = [each.marker for each in whole_batches(file, 0, file.size, verify=verify)]
        assert found == [None, EndMarker(committed=False, coordinator_epoch=2), None]
