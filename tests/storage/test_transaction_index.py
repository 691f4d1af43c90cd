"""The index of aborted transactions: what a reader must skip, through rolls, crashes, compaction and lost files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random  # noqa: TID251  seeded
from uuid import UUID

import pytest

from coterie.protocol.batch import batches
from coterie.protocol.records import BatchRecord, EndMarker, build_batch
from coterie.storage import Files, LogConfig, MemoryFiles, Origin, PartitionLog
from coterie.storage.durable_ends import DirectoryCheckpoint, LogState, SegmentState, read_checkpoint, write_checkpoint
from coterie.storage.files import read_file, replace_file
from coterie.storage.transaction_index import AbortedTransaction, decode_rows, encode_rows
from logs import NOW, build_marker, compact, opened

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=150)
KEPT = LogConfig(segment_bytes=600, index_interval_bytes=150, compacts=True, deletes=False, delete_retention_ms=0)
KAFKAS = Path(__file__).parent / "data" / "transactions-0"
FIRST = "t-0/00000000000000000000"


def write(log: PartitionLog, producer_id: int, *values: bytes, key: bytes = b"k", epoch: int = 0) -> int:
    content = [BatchRecord(key, value, NOW) for value in values]
    data = build_batch(content, producer_id=producer_id, producer_epoch=epoch, is_transactional=True)
    return log.append(data, NOW, Origin.COORDINATOR).base_offset


def end(log: PartitionLog, producer_id: int, *, commit: bool, epoch: int = 0) -> int:
    marker = build_marker(EndMarker(commit), producer_id=producer_id, producer_epoch=epoch, timestamp=NOW)
    return log.append(marker, NOW, Origin.COORDINATOR).base_offset


def aborted(log: PartitionLog, offset: int = 0, up_to: int | None = None) -> list[AbortedTransaction]:
    """What is listed for a read of all from an offset on."""
    until = log.log_end_offset if up_to is None else up_to
    data = b""
    at = offset
    while at < until:
        part = log.read(at, 1 << 20, until)
        if not part:
            break
        data += part
        at = [header.next_offset for _, header in batches(part)][-1]
    return log.aborted_transactions(offset, data)


def filled(files: Files, config: LogConfig = SMALL, seed: int = 1) -> tuple[PartitionLog, list[AbortedTransaction]]:
    """Transactions of five producers in many segments; what must be listed, by a simple rule."""
    rng = Random(seed)
    log = opened(files, config)
    open_since: dict[int, int] = {}
    expected: list[AbortedTransaction] = []
    for number in range(300):
        producer = rng.randrange(5)
        if producer in open_since and rng.random() < 0.3:
            commit = rng.random() < 0.5
            marker = end(log, producer, commit=commit)
            first = open_since.pop(producer)
            if not commit:
                stable = min(open_since.values(), default=marker + 1)
                expected.append(AbortedTransaction(producer, first, marker, stable))
        else:
            offset = write(log, producer, b"%d" % number, key=b"%d" % (number % 7))
            open_since.setdefault(producer, offset)
    assert log.segment_count > 5 and len(expected) > 20
    return log, expected


def test_the_rows_are_those_of_kafka() -> None:
    """TL10: 34 bytes each."""
    row = AbortedTransaction(7, 3, 9, 4)
    data = encode_rows([row])
    assert data == bytes.fromhex("0000 0000000000000007 0000000000000003 0000000000000009 0000000000000004")
    assert decode_rows(data, 0, 10) == [row]


@pytest.mark.parametrize("how", ["as it is", "closed", "crashed", "crashed, nothing synced"])
def test_aborted_transactions_are_listed(how: str) -> None:
    """TL5, TL10: in the order of their markers, whatever has happened to the log meanwhile."""
    files = MemoryFiles()
    log, expected = filled(files)
    if how == "closed":
        log.close()
        log = opened(files, SMALL, clean=True)
    elif how != "as it is":
        if how == "crashed":
            log.flush()
        point = log.synced_end
        log.release()
        log = opened(files, SMALL, recovery_point=point)
    assert aborted(log) == expected
    for offset in range(0, log.log_end_offset, 7):
        assert [row for row in expected if row.last_offset >= offset] == aborted(log, offset)
    for until in range(10, log.log_end_offset, 31):
        data = log.read(0, 1 << 20, until)
        ended = [header.next_offset for _, header in batches(data)][-1]
        found = log.aborted_transactions(0, data)
        needed = [row for row in expected if row.first_offset < ended]
        assert found == needed[: len(found)]
        assert all(row.first_offset >= ended or row in found for row in expected if row.last_offset < until)


def damage(name: str) -> Callable[[Files, str], None]:
    def lost(files: Files, path: str) -> None:
        files.delete(path)

    def torn(files: Files, path: str) -> None:
        replace_file(files, path, read_file(files, path)[:-5])

    def wrong(files: Files, path: str) -> None:
        replace_file(files, path, b"\xff" * 34)

    def disordered(files: Files, path: str) -> None:
        data = read_file(files, path)
        replace_file(files, path, data + data)

    return {"lost": lost, "torn": torn, "wrong": wrong, "disordered": disordered}[name]


@pytest.mark.parametrize("how", ["lost", "torn", "wrong", "disordered"])
def test_an_index_that_is_not_right_is_built_again(how: str) -> None:
    """TL10: that one is lost is known by the checkpoint, which has its size."""
    files = MemoryFiles()
    log, expected = filled(files)
    log.close()
    known = log.state(LogState())
    path = next(f"t-0/{name}" for name in sorted(files.names("t-0")) if name.endswith(".txnindex"))
    good = read_file(files, path)
    damage(how)(files, path)
    log = PartitionLog.open(files, "t-0", SMALL, NOW, clean=True, known=known)
    assert path in log.recovery.indexes_rebuilt
    assert read_file(files, path) == good
    assert aborted(log) == expected


def test_the_checkpoint_has_the_size_of_an_index_only_if_there_is_one() -> None:
    files = MemoryFiles()
    segments = (SegmentState(0, 10, 8, 12), SegmentState(5, 10, 8, 12, 34))
    checkpoint = DirectoryCheckpoint(3, {(UUID(int=1), 0): LogState(0, 9, segments=segments)})
    write_checkpoint(files, checkpoint)
    assert b"[0, 10, 8, 12], [5, 10, 8, 12, 34]" in read_file(files, "coterie-checkpoint.json")
    assert read_checkpoint(files) == checkpoint


def test_a_segment_takes_its_index_with_it() -> None:
    files = MemoryFiles()
    log, expected = filled(files)
    log.close()
    log = opened(files, SMALL, clean=True)
    log.delete_records(log.log_end_offset - 10, log.log_end_offset)
    gone = log.retain(NOW, log.log_end_offset)
    for segment in gone:
        for path in segment.paths:
            files.delete(path)
    assert not [
        name for name in files.names("t-0") if name.endswith(".txnindex") and int(name[:20]) < gone[-1].next_offset
    ]
    assert aborted(log, log.log_start_offset) == [row for row in expected if row.last_offset >= log.log_start_offset]


def test_compaction_keeps_a_row_as_long_as_its_marker() -> None:
    """A reader that was told of an aborted transaction waits for its marker."""
    files = MemoryFiles()
    log, _ = filled(files, KEPT)
    for producer in range(5):
        end(log, producer, commit=True)
    for number in range(60):
        write(log, 9, b"%d" % number, key=b"%d" % (number % 7))
        end(log, 9, commit=True)
    log.flush()
    for later in range(3):
        compact(files, log, NOW + later)
        markers = {
            header.last_offset
            for segment in log.segments
            for _, header in batches(read_file(files, segment.path(".log")))
            if header.is_control and header.record_count
        }
        rows = [row for segment in log.segments for row in segment.aborted_from(0)]
        assert {row.last_offset for row in rows} <= markers
        known = log.state(LogState(compacted=1))
        log.close()
        log = PartitionLog.open(files, "t-0", KEPT, NOW, clean=True, known=known._replace(compacted=log.log_end_offset))
        assert [row for segment in log.segments for row in segment.aborted_from(0)] == rows


def test_kafkas_index_is_read_and_built_as_kafka_did() -> None:
    """TL10."""
    files = MemoryFiles()
    files.mkdir("t-0")
    for path in KAFKAS.iterdir():
        replace_file(files, f"t-0/{path.name}", path.read_bytes())
    theirs = {name: read_file(files, f"t-0/{name}") for name in files.names("t-0") if name.endswith(".txnindex")}
    log = opened(files)
    rows = aborted(log)
    written = {name: data for name, data in theirs.items() if data}
    assert rows == [row for data in written.values() for row in decode_rows(data, 0, log.log_end_offset)]
    log.close()
    for name, data in written.items():
        assert read_file(files, f"t-0/{name}") == data
