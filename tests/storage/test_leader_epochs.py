"""Leader epochs of a log: which record was written in which, and what is kept of them."""

from __future__ import annotations

from coterie.protocol.batch import batches
from coterie.storage import Files, PartitionLog
from logs import SMALL, batch, cut

NOW = 1_000


def opened(files: Files, path: str = "t-0", *, clean: bool = False) -> PartitionLog:
    return PartitionLog.open(files, path, SMALL, NOW, clean=clean)


def fill(log: PartitionLog, count: int) -> None:
    for number in range(count):
        log.append(batch(b"%d" % number), NOW)


def test_every_record_has_the_epoch_it_was_written_in(files: Files) -> None:
    log = opened(files)
    for epoch, count in ((0, 3), (4, 2)):
        log.lead(epoch)()
        fill(log, count)
    assert [log.epoch_at(offset) for offset in range(5)] == [0, 0, 0, 4, 4]
    assert opened(files, "t-1").epoch_at(0) == -1


def test_a_leadership_outlives_the_records_it_began_with(files: Files) -> None:
    """What a disk refused is cut off; who leads is not for the log to decide."""
    log = opened(files)
    log.lead(0)()
    fill(log, 3)
    log.flush()
    log.lead(1)()
    fill(log, 2)
    cut(log, 3, NOW)
    assert log.leader_epoch == 1
    fill(log, 1)
    assert [header.leader_epoch for _, header in batches(log.read(3, 1 << 20, 4))] == [1]
    assert log.end_of_epoch(0) == (0, 3)


def test_a_file_of_epochs_that_says_what_is_known_is_not_written_again(files: Files) -> None:
    """An opening of many empty logs would write a file for each."""
    log = opened(files)
    log.lead(0)()
    log.close()
    log = opened(files, clean=True)
    files.delete("t-0/leader-epoch-checkpoint")
    log.lead(0)()
    assert not files.exists("t-0/leader-epoch-checkpoint")
    log.lead(1)()
    assert files.exists("t-0/leader-epoch-checkpoint")
