"""Real Spark in a group: rebalances, slow batches, stops in order, crashes, static members."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from spark.on_spark import GROUP, Slow, failure, member, numbers, options, process_that_plans, stream
from spark.topics import Plain, Topic, until

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(200)]

HEARTBEAT_S = int(GROUP["kafka.heartbeat.interval.ms"]) / 1000


def test_a_query_shares_a_group_with_a_consumer(spark: SparkSession, topic: Topic, folder: Path) -> None:
    """Joins, leaves, orderly stops, a restart from the checkpoint: nothing missing, nothing twice."""
    given = GROUP | {"checkpointLocation": str(folder / "checkpoint"), "maxOffsetsPerTrigger": "400"}
    topic.write(1_000)
    query = stream(spark, topic, folder, given=given)
    until(lambda: topic.committed("g") == 1_000, 60)
    plain = Plain(topic, "g")
    for _ in range(10):
        topic.write(200)
    until(lambda: plain.owned == 2, 60)
    topic.write(1_000)
    until(lambda: topic.committed("g") == 4_000, 60)
    query.stop()
    assert query.exception() is None
    until(lambda: plain.owned == 4, 60)
    topic.write(500)
    query = stream(spark, topic, folder, given=given)
    until(lambda: plain.owned == 2, 60)
    topic.write(500)
    until(lambda: topic.committed("g") == 5_000, 60)
    plain.stop()
    topic.write(500)
    until(lambda: topic.committed("g") == 5_500, 60)
    query.stop()
    until(lambda: topic.members("g") == 0, 60)
    seen = [*numbers(spark, folder), *plain.seen]
    assert topic.missing(seen) == []
    assert topic.twice(seen) == []


def test_two_queries_of_one_application_share_a_group_and_one_is_stopped_and_started(
    spark: SparkSession, topic: Topic, folder: Path
) -> None:
    """They divide the partitions, also when one leaves and comes back, and leave nothing behind."""
    sinks = {name: Slow() for name in ("first", "second")}
    queries = {name: member(spark, topic, folder / name, sink) for name, sink in sinks.items()}
    until(lambda: topic.shares("g") == [2, 2], 60)
    topic.write(400)
    until(lambda: topic.committed("g") == 400, 60)
    for _ in range(2):
        queries["second"].stop()
        until(lambda: topic.shares("g") == [4], 60)
        topic.write(100)
        until(lambda: topic.committed("g") == topic.written, 60)
        queries["second"] = member(spark, topic, folder / "second", sinks["second"])
        until(lambda: topic.shares("g") == [2, 2], 60)
        topic.write(100)
        until(lambda: topic.committed("g") == topic.written, 60)
    for query in queries.values():
        query.stop()
        assert query.exception() is None
    until(lambda: topic.members("g") == 0, 60)
    seen = [row for sink in sinks.values() for row in sink.seen]
    assert topic.missing(seen) == topic.twice(seen) == []
    assert sorted(len(sink.seen) for sink in sinks.values()) == [300, 500]


def test_two_members_are_joined_with_watermarks(spark: SparkSession, topic: Topic, folder: Path) -> None:
    """Two sources of one query, each a member of a group of its own: rows that match within a time come out once."""
    paid = Topic(topic.address, "paid", 2)
    topic.write(40, timestamp=1_000_000)
    paid.write(20, timestamp=1_005_000)
    sides = []
    for which, group in ((topic, "g"), (paid, "h")):
        rows = spark.readStream.format("coterie").options(**options(which), **GROUP | {"groupId": group}).load()
        columns = [f"string(value) as {which.name}", f"timestamp as {which.name}_at"]
        sides.append(rows.selectExpr(*columns).withWatermark(f"{which.name}_at", "10 seconds"))
    both = sides[0].join(
        sides[1], expr("orders = paid and paid_at between orders_at and orders_at + interval 10 seconds")
    )
    writer = both.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    found = [int(row.orders) for row in spark.read.parquet(str(folder / "out")).collect()]
    assert sorted(found) == list(range(20))
    until(lambda: topic.members("g") == topic.members("h") == 0, 60)
    assert (topic.committed("g"), paid.committed("h")) == (40, 20)
    paid.close()


def test_a_rebalance_waits_for_a_slow_batch_and_what_is_kept_is_read_on(
    spark: SparkSession, topic: Topic, folder: Path
) -> None:
    """A batch of many heartbeats while another joins: it ends, is committed, and then partitions change hands."""
    sink = Slow()
    sink.hold()
    topic.write(400)
    query = member(spark, topic, folder, sink)
    assert sink.is_in_batch.wait(60)
    plain = Plain(topic, "g")
    until(lambda: topic.members("g") == 2, 60)
    for _ in range(10):
        Event().wait(HEARTBEAT_S)
        assert (plain.owned, plain.seen, topic.committed("g")) == (0, [], 0)
    assert query.isActive
    sink.may_end.set()
    until(lambda: plain.owned == 2, 60)
    assert topic.committed("g") == 400  # before anything was let go
    for _ in range(4):
        topic.write(100)
    until(lambda: topic.committed("g") == 800, 60)
    query.stop()
    plain.stop()
    assert query.exception() is None
    seen = [*sink.seen, *plain.seen]
    assert topic.missing(seen) == topic.twice(seen) == []
    assert plain.seen
    _assert_kept_without_a_gap(sink, plain)


def _assert_kept_without_a_gap(sink: Slow, plain: Plain) -> None:
    """What the query has of a partition is everything from its beginning, in order, to where it was let go."""
    kept: dict[int, list[int]] = {}
    for number in sorted(sink.batches):
        for _, partition, offset in sorted(sink.batches[number], key=lambda row: row[1:]):
            kept.setdefault(partition, []).append(offset)
    assert all(offsets == list(range(len(offsets))) for offsets in kept.values())
    assert sorted(len(offsets) for offsets in kept.values()) == [100, 100, 200, 200]  # two went, two were kept


def test_a_crash_in_a_batch_costs_that_batch_and_the_restart_finds_others_in_its_place(
    spark: SparkSession, topic: Topic, folder: Path
) -> None:
    """Kill -9 of the process that plans, in a batch; a consumer takes over; the query comes back to its checkpoint."""
    sink = Slow()
    topic.write(1_000)
    query = member(spark, topic, folder, sink, kafka__session__timeout__ms="2000")
    until(lambda: topic.committed("g") == 1_000, 60)
    sink.hold()
    topic.write(1_000)
    assert sink.is_in_batch.wait(60)
    os.kill(process_that_plans(), signal.SIGKILL)
    sink.crashes = True
    sink.may_end.set()
    failure(lambda: query.awaitTermination(60))
    plain = Plain(topic, "g")
    until(lambda: topic.committed("g") == 2_000, 60)
    sink.crashes = False
    query = member(spark, topic, folder, sink)
    until(lambda: plain.owned == 2, 60)
    topic.write(1_000)
    until(lambda: topic.committed("g") == 3_000, 60)
    query.stop()
    plain.stop()
    assert query.exception() is None
    seen = [*sink.seen, *plain.seen]
    assert topic.missing(seen) == []
    assert set(topic.twice(seen)) <= set(range(1_000, 2_000))  # the batch under way, and nothing else
    assert {row % 4 for row in sink.seen if row >= 2_000} == {row % 4 for row in range(4)} - {
        row % 4 for row in plain.seen if row >= 2_000
    }


def test_a_static_member_comes_back_without_a_rebalance(spark: SparkSession, topic: Topic, folder: Path) -> None:
    """KIP-345: a query restarted under the same group.instance.id within the session has what it had."""
    sink = Slow()
    static = {"kafka__group__instance__id": "spark-1", "kafka__session__timeout__ms": "60000"}
    query = member(spark, topic, folder, sink, **static)
    plain = Plain(topic, "g")
    until(lambda: plain.owned == 2 and topic.members("g") == 2, 60)
    topic.write(400)
    until(lambda: topic.committed("g") == 400, 60)
    generation = plain.consumer.group_metadata().generation_id
    query.stop()
    assert topic.members("g") == 2  # it has not left
    topic.write(400)
    until(lambda: len(plain.seen) == 400, 60)
    query = member(spark, topic, folder, sink, **static)
    until(lambda: topic.committed("g") == 800, 60)
    assert (plain.owned, plain.consumer.group_metadata().generation_id) == (2, generation)
    query.stop()
    plain.stop()
    assert query.exception() is None
    seen = [*sink.seen, *plain.seen]
    assert topic.missing(seen) == topic.twice(seen) == []


def test_a_broker_that_is_away_for_a_while_interrupts_nothing(spark: SparkSession, folder: Path) -> None:
    """In a batch, and while the query waits for records; the member finds its group again."""
    sink = Slow()
    with Topic.on_a_broker(folder / "data") as topic:
        assert topic.broker is not None
        sink.hold()
        topic.write(400)
        query = member(spark, topic, folder, sink)
        assert sink.is_in_batch.wait(60)
        for _ in range(2):
            topic.broker.stop()
            Event().wait(5 * HEARTBEAT_S)
            sink.may_end.set()
            Event().wait(5 * HEARTBEAT_S)
            topic.broker.start()
            topic.write(400)
            until(lambda: topic.committed("g") == topic.written, 60)
        assert query.isActive
        query.stop()
        assert query.exception() is None
        assert topic.missing(sink.seen) == topic.twice(sink.seen) == []
