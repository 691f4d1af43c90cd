"""Whose offsets the group's offsets are: one test for each row of the table in coterie.spark.commit_metadata."""

from __future__ import annotations

from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.spark.commit_metadata import Note, goes_on_at, to_repeat
from coterie.spark.plan import Plan, Span

ONE = TopicPartition("t", 0)
PLAN = Plan("a1", 7, {ONE: Span(100, 150)})


def noted(offset: int, note: Note | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
    return {ONE: OffsetAndMetadata(offset, metadata=str(note or ""))}


def test_a_note_is_read_as_it_was_written() -> None:
    for note in (Note("a1", 7), Note("a1", 0, is_released=True)):
        assert Note.parse(str(note)) == note
    assert Note.parse("") is None
    assert Note.parse("spark query a1 plan 7 and more") is None


def test_ours_of_a_plan_before_the_checkpoint_is_right() -> None:
    committed = noted(100, Note("a1", 6))
    assert goes_on_at(ONE, PLAN, committed) == 150
    assert to_repeat(PLAN, committed) == {ONE: Span(100, 150)}


def test_ours_of_this_plan_or_a_later_one_the_group_is_right() -> None:
    assert goes_on_at(ONE, PLAN, noted(150, Note("a1", 7))) == 150
    assert goes_on_at(ONE, PLAN, noted(180, Note("a1", 9))) == 180


def test_released_the_group_is_right_and_the_batch_is_left_to_others() -> None:
    committed = noted(100, Note("a1", 6, is_released=True))
    assert goes_on_at(ONE, PLAN, committed) == 100
    assert to_repeat(PLAN, committed) == {}


def test_somebody_elses_the_group_is_right_and_the_batch_is_left_to_them() -> None:
    for committed in (noted(120), noted(120, Note("b2", 3)), noted(20)):
        assert goes_on_at(ONE, PLAN, committed) == committed[ONE].offset
        assert to_repeat(PLAN, committed) == {}


def test_without_an_offset_the_checkpoint_is_right() -> None:
    """A group's offsets expire after a week without members (offsets.retention.minutes)."""
    assert goes_on_at(ONE, PLAN, {}) == 150
    assert to_repeat(PLAN, {}) == {ONE: Span(100, 150)}


def test_a_partition_neither_has_begins_anew() -> None:
    assert goes_on_at(TopicPartition("t", 9), PLAN, {}) is None
    assert goes_on_at(TopicPartition("t", 9), PLAN, {TopicPartition("t", 9): OffsetAndMetadata(4)}) == 4
