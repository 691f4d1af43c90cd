"""The pipeline starts its query again when Spark did not wait long enough for a Python worker."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from coterie.spark.pipeline import submit
from coterie.spark.pipeline.groups_pipeline import PipelineOptions
from coterie.spark.pipeline.submit import MOST_STARTS, until_workers_start
from coterie.spark.pipeline.topics_pipeline import TopicsOptions
from coterie.spark.pipeline.value_formats import ValueFormat

KAFKA = {"kafka.sasl.jaas.config": "PlainLoginModule required username=ann password=tea-leaves;"}
LATE = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
OTHER = "[STREAM_FAILED] Query terminated with exception: no space left on device. SQLSTATE: XXKST"


class Pipeline:
    """Fails with these messages, one at each start, then ends."""

    def __init__(self, *messages: str) -> None:
        self.messages = list(messages)
        self.starts = 0

    def read(self) -> None:
        self.starts += 1
        if self.messages:
            raise StreamingQueryException(self.messages.pop(0))

    once = follow = read


class Session:
    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


def test_passwords_are_in_no_text_about_a_pipeline() -> None:
    topics = TopicsOptions("tables", KAFKA, ("orders",), "billing", ValueFormat("id INT"), source=KAFKA)
    assert "tea-leaves" not in repr(topics) + repr(PipelineOptions("tables", KAFKA, source=KAFKA))


def test_a_late_worker_costs_another_start() -> None:
    pipeline, said = Pipeline(LATE, LATE), list[str]()
    until_workers_start(pipeline.read, said.append)
    assert pipeline.starts == 3
    assert [line.partition("again ")[2] for line in said] == ["(2 of 5)", "(3 of 5)"]


def test_the_end_of_a_repeated_batch_on_spark_4_1_costs_another_start() -> None:
    pipeline, said = Pipeline(f"[STREAM_FAILED] Cannot invoke map {submit.NO_METRICS}"), list[str]()
    until_workers_start(pipeline.read, said.append)
    assert pipeline.starts == 2
    assert said == ["Spark 4.1's Kafka source has repeated a batch, and fails then; starting the query again (2 of 5)"]


def test_workers_that_are_always_late_are_an_error() -> None:
    pipeline = Pipeline(*[LATE] * 100)
    with pytest.raises(StreamingQueryException, match="connect back"):
        until_workers_start(pipeline.read, lambda _: None)
    assert pipeline.starts == MOST_STARTS


def test_a_query_that_has_run_for_long_is_started_again_however_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that follows the log for months meets more than a few late workers."""
    times = iter(range(0, 1_000 * submit.LASTED_MS, submit.LASTED_MS))
    monkeypatch.setattr(submit, "clock_ms", lambda: next(times))
    pipeline, said = Pipeline(*[LATE] * 20), list[str]()
    until_workers_start(pipeline.read, said.append)
    assert pipeline.starts == 21 and {line.partition("again ")[2] for line in said} == {"(2 of 5)"}


def test_another_error_is_raised_at_once() -> None:
    pipeline = Pipeline(OTHER)
    with pytest.raises(StreamingQueryException, match="no space"):
        until_workers_start(pipeline.read, lambda _: None)
    assert pipeline.starts == 1


@pytest.mark.parametrize("follow", [False, True])
def test_the_program_starts_its_query_again(monkeypatch: pytest.MonkeyPatch, follow: bool) -> None:
    pipeline, session = Pipeline(LATE), Session()
    monkeypatch.setattr(submit, "session", lambda *_: session)
    monkeypatch.setattr(submit, "GroupsPipeline", lambda *_: pipeline)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    submit.run(PipelineOptions("tables", {}), follow=follow, master=None, say=lambda _: None)
    assert (pipeline.starts, session.is_stopped) == (2, True)
