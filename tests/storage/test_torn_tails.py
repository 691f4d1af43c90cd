"""What a failed write leaves behind, when it could not be taken away at once."""

from __future__ import annotations

from uuid import UUID

import pytest

from coterie.storage import DataDirectory, LogWriteError, PartitionLog, StoredTopic
from logs import SMALL, FaultyFiles, batch, read_all

NOW = 1_000
TOPIC = StoredTopic("orders", UUID(int=7), 1)


def torn() -> tuple[FaultyFiles, PartitionLog]:
    """A log with two batches and half of a third, on a disk that is well again."""
    disk = FaultyFiles()
    log = PartitionLog.open(disk, "t-0", SMALL, NOW)
    log.append(batch(b"a"), NOW)
    log.append(batch(b"b"), NOW)
    disk.room, disk.refuses_truncate = 21, True
    with pytest.raises(LogWriteError):
        log.append(batch(b"refused"), NOW)
    disk.room, disk.refuses_truncate = None, False
    assert disk.size("t-0/00000000000000000000.log") % (2 * len(batch(b"a"))) == 21
    return disk, log


def reopened(disk: FaultyFiles, *, clean: bool) -> list[tuple[int, bytes | None]]:
    return read_all(PartitionLog.open(disk, "t-0", SMALL, NOW, clean=clean))


def test_it_is_cut_before_the_next_segment_begins() -> None:
    """A sealed segment is read to the end of its file; with half a batch there the log could not be opened any more."""
    disk, log = torn()
    large = bytes(SMALL.segment_bytes - 200)
    log.append(batch(large), NOW)
    assert log.segment_count == 2
    log.close()
    assert reopened(disk, clean=True) == [(0, b"a"), (1, b"b"), (2, large)]


def test_it_is_cut_before_the_log_is_closed() -> None:
    """Else the next owner, told that all is clean, would find it."""
    disk, log = torn()
    log.close()
    assert reopened(disk, clean=True) == [(0, b"a"), (1, b"b")]


def test_a_log_it_cannot_be_cut_from_is_not_closed_clean() -> None:
    disk, log = torn()
    disk.refuses_truncate = True
    with pytest.raises(LogWriteError):
        log.close()
    disk.refuses_truncate = False
    assert reopened(disk, clean=False) == [(0, b"a"), (1, b"b")]


def test_a_topic_is_made_however_often_it_failed_before() -> None:
    """What cannot be removed is set aside, and so is what cannot be removed the next time."""

    class Sticky(FaultyFiles):
        def delete(self, path: str) -> None:
            if path.startswith("orders-0/") and not path.endswith(".tmp"):
                raise OSError(5, f"{path} does not go away")
            super().delete(path)

    disk = Sticky()
    directory = DataDirectory.open(disk, NOW, cluster_id="cluster")
    for _ in range(3):
        change = directory.create_topic(TOPIC, NOW)
        disk.room = 0
        with pytest.raises(LogWriteError):
            change.run()
        disk.room = None
    change = directory.create_topic(TOPIC, NOW)
    change.run()
    change.done()
    assert directory.logs["orders", 0].append(batch(b"a"), NOW).base_offset == 0
    assert len([name for name in disk.names() if name.endswith("-stray")]) == 3
