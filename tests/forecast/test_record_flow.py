"""Records that are counted: with round numbers, so that every figure can be checked by hand."""

from __future__ import annotations

import pytest

from coterie.forecast.record_flow import RecordFlow, Surge

P, Q = ("t", 0), ("t", 1)


def flow(records_per_s: float = 2_000.0, partitions: int = 2) -> RecordFlow:
    """Two partitions with a record per ms each, from 0 on."""
    found = RecordFlow()
    found.add("t", range(partitions), records_per_s, 0)
    return found


def reads(found: RecordFlow, owner: str, at_ms: int, record_ms: float = 0.5, most: int = 500) -> float:
    """Take and process at once; return how many records."""
    batch = found.take(owner, at_ms, record_ms, most)
    found.processed(batch, at_ms + round(batch.work_ms), is_whole=True)
    return batch.records


def test_a_poll_returns_what_is_there_up_to_its_limit_and_turns_between_partitions() -> None:
    found = flow()
    found.assigned("a", [P, Q], 0)
    batch = found.take("a", 300, 0.5, 500)
    assert batch.parts == [(P, 0, 300), (Q, 0, 200)] and batch.work_ms == 250
    assert found.take("a", 300, 0.5, 500).parts == [(Q, 200, 300)]
    assert found.backlog("a", 350) == 100


def test_what_was_processed_and_not_committed_is_processed_again_by_the_next_owner() -> None:
    found = flow()
    found.assigned("a", [P], 0)
    reads(found, "a", 100)
    found.commit("a")
    reads(found, "a", 180)
    found.gone("a", 200)  # a crash: 80 records are processed and not committed
    found.assigned("b", [P], 300)
    assert reads(found, "b", 300) == 200
    assert found.totals.duplicates == 80


def test_who_gives_up_a_partition_in_order_commits_it() -> None:
    found = flow()
    found.assigned("a", [P], 0)
    reads(found, "a", 100)
    found.released("a", [P], 150, commits=True)
    found.assigned("b", [P], 200)
    reads(found, "b", 200)
    assert found.totals.duplicates == 0 and found.totals.processed == 200


def test_a_crash_within_a_batch_counts_what_was_done_by_then() -> None:
    found = flow()
    found.assigned("a", [P], 0)
    batch = found.take("a", 100, 2.0, 500)
    found.processed(batch, 140, is_whole=False)
    assert found.totals.processed == 20
    found.gone("a", 140)
    found.assigned("b", [P], 140)
    reads(found, "b", 140)
    assert found.totals.duplicates == 20


def test_unread_time_and_the_records_in_it_are_counted_from_the_begin_of_the_question() -> None:
    found = flow()
    found.counts_from(1_000)
    found.assigned("a", [P, Q], 3_000)
    assert found.totals.unread_ms == 4_000 and found.totals.delayed == 4_000
    found.released("a", [Q], 5_000, commits=True)
    found.ended(6_000)
    assert found.totals.unread_ms == 5_000


def test_the_delay_of_a_record_ends_with_its_processing() -> None:
    found = flow(partitions=1, records_per_s=1_000.0)
    found.assigned("a", [P], 0)
    reads(found, "a", 100, record_ms=3.0)
    assert found.totals.worst_delay_ms == pytest.approx(300)  # the last of 100: made at 100 ms, done at 400 ms
    ((records, age_ms),) = found.lags(500)
    assert records == 400 and age_ms == 400


def test_a_surge_makes_more_records_for_a_while() -> None:
    found = flow(partitions=1, records_per_s=1_000.0)
    found.assigned("a", [P], 0)
    found.surge(Surge(1_000, 2_000, 3.0))
    assert found.backlog("a", 1_000) == 1_000 and found.backlog("a", 2_000) == 4_000
    assert found.backlog("a", 3_000) == 5_000
    reads(found, "a", 3_000, record_ms=0, most=2_500)
    ((records, age_ms),) = found.lags(3_000)
    assert records == 2_500 and age_ms == pytest.approx(1_500)  # record 2 500 was made in the middle of the surge


def test_new_partitions_take_their_share_of_the_records_from_the_others() -> None:
    found = flow()
    found.assigned("a", [P, Q], 0)
    found.grow("t", [2, 3], 2_000.0, 1_000)
    assert found.backlog("a", 2_000) == 2 * (1_000 + 500)
    reads(found, "a", 2_000, record_ms=0, most=10_000)
    assert found.totals.duplicates == 0 and [records for records, _ in found.lags(2_000)] == [0, 0, 500, 500]
