"""Our files and Apache Kafka's are the same files: each reads what the other wrote.

`data/` was recorded from Apache Kafka 4.3.1 by `record_segments.py`; what a record holds follows from its number, see
`ProduceBatches.java`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from apache_kafka import java_command, needs_apache_kafka
from coterie.protocol.batch import Compression, assign, batches
from coterie.protocol.messages import CommittedOffset, GroupRecord, OffsetRecord, StoredGroup
from coterie.protocol.offsets_topic import write_record
from coterie.protocol.records import BatchRecord, EndMarker, build_batch, marker_of, records
from coterie.storage import DiskFiles, LogConfig, Origin, PartitionLog
from coterie.storage.files import read_file
from coterie.structs import replace
from logs import build_marker, compact

DATA = Path(__file__).parent / "data"
THEN = 1_700_000_000_000
CONFIG = LogConfig(index_interval_bytes=1000, producer_id_expiration_ms=10**15)


def expected(number: int) -> BatchRecord:
    key = None if number % 5 == 0 else b"key-%d" % number
    return BatchRecord(key, b"value-%d-" % number * 50, THEN + number, [("number", b"%d" % number)], number)


def copied(topic: str, tmp_path: Path) -> DiskFiles:
    shutil.copytree(DATA / f"{topic}-0", tmp_path / f"{topic}-0")
    return DiskFiles(tmp_path)


# --- what Kafka wrote, read by us


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("compression", Compression)
def test_kafkas_segments_are_read(tmp_path: Path, compression: Compression, clean: bool) -> None:
    topic = compression.name.lower()
    log = PartitionLog.open(copied(topic, tmp_path), f"{topic}-0", CONFIG, THEN, clean=clean)
    assert not log.recovery.cuts and not log.recovery.indexes_rebuilt
    data = log.read(0, 1_000_000, log.log_end_offset)
    found = list(batches(data))
    assert {header.compression for _, header in found} == {compression} and len(found) == 10
    content = [record for at, header in found for record in records(data, header, at)]
    assert [record._replace(headers=list(record.headers)) for record in content] == [expected(n) for n in range(40)]
    for number in range(40):
        by_time = log.offset_for_timestamp(THEN + number, 40)
        assert by_time is not None and by_time.offset == number
    assert log.leader_epoch == 0


@pytest.mark.parametrize("compression", Compression)
def test_the_indexes_we_build_are_kafkas_to_the_byte(tmp_path: Path, compression: Compression) -> None:
    topic = compression.name.lower()
    files = copied(topic, tmp_path)
    for name in files.names(f"{topic}-0"):
        if name.endswith("index"):
            files.delete(f"{topic}-0/{name}")
    log = PartitionLog.open(files, f"{topic}-0", CONFIG, THEN)
    log.close()
    for suffix in (".index", ".timeindex"):
        name = f"{topic}-0/{0:020d}{suffix}"
        assert read_file(files, name) == (DATA / name).read_bytes()


@pytest.mark.parametrize("clean", [True, False])
def test_the_producer_of_kafkas_snapshot_is_known(tmp_path: Path, clean: bool) -> None:
    """After a clean stop from the snapshot, which has the last batch; after a crash from the log, which has five."""
    log = PartitionLog.open(copied("none", tmp_path), "none-0", CONFIG, THEN, clean=clean)
    data = bytearray(log.read(0, 1_000_000, log.log_end_offset))
    sent = [data[at : at + header.size] for at, header in batches(data)]
    for back in (1,) if clean else range(1, 6):
        again = sent[-back]
        assign(again, 0, 0, -1)
        appended = log.append(again, THEN)
        assert (appended.base_offset, appended.is_duplicate) == (40 - 4 * back, True)


@pytest.mark.parametrize("clean", [True, False])
def test_kafkas_transactions_are_read(tmp_path: Path, clean: bool) -> None:
    log = PartitionLog.open(copied("transactions", tmp_path), "transactions-0", CONFIG, THEN, clean=clean)
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset == 8 and log.segment_count == 2
    markers: list[EndMarker | None] = []
    for offset in range(8):
        data = log.read(offset, 1, 8)
        ((_, header),) = batches(data)
        assert header.is_transactional and header.is_control == (offset % 2 == 1)
        if header.is_control:
            markers.append(marker_of(data, header))
        else:
            (record,) = records(data, header)
            assert record.value == expected(offset // 2).value
    assert [marker and marker.committed for marker in markers] == [True, False, True, False]


# --- what we wrote, read by Kafka


def dumped(*paths: Path, options: Sequence[str] = ("--print-data-log",)) -> tuple[str, str]:
    """What the tool prints, and what it complains about.

    Of every segment that does not begin at 0 it says that -1 is followed by its first offset, Kafka's own included.
    """
    files = ["--files", ",".join(map(str, paths)), "--deep-iteration", *options]
    tool = java_command("org.apache.kafka.tools.DumpLogSegments", *files)
    done = subprocess.run(tool, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout, re.sub(r"Non-consecutive offsets in .*\n  -1 is followed by \d+\n", "", done.stderr)


@needs_apache_kafka
def test_kafkas_tool_reads_our_segments_indexes_and_snapshots(tmp_path: Path) -> None:
    """`DumpLogSegments` checks every index row against the log, decompresses, and prints every record."""
    files = DiskFiles(tmp_path)
    log = PartitionLog.open(files, "t-0", LogConfig(index_interval_bytes=300, segment_bytes=4_000), THEN)
    log.lead(3)()
    sequence = 0
    for rebalance_number in range(4):
        for compression in Compression:
            content = [expected(rebalance_number), BatchRecord(b"k", None, THEN + 50 + sequence)]
            sent = build_batch(
                content, compression=compression, producer_id=77, producer_epoch=2, base_sequence=sequence
            )
            log.append(sent, THEN)
            sequence += 2
    pending = build_batch([expected(9)], producer_id=78, producer_epoch=1, is_transactional=True)
    log.append(pending, THEN, Origin.COORDINATOR)
    marker = EndMarker(committed=False, coordinator_epoch=6)
    log.append(build_marker(marker, producer_id=78, producer_epoch=1, timestamp=THEN), THEN, Origin.COORDINATOR)
    end, segments = log.log_end_offset, log.segment_count
    log.close()
    assert segments > 1

    names = [name for name in files.names("t-0") if name.endswith((".log", "index", ".snapshot"))]
    output, complaints = dumped(*(tmp_path / "t-0" / name for name in names))
    assert complaints == "" and output.count("isvalid: true") == 22 and "isvalid: false" not in output
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)] == list(range(end))
    assert output.count("partitionLeaderEpoch: 3") == 22
    assert {name: output.count(f"compresscodec: {name}") for name in ("none", "gzip", "snappy", "lz4", "zstd")} == {
        "none": 6,
        "gzip": 4,
        "snappy": 4,
        "lz4": 4,
        "zstd": 4,
    }
    assert output.count("payload: value-2-value-2-") == 5 and output.count("headerKeys: [number]") == 21
    assert output.count("endTxnMarker: ABORT coordinatorEpoch: 6") == 1
    assert re.search(r"^offset: \d+ position: \d+$", output, re.MULTILINE), "no row of an offset index was printed"
    assert re.search(r"^timestamp: \d+ offset: \d+$", output, re.MULTILINE), "no row of a time index was printed"
    assert "producerId: 77 producerEpoch: 2" in output and f"lastSequence: {sequence - 1}" in output


def without_gaps(complaints: str) -> str:
    """Of what compaction took away the tool says that offsets are not consecutive, Kafka's own included."""
    return re.sub(r"(Non-consecutive offsets in .*\n)?(  \d+ is followed by \d+\n)+", "", complaints)


@needs_apache_kafka
def test_kafkas_tool_reads_a_compacted_topic(tmp_path: Path) -> None:
    """Batches with gaps, empty ones, and tombstones with their delete horizon, in every compression."""
    files = DiskFiles(tmp_path)
    config = LogConfig(index_interval_bytes=300, segment_bytes=4_000, compacts=True)
    log = PartitionLog.open(files, "t-0", config, THEN)
    for number in range(100):
        content = [BatchRecord(b"key-%d" % (number * 3 % 7), b"value-%d" % number * 20, THEN + number)]
        if number % 10 == 0:
            content.append(BatchRecord(b"gone-%d" % number, None, THEN + number))
        sent = build_batch(
            content,
            compression=Compression(number % 5),
            producer_id=number // 50,
            producer_epoch=0,
            base_sequence=log.log_end_offset if number < 50 else log.log_end_offset - 55,
        )
        log.append(sent, THEN)
    log.flush()
    before = log.size
    log.config = replace(config, segment_bytes=10_000)
    assert compact(files, log, THEN + 1_000) is not None
    assert log.size < before / 2
    end = log.log_end_offset
    log.close()
    names = [name for name in files.names("t-0") if name.endswith((".log", "index"))]
    output, complaints = dumped(*(tmp_path / "t-0" / name for name in names))
    assert without_gaps(complaints) == "" and "isvalid: false" not in output
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
    assert sorted(offsets) == offsets and offsets[-1] == end - 1
    payloads = re.findall(r"^\| offset: .* key: (key-\d) payload: value-(\d+)", output, re.MULTILINE)
    assert dict(payloads) == {f"key-{number * 3 % 7}": str(number) for number in range(93, 100)}
    horizon = f"deleteHorizonMs: OptionalLong[{THEN + 1_000 + config.delete_retention_ms}]"
    assert output.count(horizon) == 9 < len(set(re.findall(r"gone-\d+", output)))
    assert re.search(r"count: 0 baseSequence: \d+ lastSequence: 54 producerId: 0 ", output), "its last batch, empty"


@needs_apache_kafka
def test_kafkas_tool_decodes_a_compacted_log_of_groups(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    config = LogConfig(index_interval_bytes=300, compacts=True, roll_dirty_bytes=1_000)
    log = PartitionLog.open(files, "__consumer_offsets-0", config, THEN)
    for number in range(100):
        value = CommittedOffset(number, commit_timestamp_ms=THEN)
        written: list[OffsetRecord | GroupRecord] = [
            OffsetRecord("g", "t", number % 4, value),
            GroupRecord("g", StoredGroup("consumer", number)),
            OffsetRecord(f"gone-{number % 3}", "t", 0, None),
        ]
        content = [BatchRecord(*write_record(record), THEN) for record in written]
        log.append(build_batch(content), THEN, Origin.COORDINATOR)
    assert log.compactable(0, THEN) is None and log.segment_count == 2
    log.flush()
    before = log.size
    assert compact(files, log, THEN) == 300 and log.size < before / 10
    log.close()
    names = [name for name in files.names("__consumer_offsets-0") if name.endswith((".log", "index"))]
    paths = [tmp_path / "__consumer_offsets-0" / name for name in names]
    output, complaints = dumped(*paths, options=["--offsets-decoder"])
    assert without_gaps(complaints) == "" and "isvalid: false" not in output
    assert [int(offset) for offset in re.findall(r'"offset":(\d+)', output)] == [96, 97, 98, 99]
    assert re.findall(r'"generation":(\d+)', output) == ["99"]
    assert output.count("payload: <DELETE>") == 3


@needs_apache_kafka
def test_kafkas_tool_complains_about_an_index_that_is_wrong(tmp_path: Path) -> None:
    """So that its silence above means something."""
    files = DiskFiles(tmp_path)
    log = PartitionLog.open(files, "t-0", LogConfig(index_interval_bytes=300), THEN)
    for number in range(20):
        log.append(build_batch([expected(number)]), THEN)
    log.close()
    path = tmp_path / "t-0" / f"{0:020d}.index"
    rows = bytearray(path.read_bytes())
    rows[3] += 1
    path.write_bytes(rows)
    _, complaints = dumped(path)
    assert "Mismatches" in complaints
