"""The progress of a query, in the shape of Spark's own Kafka source."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from coterie.client.types import TopicPartition
from coterie.spark import kafka_progress
from coterie.spark.batch_plan import BatchPlan, Span

PLAN = BatchPlan(
    "5f0c",
    7,
    {
        TopicPartition("orders", 1): Span(4, 4),
        TopicPartition("orders", 0): Span(10, 23),
        TopicPartition("a", 0): Span(0, 2),
    },
)


def progress(*sources: tuple[Any, str | None]) -> SimpleNamespace:
    """Return what Spark reports: the offsets are JSON as text."""
    return SimpleNamespace(
        sources=[SimpleNamespace(endOffset=json.dumps(end), latestOffset=latest) for end, latest in sources]
    )


def test_it_has_offsets_by_topic_and_how_far_they_are_behind() -> None:
    (found,) = kafka_progress(progress((PLAN.to_json(), '{"orders": {"0": 30, "1": 4}, "a": {"0": 3}}')))
    assert found == {
        "startOffset": {"a": {"0": 0}, "orders": {"0": 10, "1": 4}},
        "endOffset": {"a": {"0": 2}, "orders": {"0": 23, "1": 4}},
        "latestOffset": {"a": {"0": 3}, "orders": {"0": 30, "1": 4}},
        "metrics": {
            "minOffsetsBehindLatest": "0",
            "maxOffsetsBehindLatest": "7",
            "avgOffsetsBehindLatest": str(8 / 3),
        },
    }


@pytest.mark.parametrize("latest", [None, "", "null"])
def test_without_the_end_of_the_log_the_distance_is_unknown(latest: str | None) -> None:
    (found,) = kafka_progress(progress((PLAN.to_json(), latest)))
    assert (found["latestOffset"], found["metrics"]) == (None, {})
    assert found["endOffset"]["orders"] == {"0": 23, "1": 4}


def test_a_partition_that_is_gone_is_not_counted() -> None:
    (found,) = kafka_progress(progress((PLAN.to_json(), '{"a": {"0": 5}}')))
    assert set(found["metrics"].values()) == {"3", "3.0"}


def test_other_sources_are_left_out() -> None:
    assert kafka_progress(progress((None, None), ({"orders": {"0": 3}}, None), (17, None))) == []
