"""Which logs are worth compacting, and how far: Kafka's LogCleanerManager, and our own reason to roll."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.protocol.records import BatchRecord, build_batch
from coterie.storage import LogConfig, MemoryFiles, Origin, PartitionLog
from coterie.storage.cleanup import compactable, first_dirty_offset, grouped, is_worth_rolling
from coterie.storage.segment import Segment
from coterie.structs import replace
from logs import batch

NOW = 1_000_000
DAY = 24 * 60 * 60 * 1000
CONFIG = LogConfig(segment_bytes=300, compacts=True)


def filled(count: int = 12, config: LogConfig = CONFIG, times: Any = None, **options: Any) -> PartitionLog:
    """Four batches of 71 bytes a segment."""
    log = PartitionLog.open(MemoryFiles(), "t-0", config, NOW)
    for number in range(count):
        stamp = NOW if times is None else times[number]
        log.append(batch(b"v", timestamps=[stamp]), NOW, **options)
    log.flush()
    return log


def test_the_segment_that_is_written_to_is_never_compacted() -> None:
    log = filled()
    assert log.segment_count == 3
    plan = log.compactable(0, NOW)
    assert plan is not None
    assert [segment.base_offset for segment in plan.segments] == [0, 4] and (plan.first_dirty, plan.bound) == (0, 8)
    assert filled(4).compactable(0, NOW) is None


def test_what_is_not_durable_is_not_compacted() -> None:
    log = filled(8)
    log.append(batch(b"v"), NOW)  # rolls: the second segment is full, and not sealed
    assert log.segment_count == 3
    plan = log.compactable(0, NOW)
    assert plan is not None and plan.bound == 4
    log.flush()
    plan = log.compactable(0, NOW)
    assert plan is not None and plan.bound == 8


def test_what_a_transaction_may_still_undo_is_not_compacted() -> None:
    log = filled(6)
    pending = build_batch([BatchRecord(b"k", b"v", NOW)], producer_id=7, producer_epoch=0, is_transactional=True)
    log.append(pending, NOW, Origin.COORDINATOR)
    for _ in range(10):
        log.append(batch(b"v"), NOW)
    log.flush()
    plan = log.compactable(0, NOW)
    assert plan is not None and plan.bound == 4


@pytest.mark.parametrize(("compacted_to", "ratio", "is_worth_it"), [(0, 1.0, True), (4, 0.5, False)])
def test_a_log_is_worth_it_when_more_than_the_ratio_is_dirty(
    compacted_to: int, ratio: float, is_worth_it: bool
) -> None:
    plan = filled().compactable(compacted_to, NOW)
    assert plan is not None
    assert (plan.dirty_ratio, plan.is_worth_it) == (ratio, is_worth_it)


def test_what_is_compacted_already_is_nothing_to_do() -> None:
    assert filled().compactable(8, NOW) is None


def test_what_is_too_young_waits() -> None:
    """min.compaction.lag.ms, by the latest record of a segment; what was compacted before may be again."""
    times = [NOW - 5_000] * 4 + [NOW - 50] * 8
    lagging = replace(CONFIG, min_compaction_lag_ms=100)
    plan = filled(12, lagging, times).compactable(0, NOW)
    assert plan is not None and plan.bound == 4
    plan = filled(16, lagging, [NOW - 50] * 4 + [NOW - 5_000] * 12).compactable(4, NOW)
    assert plan is not None and plan.bound == 12
    assert filled(12, lagging, [NOW - 50] * 12).compactable(0, NOW) is None


def test_what_has_waited_too_long_is_worth_it_whatever_the_ratio() -> None:
    """max.compaction.lag.ms, by the first record of a segment that was not compacted."""
    old = replace(CONFIG, max_compaction_lag_ms=DAY, segment_ms=30 * DAY)
    log = filled(12, old, [0] * 4 + [NOW] * 8)
    for now_ms, is_worth_it in ((NOW + DAY, False), (NOW + DAY + 1, True)):
        plan = log.compactable(4, now_ms)
        assert plan is not None and plan.is_worth_it is is_worth_it
    log.release()


def test_the_first_timestamp_is_read_from_a_log_that_was_opened_anew() -> None:
    config = replace(CONFIG, max_compaction_lag_ms=DAY)
    files = MemoryFiles()
    log = PartitionLog.open(files, "t-0", config, NOW)
    for _ in range(12):
        log.append(batch(b"v", timestamps=[NOW]), NOW)
    log.close()
    plan = PartitionLog.open(files, "t-0", config, NOW, clean=True).compactable(4, NOW + DAY + 1)
    assert plan is not None and plan.is_worth_it


def test_a_segment_is_rolled_before_it_is_too_old_to_stay_uncompacted() -> None:
    """Kafka's maxSegmentMs: the lag, if it is shorter than segment.ms, and if the topic is compacted."""
    for compacts, segments in ((True, 2), (False, 1)):
        config = LogConfig(compacts=compacts, max_compaction_lag_ms=100)
        assert filled(2, config, [NOW, NOW + 101]).segment_count == segments


def test_a_topic_that_is_not_compacted_and_a_log_out_of_order_are_left_alone() -> None:
    assert filled(12, replace(CONFIG, compacts=False)).compactable(0, NOW) is None
    log = filled()
    log.cut_back(10)
    assert log.compactable(0, NOW) is None


@pytest.mark.parametrize(
    ("compacted_to", "log_start_offset", "log_end_offset", "first_dirty"),
    [(5, 0, 10, 5), (5, 7, 10, 7), (12, 2, 10, 2), (10, 0, 10, 10), (0, 0, 0, 0)],
)
def test_a_checkpoint_that_cannot_be_true_is_not_believed(
    compacted_to: int, log_start_offset: int, log_end_offset: int, first_dirty: int
) -> None:
    assert first_dirty_offset(compacted_to, log_start_offset, log_end_offset) == first_dirty


# --- our own reason to roll


def test_a_segment_worth_compacting_is_rolled_where_we_want_that() -> None:
    eager = LogConfig(compacts=True, roll_dirty_bytes=500)
    log = filled(6, eager)
    assert log.compactable(0, NOW) is None and log.segment_count == 1, "it has too little"
    for _ in range(3):
        log.append(batch(b"v"), NOW)
    assert log.compactable(0, NOW) is None and log.segment_count == 2, "what was rolled has to be flushed first"
    log.flush()
    plan = log.compactable(0, NOW)
    assert plan is not None and plan.bound == 9
    assert log.compactable(0, NOW) is not None and log.segment_count == 2, "an empty segment is not rolled"


def test_it_is_not_rolled_where_compacting_would_not_be_worth_it() -> None:
    """So the cost of compaction stays what Kafka's ratio makes it."""
    config = LogConfig(segment_bytes=300, compacts=True, roll_dirty_bytes=50)
    log = filled(8, config)
    assert is_worth_rolling(log._segments, config, 0)
    assert not is_worth_rolling(log._segments, config, 4), "half of it is dirty, which is not more than half"
    assert not is_worth_rolling(log._segments, replace(config, roll_dirty_bytes=-1), 0)


# --- groups


def segments(*sizes: int, offsets: int = 10) -> list[Segment]:
    files = MemoryFiles()
    made = []
    for number, size in enumerate(sizes):
        segment = Segment(files, "", number * offsets, 4096)
        segment.size, segment.next_offset = size, (number + 1) * offsets
        made.append(segment)
    return made


def sizes_of(groups: list[list[Segment]]) -> list[list[int]]:
    return [[segment.size for segment in group] for group in groups]


def test_neighbours_that_fit_into_one_segment_become_one() -> None:
    config = LogConfig(segment_bytes=100)
    assert sizes_of(grouped(segments(40, 60, 1, 0, 99, 200, 10), config)) == [[40, 60], [1, 0, 99], [200], [10]]
    assert grouped([], config) == []


def test_offsets_and_rows_of_an_index_limit_a_group() -> None:
    assert sizes_of(grouped(segments(1, 1, 1, offsets=2**30), LogConfig())) == [[1], [1], [1]]
    assert sizes_of(grouped(segments(1, 1, 1, offsets=2**30 - 1), LogConfig())) == [[1, 1], [1]]
    few_rows = LogConfig(segment_index_bytes=36, index_interval_bytes=1_000)
    assert sizes_of(grouped(segments(900, 900, 900), few_rows)) == [[900, 900], [900]]


def test_nothing_to_compact_in_an_empty_log() -> None:
    assert compactable(segments(0, 0), CONFIG, 0, 20, NOW) is None
