"""A compacted segment takes the place of others: whenever the machine dies, the log is as it was or as it should be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.lossy import LossyFiles, PowerCut
from coterie.protocol.batch import batches
from coterie.protocol.records import BatchRecord, build_batch, records
from coterie.storage import Compaction, Files, LogConfig, MemoryFiles, PartitionLog
from coterie.storage.cleanup import finish_swaps, offer, withdraw
from coterie.storage.segment_files import LOG, SWAP, named
from logs import compact

NOW = 1_000
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, compacts=True, min_cleanable_dirty_ratio=0)
GROUPED = LogConfig(segment_bytes=100_000, index_interval_bytes=100, compacts=True, min_cleanable_dirty_ratio=0)
"""With which all segments become one."""


def filled(files: Files, count: int = 30) -> PartitionLog:
    log = PartitionLog.open(files, "t-0", CONFIG, NOW)
    for number in range(count):
        log.append(build_batch([BatchRecord(b"k%d" % (number % 7), b"%d" % number, NOW)]), NOW)
    log.flush()
    return log


def content(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = log.read(at, 200, log.log_end_offset)
        assert data, f"nothing at {at} of {log.log_end_offset}"
        for position, header in batches(data):
            assert header.next_offset > at, "offsets rise"
            found += [(record.offset, record.key, record.value) for record in records(data, header, position)]
            at = header.next_offset
    return found


def last_of_each(log: PartitionLog) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {key: (offset, value) for offset, key, value in content(log)}


def endings(files: Files) -> set[str]:
    return {name.rpartition(".")[2] for name in files.names("t-0")}


def power_cuts() -> Iterator[tuple[int, LossyFiles]]:
    """The disk of a machine that died in the first, the second, ... change of names or of what is durable."""
    for steps in range(200):
        files = LossyFiles()
        log = filled(files)
        log.config = GROUPED
        files.steps_left = steps
        try:
            compact(files, log, NOW)
        except PowerCut:
            yield steps, files
        else:
            return


def test_there_are_enough_moments_to_die_in() -> None:
    assert len(list(power_cuts())) > 30


SHARES = {
    "all is lost": lambda _: 0,
    "all is kept": lambda most: most,
    "half is kept": lambda most: most // 2,
    "the last is kept": lambda most: min(most, 1),
    "the last few are kept": lambda most: most // 2,
}
"""Of what was not synced."""


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("luck", SHARES)
def test_whenever_the_machine_dies_nothing_is_lost(luck: str, clean: bool) -> None:
    """`clean` is harsher: what is found is believed."""
    expected = last_of_each(filled(MemoryFiles()))
    sizes = set()
    for steps, files in power_cuts():
        after = files.crash(SHARES[luck], in_order="last" not in luck)
        log = PartitionLog.open(after, "t-0", CONFIG, NOW, clean=clean)
        assert last_of_each(log) == expected and log.log_end_offset == 30, f"after {steps} steps"
        assert not log.recovery.cuts
        assert endings(after) <= {"log", "index", "timeindex", "snapshot", "leader-epoch-checkpoint"}
        sizes.add(len(content(log)))
        log.append(build_batch([BatchRecord(b"new", b"1", NOW)]), NOW)
        log.config = GROUPED
        log.flush()
        compact(after, log, NOW)
        assert last_of_each(log) == {**expected, b"new": (30, b"1")}
    assert len(sizes) == 2, "some find the old log, some the new one"


@settings(max_examples=60, deadline=None)
@given(steps=st.integers(0, 40), again=st.integers(0, 25), data=st.data())
def test_a_machine_may_die_while_it_recovers(steps: int, again: int, data: st.DataObject) -> None:
    files = LossyFiles()
    log = filled(files)
    expected = last_of_each(log)
    log.config = GROUPED
    files.steps_left = steps
    with suppress(PowerCut):
        compact(files, log, NOW)
    for steps_left in (again, None):
        files = files.crash(lambda most: data.draw(st.integers(0, most)))
        files.steps_left = steps_left
        try:
            log = PartitionLog.open(files, "t-0", CONFIG, NOW)
        except PowerCut:
            continue
        assert last_of_each(log) == expected and log.log_end_offset == 30
        log.release()


def test_a_rename_that_the_disk_refuses_loses_nothing() -> None:
    """The new segment stays open and is read; its files get their names at the next opening, if not before."""
    refused = 0
    for steps in range(60):
        files = LossyFiles()
        log = filled(files)
        expected = last_of_each(log)
        log.config = GROUPED
        refusals = _Refusing(files, steps)
        try:
            compact(files, log, NOW)
        except OSError:
            refused += 1
            refusals.is_well = True
            assert last_of_each(log) == expected
            log.release()
            assert last_of_each(PartitionLog.open(files, "t-0", CONFIG, NOW)) == expected
    assert 10 < refused < 60


class _Refusing:
    """Makes the disk refuse each change of a name after the first few."""

    def __init__(self, files: LossyFiles, allowed: int) -> None:
        self.is_well = False
        rename = files.rename
        left = [allowed]

        def refuse(old: str, new: str) -> None:
            left[0] -= 1
            if left[0] < 0 and not self.is_well:
                raise OSError(5, "no")
            rename(old, new)

        files.rename = refuse  # type: ignore[method-assign]


def test_a_segment_that_is_not_wanted_any_more_leaves_nothing_behind(files: Files) -> None:
    log = filled(files)
    before = files.names("t-0")
    plan = log.compactable(0, NOW)
    assert plan is not None
    work = Compaction(files, log.path, plan, GROUPED, {}, 1 << 20, NOW)
    for _ in work.read_keys():
        pass
    for _ in work.compact(work.groups[0]):
        pass
    assert work.cleaned is not None and "cleaned" in endings(files)
    offer(files, log.path, work.cleaned)
    assert "swap" in endings(files)
    withdraw(files, log.path, work.cleaned)
    assert files.names("t-0") == before


def test_a_swap_that_makes_no_sense_is_not_taken() -> None:
    """It cannot have been written by us; the segments it stands for are there."""
    files = MemoryFiles()
    log = filled(files)
    log.close()
    expected = content(PartitionLog.open(files, "t-0", CONFIG, NOW, clean=True))
    files.open("t-0/" + named(0, LOG + SWAP), create=True).append(b"not a batch" * 10)
    finish_swaps(files, "t-0")
    assert content(PartitionLog.open(files, "t-0", CONFIG, NOW, clean=True)) == expected
