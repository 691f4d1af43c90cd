"""What a query holds of its group, step by step."""

from __future__ import annotations

from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.spark.commit_metadata import Note
from coterie.spark.holdings import Holdings
from coterie.spark.plan import Plan, Span

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
NOTHING_DONE = Plan("a1", 0, {})


def holding(**starts: int) -> Holdings:
    holdings = Holdings()
    holdings.durable(NOTHING_DONE)
    where = {TopicPartition("t", int(name[1:])): offset for name, offset in starts.items()}
    holdings.assigned(where)
    holdings.starts_at(where)
    holdings.committed(holdings.commits())
    return holdings


def offsets(holdings: Holdings) -> dict[TopicPartition, int]:
    return {each: commit.offset for each, commit in holdings.commits().items()}


def test_a_new_partition_is_not_planned_before_its_start_is_known() -> None:
    holdings = Holdings()
    holdings.assigned([ONE])
    assert holdings.without_start() == {ONE}
    assert holdings.to_plan() == {}
    holdings.starts_at({ONE: 5, TWO: 9})
    assert holdings.without_start() == set()
    assert holdings.to_plan() == {ONE: 5}


def test_an_owner_claims_where_it_begins() -> None:
    holdings = Holdings()
    holdings.durable(Plan("a1", 4, {}))
    holdings.assigned([ONE])
    holdings.starts_at({ONE: 5})
    assert holdings.commits() == {ONE: OffsetAndMetadata(5, metadata=str(Note("a1", 4)))}


def test_a_batch_is_owed_to_the_group_when_spark_has_it() -> None:
    holdings = holding(p0=0, p1=7)
    plan = Plan("a1", 1, {ONE: Span(0, 10), TWO: Span(7, 7)})
    holdings.planned(plan)
    assert offsets(holdings) == {}
    assert holdings.to_plan() == {ONE: 10, TWO: 7}
    holdings.durable(plan)
    assert holdings.commits() == {ONE: OffsetAndMetadata(10, metadata=str(Note("a1", 1)))}
    holdings.committed(holdings.commits())
    assert holdings.commits() == {}


def test_a_plan_spark_did_not_take_is_planned_again() -> None:
    holdings = holding(p0=0)
    holdings.planned(Plan("a1", 1, {ONE: Span(0, 10)}))
    holdings.durable(NOTHING_DONE)
    assert holdings.to_plan() == {ONE: 0}
    assert offsets(holdings) == {}


def test_what_goes_is_not_planned_and_goes_when_its_batch_is_durable_and_committed() -> None:
    holdings = holding(p0=0, p1=0)
    plan = Plan("a1", 1, {ONE: Span(0, 10), TWO: Span(0, 0)})
    holdings.planned(plan)
    holdings.going_away([ONE])
    assert holdings.to_plan() == {TWO: 0}
    assert not holdings.is_free([ONE])
    assert holdings.is_free([TWO])
    holdings.durable(plan)
    assert not holdings.is_free([ONE])
    holdings.committed(holdings.commits())
    assert holdings.is_free([ONE])
    holdings.released([ONE])
    assert holdings.owned == {TWO}


def test_a_partition_that_comes_back_asks_anew_where_to_begin() -> None:
    holdings = holding(p0=5)
    holdings.released([ONE])
    holdings.assigned([ONE])
    assert holdings.without_start() == {ONE}
    assert holdings.commits() == {}


def test_what_was_taken_from_a_batch_breaks_the_query_and_says_what_to_do() -> None:
    holdings = holding(p0=0, p1=0)
    holdings.planned(Plan("a1", 1, {ONE: Span(0, 10), TWO: Span(0, 0)}))
    holdings.lost([TWO])
    assert holdings.broken is None
    holdings.lost([ONE])
    assert holdings.broken is not None
    said = str(holdings.broken)
    assert "plan 1 ran with t-0" in said
    assert "start the query again from its checkpoint" in said
    holdings.durable(Plan("a1", 1, {ONE: Span(0, 10)}))
    assert holdings.commits() == {}


def test_what_was_taken_while_nothing_ran_is_no_harm() -> None:
    holdings = holding(p0=0)
    holdings.lost([ONE])
    assert holdings.broken is None
    assert holdings.owned == set()


def test_a_batch_that_is_given_up_is_released_at_its_beginning() -> None:
    holdings = holding(p0=3, p1=4)
    assert holdings.given_up() == {}
    holdings.planned(Plan("a1", 1, {ONE: Span(3, 10), TWO: Span(4, 4)}))
    assert holdings.given_up() == {ONE: OffsetAndMetadata(3, metadata=str(Note("a1", 0, is_released=True)))}
