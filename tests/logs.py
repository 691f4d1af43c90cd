"""What tests of logs share: batches in one line, and a disk that can be full, broken or slow to sync."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from coterie.protocol.batch import batches
from coterie.protocol.buffer import Buffer
from coterie.protocol.records import BatchRecord, EndMarker, build_batch, build_placed_marker, records
from coterie.storage import (
    Compaction,
    File,
    Files,
    LogConfig,
    MemoryFiles,
    PartitionLog,
    Segment,
    Sync,
    offer,
    remove_files,
    swap,
)

__all__ = [
    "SMALL",
    "FaultyFiles",
    "batch",
    "build_marker",
    "compact",
    "cut",
    "offsets_in",
    "read_all",
    "take_in",
    "values_in",
]

NOW = 1_000
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150)
"""Several batches a segment, several rows an index."""


def batch(
    *values: bytes, timestamps: Sequence[int] | None = None, producer: tuple[int, int, int] | None = None
) -> bytearray:
    """A batch of these values, as a client sends it; `producer` is id, epoch and sequence."""
    times = timestamps or [1_000] * len(values)
    content = [BatchRecord(b"k", value, time) for value, time in zip(values, times, strict=True)]
    if producer is None:
        return build_batch(content)
    producer_id, epoch, sequence = producer
    return build_batch(content, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def build_marker(marker: EndMarker, *, producer_id: int, producer_epoch: int, timestamp: int) -> bytearray:
    """The control batch that ends a transaction, to be given its place by the log."""
    return build_placed_marker(marker, (producer_id, producer_epoch), timestamp, 0, -1)[0]


def opened(
    files: Files, config: LogConfig = SMALL, *, log_start_offset: int = 0, recovery_point: int = 0, clean: bool = False
) -> PartitionLog:
    return PartitionLog.open(
        files, "t-0", config, NOW, log_start_offset=log_start_offset, recovery_point=recovery_point, clean=clean
    )


def fill(log: PartitionLog, count: int, size: int = 50) -> None:
    for number in range(count):
        log.append(batch(b"%d" % number + bytes(size)), NOW)


def values_in(data: Buffer) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record, with all checksums checked."""
    return [(record.offset, record.value) for at, header in batches(data) for record in records(data, header, at)]


def offsets_in(data: Buffer) -> list[int]:
    return [offset for offset, _ in values_in(data)]


def read_all(log: PartitionLog, max_bytes: int = 300) -> list[tuple[int, bytes | None]]:
    """Everything from the log's start to its end, in steps, as a consumer reads it."""
    found: list[tuple[int, bytes | None]] = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = log.read(at, max_bytes, log.log_end_offset)
        assert data, f"nothing at {at} of {log.log_end_offset}"
        found += [item for item in values_in(data) if item[0] >= at]
        at = [header.next_offset for _, header in batches(data)][-1]  # its records may all be compacted away
    return found


def cut(log: PartitionLog, end: int, now_ms: int) -> None:
    """Cut the log back, and wait for it."""
    log.cut_back(end)
    repairing = log.repair(now_ms)
    repairing.run()
    repairing.done()


class FaultyFiles(MemoryFiles):
    """A disk with `room` bytes left; a write that does not fit is torn where the room ends."""

    def __init__(self) -> None:
        super().__init__()
        self.room: int | None = None
        self.refuses_truncate = False
        self.refuses_sync = False
        self.synced: list[str] = []

    def open(self, path: str, *, create: bool = False) -> File:
        return _FaultyFile(self, path, super().open(path, create=create))

    def sync_directory(self, path: str = "") -> None:
        super().sync_directory(path)
        _FaultySync(self, path + "/").run()


class _FaultySync:
    def __init__(self, disk: FaultyFiles, path: str) -> None:
        self._disk = disk
        self._path = path

    def run(self) -> None:
        if self._disk.refuses_sync:
            raise OSError(errno.EIO, "broken disk")
        self._disk.synced.append(self._path)


class _FaultyFile:
    def __init__(self, disk: FaultyFiles, path: str, file: File) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, data: Buffer) -> None:
        if self._disk.room is not None:
            if len(data) > self._disk.room:
                self._file.append(data[: self._disk.room])
                self._disk.room = 0
                raise OSError(errno.ENOSPC, "no space left")
            self._disk.room -= len(data)
        self._file.append(data)

    def pread(self, size: int, at: int) -> bytes:
        return self._file.pread(size, at)

    def truncate(self, size: int) -> None:
        if self._disk.refuses_truncate:
            raise OSError(errno.EIO, "broken disk")
        self._file.truncate(size)

    def sync(self) -> None:
        self.later().run()

    def later(self) -> Sync:
        return _FaultySync(self._disk, self._path)

    def close(self) -> None:
        self._file.close()


def compact(
    files: Files, log: PartitionLog, now_ms: int, *, compacted_to: int = 0, buffer_bytes: int = 1 << 20
) -> int | None:
    """One rebalance of compaction, whatever its worth, as the broker has it done; where the next one goes on."""
    plan = log.compactable(compacted_to, now_ms)
    if plan is None:
        return None
    work = Compaction(files, log.path, plan, log.config, log.last_records(), buffer_bytes, now_ms)
    for _ in work.read_keys():
        pass
    for group in work.groups:
        for _ in work.compact(group):
            pass
        if work.cleaned is not None:
            take_in(files, log, group, work.cleaned)
    return work.compacted_to


def take_in(files: Files, log: PartitionLog, group: Sequence[Segment], cleaned: Segment) -> None:
    offer(files, log.path, cleaned)
    assert log.has(group)
    log.replace(group, cleaned)
    replaced = swap(files, log.path, group, cleaned)
    cleaned.let_go()
    remove_files(files, replaced)
