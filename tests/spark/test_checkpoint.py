"""Is a batch done? Spark's own files say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coterie.client.types import TopicPartition
from coterie.spark.checkpoint import Checkpoint
from coterie.spark.plan import Plan, Span


def plan(number: int, query: str = "a1") -> Plan:
    return Plan(query, number, {TopicPartition("t", 0): Span(number, number + 1)})


def begin(folder: Path, batch: int, *plans: Plan) -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    lines = ["v1", '{"batchWatermarkMs":0}', *(json.dumps(each.to_json()) for each in plans)]
    (folder / "offsets" / str(batch)).write_text("\n".join(lines))


def finish(folder: Path, batch: int) -> None:
    (folder / "commits").mkdir(exist_ok=True)
    (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture(params=["{}", "file://{}", "{}/"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    return Checkpoint(request.param.format(tmp_path))


def test_a_batch_is_done_when_it_is_in_the_log_of_commits(checkpoint: Checkpoint, tmp_path: Path) -> None:
    assert checkpoint.has_done(plan(1)) is False
    begin(tmp_path, 0, plan(1))
    assert checkpoint.has_done(plan(1)) is False
    finish(tmp_path, 0)
    assert checkpoint.has_done(plan(1)) is True
    assert checkpoint.has_done(plan(2)) is False


def test_a_later_batch_says_that_the_one_before_is_done(checkpoint: Checkpoint, tmp_path: Path) -> None:
    begin(tmp_path, 9, plan(1))
    finish(tmp_path, 9)
    begin(tmp_path, 10, plan(2))
    assert checkpoint.has_done(plan(1)) is True
    assert checkpoint.has_done(plan(2)) is False


def test_a_batch_without_news_of_ours_repeats_our_plan(checkpoint: Checkpoint, tmp_path: Path) -> None:
    begin(tmp_path, 0, plan(1))
    finish(tmp_path, 0)
    begin(tmp_path, 1, plan(1))
    assert checkpoint.has_done(plan(1)) is True


def test_other_sources_of_the_query_are_told_apart(checkpoint: Checkpoint, tmp_path: Path) -> None:
    begin(tmp_path, 0, plan(7, "b2"), plan(1))
    finish(tmp_path, 0)
    assert checkpoint.has_done(plan(1)) is True
    assert checkpoint.has_done(plan(1, "c3")) is False


def test_a_checkpoint_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    """And costs no more than a batch that may be read twice."""
    begin(tmp_path, 0, plan(1))
    (tmp_path / "offsets" / "0").write_bytes(b"v1\n{}\n{ not json")
    assert Checkpoint(str(tmp_path)).has_done(plan(1)) is None
    assert Checkpoint("nowhere://at/all").has_done(plan(1)) is None
