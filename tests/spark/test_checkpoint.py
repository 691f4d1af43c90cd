"""Whether a batch is done, by Spark's own files; and who is right, the checkpoint or the group: a test for each row of
the table in coterie.spark.checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.spark.batch_plan import BatchPlan, Span
from coterie.spark.checkpoint import CommitNote, SparkCheckpoint, next_offset, spans_to_repeat

ONE = TopicPartition("t", 0)
PLAN = BatchPlan("a1", 7, {ONE: Span(100, 150)})


def plan(number: int, query: str = "a1") -> BatchPlan:
    return BatchPlan(query, number, {TopicPartition("t", 0): Span(number, number + 1)})


def begin(folder: Path, batch: int, *plans: BatchPlan) -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    lines = ["v1", '{"batchWatermarkMs":0}', *(json.dumps(each.to_json()) for each in plans)]
    (folder / "offsets" / str(batch)).write_text("\n".join(lines))


def finish(folder: Path, batch: int) -> None:
    (folder / "commits").mkdir(exist_ok=True)
    (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture(params=["{}", "file://{}", "{}/"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> SparkCheckpoint:
    return SparkCheckpoint(request.param.format(tmp_path))


def test_a_batch_is_done_when_it_is_in_the_log_of_commits(checkpoint: SparkCheckpoint, tmp_path: Path) -> None:
    assert checkpoint.has_done(plan(1)) is False
    begin(tmp_path, 0, plan(1))
    assert checkpoint.has_done(plan(1)) is False
    finish(tmp_path, 0)
    assert checkpoint.has_done(plan(1)) is True
    assert checkpoint.has_done(plan(2)) is False


def test_a_later_batch_says_that_the_one_before_is_done(checkpoint: SparkCheckpoint, tmp_path: Path) -> None:
    begin(tmp_path, 9, plan(1))
    finish(tmp_path, 9)
    begin(tmp_path, 10, plan(2))
    assert checkpoint.has_done(plan(1)) is True
    assert checkpoint.has_done(plan(2)) is False


def test_a_batch_without_news_of_ours_repeats_our_plan(checkpoint: SparkCheckpoint, tmp_path: Path) -> None:
    begin(tmp_path, 0, plan(1))
    finish(tmp_path, 0)
    begin(tmp_path, 1, plan(1))
    assert checkpoint.has_done(plan(1)) is True


def test_other_sources_of_the_query_are_told_apart(checkpoint: SparkCheckpoint, tmp_path: Path) -> None:
    begin(tmp_path, 0, plan(7, "b2"), plan(1))
    finish(tmp_path, 0)
    assert checkpoint.has_done(plan(1)) is True
    assert checkpoint.has_done(plan(1, "c3")) is False


def test_a_checkpoint_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    """And costs no more than a batch that may be read twice."""
    begin(tmp_path, 0, plan(1))
    (tmp_path / "offsets" / "0").write_bytes(b"v1\n{}\n{ not json")
    assert SparkCheckpoint(str(tmp_path)).has_done(plan(1)) is None
    assert SparkCheckpoint("nowhere://at/all").has_done(plan(1)) is None


def noted(offset: int, note: CommitNote | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
    return {ONE: OffsetAndMetadata(offset, metadata=str(note or ""))}


def test_a_note_is_read_as_it_was_written() -> None:
    for note in (
        CommitNote("a1", 7),
        CommitNote("a1", 0, is_released=True),
        CommitNote("a1", 7, in_transaction=True),
    ):
        assert CommitNote.parse(str(note)) == note
    assert CommitNote.parse("") is None
    assert CommitNote.parse("spark query a1 plan 7 and more") is None


def test_ours_of_a_plan_before_the_checkpoint_is_right() -> None:
    committed = noted(100, CommitNote("a1", 6))
    assert next_offset(ONE, PLAN, committed) == 150
    assert spans_to_repeat(PLAN, committed) == {ONE: Span(100, 150)}


def test_ours_of_this_plan_or_a_later_one_the_group_is_right() -> None:
    assert next_offset(ONE, PLAN, noted(150, CommitNote("a1", 7))) == 150
    assert next_offset(ONE, PLAN, noted(180, CommitNote("a1", 9))) == 180


def test_released_the_group_is_right_and_the_batch_is_left_to_others() -> None:
    committed = noted(100, CommitNote("a1", 6, is_released=True))
    assert next_offset(ONE, PLAN, committed) == 100
    assert spans_to_repeat(PLAN, committed) == {}


def test_somebody_elses_the_group_is_right_and_the_batch_is_left_to_them() -> None:
    for committed in (noted(120), noted(120, CommitNote("b2", 3)), noted(20)):
        assert next_offset(ONE, PLAN, committed) == committed[ONE].offset
        assert spans_to_repeat(PLAN, committed) == {}


def test_without_an_offset_the_checkpoint_is_right() -> None:
    """A group's offsets expire after a week without members (offsets.retention.minutes)."""
    assert next_offset(ONE, PLAN, {}) == 150
    assert spans_to_repeat(PLAN, {}) == {ONE: Span(100, 150)}


def test_a_partition_that_neither_knows_has_no_offset() -> None:
    assert next_offset(TopicPartition("t", 9), PLAN, {}) is None
    assert next_offset(TopicPartition("t", 9), PLAN, {TopicPartition("t", 9): OffsetAndMetadata(4)}) == 4


def test_in_transactions_the_group_is_right_and_only_what_is_in_the_topic_is_read_again() -> None:
    in_topic = noted(150, CommitNote("a1", 7, in_transaction=True))
    assert spans_to_repeat(PLAN, in_topic, in_transaction=True) == {ONE: Span(100, 150)}
    aborted = noted(100, CommitNote("a1", 6, in_transaction=True))
    others = (noted(120), noted(100, CommitNote("b2", 7, in_transaction=True)), noted(100, CommitNote("a1", 6)))
    assert spans_to_repeat(PLAN, {}, in_transaction=True) == {}
    for committed in (aborted, *others):
        assert spans_to_repeat(PLAN, committed, in_transaction=True) == {}
    for committed in (in_topic, aborted, *others):
        assert next_offset(ONE, PLAN, committed, in_transaction=True) == committed[ONE].offset
    assert next_offset(ONE, PLAN, {}, in_transaction=True) == 150


def test_offsets_of_transactions_are_right_for_a_start_without_them_too() -> None:
    """The batch of plan 7 was left to the group; the checkpoint says that it is done."""
    committed = noted(100, CommitNote("a1", 6, in_transaction=True))
    assert next_offset(ONE, PLAN, committed) == 100
    assert spans_to_repeat(PLAN, committed) == {}
