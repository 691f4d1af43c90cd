"""How much a batch reads, and in how many tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.client.types import TopicPartition
from coterie.spark.errors import DataLossError
from coterie.spark.plan import Span
from coterie.spark.planning import Budget, Slice, ends_within, next_plan, slices, within_reach

ONE, TWO, THREE = (TopicPartition("t", number) for number in range(3))
partitions = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 5))
offsets = st.integers(0, 10_000)
waiting = st.dictionaries(partitions, st.tuples(offsets, offsets), max_size=8)


def test_without_a_limit_everything_is_read() -> None:
    assert ends_within(None, {ONE: 5, TWO: 7}, {ONE: 9, TWO: 7}) == {ONE: 9}


def test_a_limit_is_shared_by_what_waits() -> None:
    """As Spark: 300 of 1000, 100 to 900."""
    assert ends_within(300, {ONE: 0, TWO: 50}, {ONE: 100, TWO: 950}) == {ONE: 30, TWO: 320}


def test_a_partition_with_little_is_not_starved() -> None:
    """Spark rebalances a share below one up to one."""
    assert ends_within(10, {ONE: 0, TWO: 0}, {ONE: 1, TWO: 100_000}) == {ONE: 1, TWO: 9}


@given(waiting, st.integers(1, 20_000))
def test_a_limit_is_kept_but_for_one_record_of_each(cases: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    positions = {each: at for each, (at, _) in cases.items()}
    latest = {each: at + more for each, (at, more) in cases.items()}
    ends = ends_within(limit, positions, latest)
    taken = {each: end - positions[each] for each, end in ends.items()}
    assert sum(taken.values()) <= limit + len(taken)
    assert all(1 <= size <= latest[each] - positions[each] for each, size in taken.items())
    assert taken.keys() == {each for each, (_, more) in cases.items() if more}


def test_a_partition_without_news_keeps_its_place_in_the_plan() -> None:
    plan = next_plan("q", 3, {ONE: 5, TWO: 7}, {ONE: 9})
    assert plan.spans == {ONE: Span(5, 9), TWO: Span(7, 7)}
    assert plan.to_read() == {ONE: Span(5, 9)}
    assert plan.ends() == {ONE: 9, TWO: 7}


def test_a_batch_waits_until_it_is_worth_while_or_has_waited_long_enough() -> None:
    budget = Budget(least=100, delay_ms=1_000)
    assert not budget.is_worth(10, now_ms=0)
    assert not budget.is_worth(99, now_ms=999)
    assert budget.is_worth(100, now_ms=999)
    assert not budget.is_worth(1, now_ms=1_998)
    assert budget.is_worth(1, now_ms=1_999)


def test_a_wait_in_which_nothing_came_is_not_forgotten() -> None:
    budget = Budget(least=100, delay_ms=1_000)
    budget.is_worth(0, now_ms=0)
    assert budget.is_worth(0, now_ms=1_500)
    assert budget.is_worth(1, now_ms=1_600)


def test_who_may_not_wait_gets_what_there_is_and_who_sets_no_least_never_waits() -> None:
    for least, may_wait, ends in ((100, True, {}), (100, False, {ONE: 7}), (None, True, {ONE: 7})):
        budget = Budget(least, delay_ms=1_000)
        assert budget.ends({ONE: 5}, {ONE: 9}, now_ms=0, at_most=2, may_wait=may_wait) == ends


def test_what_is_gone_fails_the_query_or_is_told_and_left_out() -> None:
    positions, latest = {ONE: 5, TWO: 7, THREE: 1}, {ONE: 9, TWO: 3}
    said: list[str] = []
    with pytest.raises(DataLossError, match="t-1 was read up to 7 and now ends at 3, t-2 was read up to 1 and is gone"):
        within_reach(positions, latest, fails=True, warn=said.append)
    assert not said
    assert within_reach(positions, latest, fails=False, warn=said.append) == {ONE: 5, TWO: 3}
    assert "going on with what is there" in said[0]
    assert within_reach({ONE: 9}, latest, fails=True, warn=said.append) == {ONE: 9}


def test_by_default_a_partition_is_a_task() -> None:
    assert slices({ONE: Span(0, 10), TWO: Span(5, 5), THREE: Span(1, 2)}) == [Slice("t", 0, 0, 10), Slice("t", 2, 1, 2)]


def test_large_partitions_are_cut_first() -> None:
    found = slices({ONE: Span(0, 100), TWO: Span(0, 10)}, least=4)
    assert [each.partition for each in found] == [0, 0, 0, 1]


def test_a_task_reads_no_more_than_it_may() -> None:
    found = slices({ONE: Span(0, 10)}, most_records=4)
    assert found == [Slice("t", 0, 0, 3), Slice("t", 0, 3, 6), Slice("t", 0, 6, 10)]


@given(waiting, st.none() | st.integers(1, 50), st.none() | st.integers(500, 5_000))
def test_slices_are_the_spans_without_a_gap_or_an_overlap(
    cases: dict[TopicPartition, tuple[int, int]], least: int | None, most_records: int | None
) -> None:
    spans = {each: Span(at, at + more) for each, (at, more) in cases.items()}
    found = slices(spans, least=least, most_records=most_records)
    at = {each: span.from_offset for each, span in spans.items()}
    for piece in found:
        one = TopicPartition(piece.topic, piece.partition)
        assert piece.from_offset == at[one] < piece.until_offset
        assert most_records is None or piece.until_offset - piece.from_offset <= most_records
        at[one] = piece.until_offset
    assert at == {each: span.until_offset for each, span in spans.items()}
    total = sum(span.size for span in spans.values())
    assert len(found) >= min(least or 0, total)
