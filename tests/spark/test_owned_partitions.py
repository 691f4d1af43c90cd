"""The partitions that a query owns, step by step."""

from __future__ import annotations

import pytest

from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.spark.batch_plan import BatchPlan, Span
from coterie.spark.checkpoint import CommitNote
from coterie.spark.membership import FencedQueryError, OwnedPartitions

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
NOTHING_DONE = BatchPlan("a1", 0, {})


def owning(*, in_transaction: bool = False, **starts: int) -> OwnedPartitions:
    owned = OwnedPartitions(in_transaction=in_transaction)
    owned.batch_done(NOTHING_DONE)
    where = {TopicPartition("t", int(name[1:])): offset for name, offset in starts.items()}
    owned.assigned(where)
    owned.start_at(where)
    owned.committed(owned.commits_due())
    return owned


def offsets(owned: OwnedPartitions) -> dict[TopicPartition, int]:
    return {each: commit.offset for each, commit in owned.commits_due().items()}


def test_a_new_partition_is_not_planned_before_its_start_is_known() -> None:
    owned = OwnedPartitions()
    owned.assigned([ONE])
    assert owned.without_start() == {ONE}
    assert owned.to_plan() == {}
    owned.start_at({ONE: 5, TWO: 9})
    assert owned.without_start() == set()
    assert owned.to_plan() == {ONE: 5}


def test_an_owner_claims_where_it_begins() -> None:
    owned = OwnedPartitions()
    owned.batch_done(BatchPlan("a1", 4, {}))
    owned.assigned([ONE])
    owned.start_at({ONE: 5})
    assert owned.commits_due() == {ONE: OffsetAndMetadata(5, metadata=str(CommitNote("a1", 4)))}


def test_a_batch_is_owed_to_the_group_when_spark_has_it() -> None:
    owned = owning(p0=0, p1=7)
    plan = BatchPlan("a1", 1, {ONE: Span(0, 10), TWO: Span(7, 7)})
    owned.batch_planned(plan)
    assert offsets(owned) == {}
    assert owned.to_plan() == {ONE: 10, TWO: 7}
    owned.batch_done(plan)
    assert owned.commits_due() == {ONE: OffsetAndMetadata(10, metadata=str(CommitNote("a1", 1)))}
    owned.committed(owned.commits_due())
    assert owned.commits_due() == {}


def test_a_plan_spark_did_not_take_is_planned_again() -> None:
    owned = owning(p0=0)
    owned.batch_planned(BatchPlan("a1", 1, {ONE: Span(0, 10)}))
    owned.batch_done(NOTHING_DONE)
    assert owned.to_plan() == {ONE: 0}
    assert offsets(owned) == {}


def test_what_goes_is_not_planned_and_goes_when_its_batch_is_durable_and_committed() -> None:
    owned = owning(p0=0, p1=0)
    plan = BatchPlan("a1", 1, {ONE: Span(0, 10), TWO: Span(0, 0)})
    owned.batch_planned(plan)
    owned.revoke([ONE])
    assert owned.to_plan() == {TWO: 0}
    assert not owned.is_free([ONE])
    assert owned.is_free([TWO])
    owned.batch_done(plan)
    assert not owned.is_free([ONE])
    owned.committed(owned.commits_due())
    assert owned.is_free([ONE])
    owned.release([ONE])
    assert owned.owned == {TWO}


def test_a_partition_that_comes_back_asks_again_where_to_begin() -> None:
    owned = owning(p0=5)
    owned.release([ONE])
    owned.assigned([ONE])
    assert owned.without_start() == {ONE}
    assert owned.commits_due() == {}


def test_what_was_taken_from_a_batch_fails_the_query_and_says_what_to_do() -> None:
    owned = owning(p0=0, p1=0)
    owned.batch_planned(BatchPlan("a1", 1, {ONE: Span(0, 10), TWO: Span(0, 0)}))
    owned.lose([TWO])
    assert owned.fenced is None
    owned.lose([ONE])
    assert owned.fenced is not None
    said = str(owned.fenced)
    assert "plan 1 ran with t-0" in said
    assert "start the query again from its checkpoint" in said
    owned.batch_done(BatchPlan("a1", 1, {ONE: Span(0, 10)}))
    assert owned.commits_due() == {}


def test_what_was_taken_while_nothing_ran_is_no_harm() -> None:
    owned = owning(p0=0)
    owned.lose([ONE])
    assert owned.fenced is None
    assert owned.owned == set()


def test_a_batch_that_is_given_up_is_released_at_its_beginning() -> None:
    owned = owning(p0=3, p1=4)
    assert owned.commits_to_release() == {}
    owned.batch_planned(BatchPlan("a1", 1, {ONE: Span(3, 10), TWO: Span(4, 4)}))
    note = str(CommitNote("a1", 0, is_released=True))
    assert owned.commits_to_release() == {ONE: OffsetAndMetadata(3, metadata=note)}


def test_the_sink_gets_the_offsets_of_the_batch_that_runs_and_they_are_not_owed_any_more() -> None:
    owned = owning(in_transaction=True, p0=3, p1=4)
    assert owned.commits_of_batch() == {}
    plan = BatchPlan("a1", 1, {ONE: Span(3, 10), TWO: Span(4, 4)})
    owned.batch_planned(plan)
    note = str(CommitNote("a1", 1, in_transaction=True))
    assert owned.commits_of_batch() == {ONE: OffsetAndMetadata(10, metadata=note)}
    assert owned.commits_to_release() == {}, "the sink may be about to commit"
    owned.batch_done(plan)
    assert owned.commits_due() == {}
    owned.batch_planned(BatchPlan("a1", 2, {ONE: Span(10, 12)}))
    owned.batch_done(BatchPlan("a1", 2, {ONE: Span(10, 12)}))
    assert offsets(owned) == {ONE: 12}, "the sink was not asked to write this one"


def test_the_sink_gets_no_offsets_of_partitions_that_are_not_owned() -> None:
    owned = owning(in_transaction=True, p0=0)
    owned.batch_planned(BatchPlan("a1", 1, {ONE: Span(0, 10)}))
    owned.lose([ONE])
    with pytest.raises(FencedQueryError, match="removed from its group"):
        owned.commits_of_batch()
    repeated = OwnedPartitions(in_transaction=True)
    repeated.batch_planned(BatchPlan("a1", 1, {ONE: Span(0, 10)}))
    with pytest.raises(FencedQueryError, match="t-0 is not assigned to this query"):
        repeated.commits_of_batch()
