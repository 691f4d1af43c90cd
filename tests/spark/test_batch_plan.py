"""What a batch reads, as Spark keeps it in the checkpoint, and how it is cut into tasks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.client.types import TopicPartition
from coterie.errors import MalformedError
from coterie.spark.batch_plan import (
    BatchPlan,
    BatchPlanner,
    DataLossError,
    OffsetRange,
    Span,
    by_topic,
    ends_within,
    name_of_plan,
    offset_ranges,
    reachable,
    within_log,
)

ONE, TWO, THREE = (TopicPartition("t", number) for number in range(3))
DONE = BatchPlan("q", 2, {})

any_partitions = st.builds(TopicPartition, st.text("ab._-", min_size=1, max_size=5), st.integers(0, 99))
spans = st.tuples(st.integers(0, 2**62), st.integers(0, 2**40)).map(lambda each: Span(each[0], each[0] + each[1]))
plans = st.builds(
    BatchPlan, st.text("0123456789abcdef", min_size=1), st.integers(2, 2**40), st.dictionaries(any_partitions, spans)
)
partitions = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 5))
offsets = st.integers(0, 10_000)
waiting = st.dictionaries(partitions, st.tuples(offsets, offsets), max_size=8)


@given(plans, st.dictionaries(any_partitions, spans))
def test_a_plan_survives_the_checkpoint_as_the_same_text(plan: BatchPlan, others: dict[TopicPartition, Span]) -> None:
    """Spark compares offsets as text: what it gives back must be what was given, to the letter."""
    follows_on = {each: Span(0, span.from_offset) for each, span in plan.spans.items() if span.from_offset % 2}
    before = BatchPlan(plan.query, plan.number - 1, others | follows_on)
    text = json.dumps(plan.to_json(before))
    again = BatchPlan.from_json(json.loads(text), before)
    assert again == plan
    assert json.dumps(again.to_json(before)) == text
    assert BatchPlan.from_json(json.loads(text)).ends() == plan.ends()
    assert name_of_plan(json.loads(text)) == (plan.query, plan.number)


def test_it_is_the_json_of_sparks_kafka_source_and_what_that_cannot_say() -> None:
    before = BatchPlan("5f0c", 6, {ONE: Span(0, 5), TWO: Span(3, 7)})
    plan = BatchPlan("5f0c", 7, {ONE: Span(5, 9), TWO: Span(8, 10), THREE: Span(4, 4)})
    assert plan.to_json(before) == {
        "t": {"0": 9, "1": 10, "2": 4},
        "#plan": {"query": "5f0c", "number": 7, "from": {"t": {"1": 8}}},
    }


def test_the_first_plan_needs_no_other() -> None:
    """Where it begins is not in Spark's log: a restart asks for the initial offset again, and it may be another."""
    first = BatchPlan("q", 1, {ONE: Span(5, 9)})
    text = first.to_json(BatchPlan("q", 0, {ONE: Span(5, 5)}))
    assert BatchPlan.from_json(text, BatchPlan("q", 0, {ONE: Span(8, 8)})) == first


def test_at_a_thousand_partitions_a_plan_is_about_as_long_as_kafkas() -> None:
    partitions = [TopicPartition("orders", number) for number in range(1_000)]
    before = BatchPlan("5f0c", 6, {each: Span(0, 100_000) for each in partitions})
    plan = BatchPlan("5f0c", 7, {each: Span(100_000, 100_250) for each in partitions})
    kafkas = json.dumps(by_topic(plan.ends()))
    assert len(json.dumps(plan.to_json(before))) < len(kafkas) + 100


def test_plans_of_the_first_version_are_read() -> None:
    old = {"query": "a", "plan": 6, "topics": {"t": {"0": {"from": 5, "until": 9}}}}
    plan = BatchPlan("a", 6, {ONE: Span(5, 9)})
    assert BatchPlan.from_json(old) == plan
    assert name_of_plan(old) == ("a", 6)
    after = BatchPlan("a", 7, {ONE: Span(9, 12)})
    assert BatchPlan.from_json(after.to_json(plan), BatchPlan.from_json(old)) == after


@pytest.mark.parametrize(
    "data",
    [
        {"orders": {"0": 5}},
        {"t": {"0": 4}, "#plan": {"query": "a", "number": 1, "from": {"t": {"0": 5}}}},
        {"t": {"0": 4}, "#plan": {"query": "a", "number": 1, "from": {"t": {"0": -1}}}},
        {"t": {"x": 4}, "#plan": {"query": "a", "number": 1, "from": {}}},
        {"t": [4], "#plan": {"query": "a", "number": 1, "from": {}}},
        {"query": "a", "plan": 1, "topics": {"t": {"0": {"from": 5, "until": 4}}}},
        {"query": "a", "plan": 1, "topics": [1]},
        None,
    ],
)
def test_an_offset_of_another_source_is_refused_with_what_to_do(data: Any) -> None:
    with pytest.raises(MalformedError, match="a checkpoint of its own"):
        BatchPlan.from_json(data)


def test_a_plan_is_not_read_after_another_than_the_one_before() -> None:
    """Where it begins would be wrong without a word."""
    plan = BatchPlan("q", 7, {ONE: Span(5, 9)}).to_json(BatchPlan("q", 6, {ONE: Span(0, 5)}))
    with pytest.raises(MalformedError, match="it follows plan 5"):
        BatchPlan.from_json(plan, BatchPlan("q", 5, {ONE: Span(0, 3)}))


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


def planned(
    planner: BatchPlanner, positions: dict[TopicPartition, int], log_ends: dict[TopicPartition, int]
) -> BatchPlan:
    return planner.plan(DONE, positions, log_ends, now_ms=0, max_offsets=2, may_wait=True)


def test_a_partition_without_news_keeps_its_place_in_the_plan() -> None:
    plan = planned(BatchPlanner(None, 0), {ONE: 5, TWO: 7}, {ONE: 7, TWO: 7})
    assert (plan.query, plan.number) == ("q", 3)
    assert plan.spans == {ONE: Span(5, 7), TWO: Span(7, 7)}
    assert plan.to_read() == {ONE: Span(5, 7)}
    assert plan.ends() == {ONE: 7, TWO: 7}


def test_a_batch_waits_until_there_is_enough_or_has_waited_long_enough() -> None:
    planner = BatchPlanner(min_offsets=100, max_delay_ms=1_000)
    assert not planner.is_enough(10, now_ms=0)
    assert not planner.is_enough(99, now_ms=999)
    assert planner.is_enough(100, now_ms=999)
    assert not planner.is_enough(1, now_ms=1_998)
    assert planner.is_enough(1, now_ms=1_999)


def test_a_wait_in_which_nothing_came_is_not_forgotten() -> None:
    planner = BatchPlanner(min_offsets=100, max_delay_ms=1_000)
    planner.is_enough(0, now_ms=0)
    assert planner.is_enough(0, now_ms=1_500)
    assert planner.is_enough(1, now_ms=1_600)


def test_without_waiting_or_a_minimum_a_batch_has_what_is_there() -> None:
    for min_offsets, may_wait, end in ((100, True, None), (100, False, 7), (None, True, 7)):
        planner = BatchPlanner(min_offsets, max_delay_ms=1_000)
        plan = planner.plan(DONE, {ONE: 5}, {ONE: 9}, now_ms=0, max_offsets=2, may_wait=may_wait)
        assert plan.ends().get(ONE) == end
        assert (plan is DONE) == (end is None)


def test_with_availablenow_a_batch_waits_for_nothing_and_ends_at_the_target() -> None:
    planner = BatchPlanner(min_offsets=100, max_delay_ms=1_000)
    planner.target = {ONE: 7, TWO: 9}
    assert planned(planner, {ONE: 5, TWO: 8}, {ONE: 6, TWO: 20}).ends() == {ONE: 6, TWO: 9}
    assert planned(planner, {ONE: 7, TWO: 9}, {ONE: 8, TWO: 20}) is DONE
    assert planned(planner, {ONE: 5}, {}) is DONE


def test_what_is_gone_fails_the_query_or_is_logged_and_left_out() -> None:
    positions, latest = {ONE: 5, TWO: 7, THREE: 1}, {ONE: 9, TWO: 3}
    said: list[str] = []
    with pytest.raises(DataLossError, match="t-1 was read up to 7 and now ends at 3, t-2 was read up to 1 and is gone"):
        reachable(positions, latest, fail_on_data_loss=True, warn=said.append)
    assert not said
    assert reachable(positions, latest, fail_on_data_loss=False, warn=said.append) == {ONE: 5, TWO: 3}
    assert "going on with what is there" in said[0]
    assert reachable({ONE: 9}, latest, fail_on_data_loss=True, warn=said.append) == {ONE: 9}


def test_by_default_a_partition_is_a_task() -> None:
    spans = {ONE: Span(0, 10), TWO: Span(5, 5), THREE: Span(1, 2)}
    assert offset_ranges(spans) == [OffsetRange("t", 0, 0, 10), OffsetRange("t", 2, 1, 2)]


def test_large_partitions_are_cut_first() -> None:
    found = offset_ranges({ONE: Span(0, 100), TWO: Span(0, 10)}, min_partitions=4)
    assert [each.partition for each in found] == [0, 0, 0, 1]


def test_a_task_reads_no_more_than_it_may() -> None:
    found = offset_ranges({ONE: Span(0, 10)}, max_records=4)
    assert found == [OffsetRange("t", 0, 0, 3), OffsetRange("t", 0, 3, 6), OffsetRange("t", 0, 6, 10)]


@given(waiting, st.none() | st.integers(1, 50), st.none() | st.integers(500, 5_000))
def test_ranges_are_the_spans_without_a_gap_or_an_overlap(
    cases: dict[TopicPartition, tuple[int, int]], least: int | None, most_records: int | None
) -> None:
    spans = {each: Span(at, at + more) for each, (at, more) in cases.items()}
    found = offset_ranges(spans, min_partitions=least, max_records=most_records)
    at = {each: span.from_offset for each, span in spans.items()}
    for piece in found:
        one = TopicPartition(piece.topic, piece.partition)
        assert piece.from_offset == at[one] < piece.until_offset
        assert most_records is None or piece.until_offset - piece.from_offset <= most_records
        at[one] = piece.until_offset
    assert at == {each: span.until_offset for each, span in spans.items()}
    total = sum(span.size for span in spans.values())
    assert len(found) >= min(least or 0, total)


def test_an_end_behind_the_log_is_the_end_of_the_log() -> None:
    said: list[str] = []
    assert within_log({ONE: 5, TWO: 12, THREE: 7}, {ONE: 9, TWO: 10, THREE: 7}, said.append) == {
        ONE: 5,
        TWO: 10,
        THREE: 7,
    }
    assert said == ["endingOffsets: t-1 ends at 10, not at 12. failOnDataLoss is false: reading what is there"]
    assert within_log({ONE: 5}, {ONE: 5}, said.append) == {ONE: 5}
    assert len(said) == 1
