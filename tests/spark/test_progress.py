"""The progress of a query, in the shape of Spark's own Kafka source."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coterie.client.types import TopicPartition
from coterie.spark import ProgressListener, kafka_progress
from coterie.spark.batch_plan import BatchPlan, Span, by_topic
from coterie.spark.options import SourceOptions, Use
from spark.on_spark import GROUP, stream
from spark.topics import Topic, until

ORDERS = [TopicPartition("orders", number) for number in range(2)]
BEFORE = BatchPlan("5f0c", 6, {ORDERS[0]: Span(0, 10), ORDERS[1]: Span(3, 4)})
PLAN = BatchPlan("5f0c", 7, {ORDERS[1]: Span(4, 4), ORDERS[0]: Span(10, 23), TopicPartition("a", 0): Span(0, 2)})
NAME = "Coterie[Subscribe[orders]] as member of bar"


def progress(*sources: tuple[Any, Any, str | None]) -> SimpleNamespace:
    """Return what Spark reports: the offsets are JSON as text."""
    return SimpleNamespace(
        name="billing",
        batchId=6,
        sources=[
            SimpleNamespace(startOffset=start and json.dumps(start), endOffset=json.dumps(end), latestOffset=latest)
            for start, end, latest in sources
        ],
    )


def of_plan(latest: str | None) -> SimpleNamespace:
    return progress((BEFORE.to_json(), PLAN.to_json(BEFORE), latest))


def test_it_has_offsets_by_topic_and_how_far_they_are_behind() -> None:
    (found,) = kafka_progress(of_plan('{"orders": {"0": 30, "1": 4}, "a": {"0": 3}}'))
    assert found == {
        "description": "Coterie[a, orders]",
        "startOffset": {"a": {"0": 0}, "orders": {"0": 10, "1": 4}},
        "endOffset": {"a": {"0": 2}, "orders": {"0": 23, "1": 4}},
        "latestOffset": {"a": {"0": 3}, "orders": {"0": 30, "1": 4}},
        "metrics": {
            "minOffsetsBehindLatest": "0",
            "maxOffsetsBehindLatest": "7",
            "avgOffsetsBehindLatest": str(8 / 3),
        },
        "member": None,
    }


def test_what_the_source_says_of_itself_is_no_topic() -> None:
    about = {"description": NAME, "member": "it waits", "metrics": {"rebalance-total": 2, "last": None}}
    (found,) = kafka_progress(of_plan(json.dumps({"orders": {"0": 30}, "#source": about})))
    assert found["latestOffset"] == {"orders": {"0": 30}}
    assert (found["description"], found["member"]) == (NAME, "it waits")
    assert found["metrics"]["rebalance-total"] == "2" and "last" not in found["metrics"]


@pytest.mark.parametrize("latest", [None, "", "null"])
def test_without_the_end_of_the_log_the_distance_is_unknown(latest: str | None) -> None:
    (found,) = kafka_progress(of_plan(latest))
    assert (found["latestOffset"], found["metrics"]) == (None, {})
    assert found["endOffset"]["orders"] == {"0": 23, "1": 4}


def test_a_partition_that_is_gone_is_not_counted() -> None:
    (found,) = kafka_progress(of_plan('{"a": {"0": 5}}'))
    assert set(found["metrics"].values()) == {"3", "3.0"}


def test_the_first_batch_has_no_start_and_an_idle_query_ends_where_it_starts() -> None:
    first = BatchPlan("5f0c", 1, {ORDERS[0]: Span(3, 5)})
    (found,) = kafka_progress(progress((None, first.to_json(), None)))
    assert (found["startOffset"], found["endOffset"]) == ({"orders": {"0": 3}}, {"orders": {"0": 5}})
    (found,) = kafka_progress(progress((PLAN.to_json(BEFORE), PLAN.to_json(BEFORE), None)))
    assert found["startOffset"] == found["endOffset"] == by_topic(PLAN.ends())


def test_other_sources_are_left_out() -> None:
    assert kafka_progress(progress((None, None, None), (None, {"orders": {"0": 3}}, None), (3, 17, None))) == []


def test_a_listener_logs_it_or_gives_it_to_a_function(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "coterie.spark")
    about = {"description": NAME, "member": "member a is stable.", "metrics": {"rebalance-total": 2}}
    event = SimpleNamespace(progress=of_plan(json.dumps({"orders": {"0": 30}, "#source": about})))
    ProgressListener().onQueryProgress(event)
    ProgressListener().onQueryProgress(SimpleNamespace(progress=of_plan(None)))
    assert caplog.messages == [
        f"query billing, batch 6; {NAME}; at most 7 records behind; member a is stable; rebalances: 2",
        "query billing, batch 6; Coterie[a, orders]; behind by an unknown number of records",
    ]
    seen: list[tuple[str, int, str]] = []
    listener = ProgressListener(lambda query, batch, source: seen.append((query, batch, source["description"])))
    listener.onQueryProgress(event)
    assert seen == [("billing", 6, NAME)]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"subscribe": "b,a"}, "Coterie[Subscribe[b, a]]"),
        ({"subscribePattern": "or.*"}, "Coterie[SubscribePattern[or.*]]"),
        ({"assign": '{"t": [1, 0]}'}, "Coterie[Assign[t-1, t-0]]"),
        ({"subscribe": "orders", "groupId": "bar"}, NAME),
    ],
)
def test_a_source_is_described_as_sparks_own_is(given: dict[str, str], name: str) -> None:
    options = SourceOptions.of({"kafka.bootstrap.servers": "localhost:9092", **given}, Use.STREAM)
    assert options.description == name


@pytest.mark.real_time
@pytest.mark.timeout(200)
def test_on_spark(spark: SparkSession, topic: Topic, folder: Path) -> None:
    """Spark prints the offsets as JSON: topics are as in its own Kafka source, for who reads them without us."""
    heard: list[dict[str, Any]] = []
    listener = ProgressListener(lambda _query, _batch, source: heard.append(source))
    spark.streams.addListener(listener)
    try:
        topic.write(40)
        query = stream(spark, topic, folder, given=GROUP)
        query.processAllAvailable()
        topic.write(40)
        query.processAllAvailable()
        until(lambda: heard and heard[-1]["endOffset"] == by_number(20))
        last = next(each for each in reversed(query.recentProgress) if each.numInputRows)
        query.stop()
    finally:
        spark.streams.removeListener(listener)
    printed = last.sources[0]
    assert (
        json.loads(printed.endOffset)["orders"] == json.loads(printed.latestOffset)["orders"] == by_number(20)["orders"]
    )
    assert json.loads(printed.startOffset)["orders"] == by_number(10)["orders"]
    (found,) = kafka_progress(last)
    assert found["startOffset"] == by_number(10)
    assert found["endOffset"] == found["latestOffset"] == by_number(20)
    assert found["description"] == "Coterie[Subscribe[orders]] as member of g"
    assert found["member"].startswith('member "coterie-spark-') and "generation 1, 4 partitions" in found["member"]
    metrics = found["metrics"]
    assert (metrics["rebalance-total"], metrics["assigned-partitions"], metrics["maxOffsetsBehindLatest"]) == (
        "1",
        "4",
        "0",
    )


def by_number(offset: int) -> dict[str, dict[str, int]]:
    return {"orders": {str(number): offset for number in range(4)}}
