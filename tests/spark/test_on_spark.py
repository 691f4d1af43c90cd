"""The source and the sink on real Spark; in a group: test_members_on_spark.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from coterie.client.types import TopicPartition
from coterie.spark import OffsetCommitter
from spark.on_spark import batch, failure, numbers, options, stream
from spark.topics import Topic, until

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(200)]

# --- the source, batch ------------------------------------------------------------------------------------------------


def test_columns_are_those_of_sparks_kafka_source(spark: SparkSession, topic: Topic) -> None:
    topic.write(8, key=b"k", headers=[("trace", b"1"), ("empty", None)], timestamp=1_700_000_000_123)
    rows = batch(spark, topic, includeHeaders="true")
    assert rows.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    assert "headers" not in batch(spark, topic).columns
    first = rows.selectExpr("*", "unix_millis(timestamp) as ms").orderBy("partition", "offset").first()
    assert first is not None
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition, first.offset) == (
        b"k",
        b"0",
        "orders",
        0,
        0,
    )
    assert (first.ms, first.timestampType) == (1_700_000_000_123, 0)
    assert [(each.key, each.value and bytes(each.value)) for each in first.headers] == [
        ("trace", b"1"),
        ("empty", None),
    ]


def test_a_batch_begins_and_ends_where_it_is_told(spark: SparkSession, topic: Topic) -> None:
    topic.write(40, timestamp=1_000)
    topic.write(40, timestamp=2_000)
    some = '{"orders": {"0": 3, "1": -2, "2": 10, "3": 9}}'
    end = '{"orders": {"0": 5, "1": 1, "2": 10, "3": -1}}'
    found = batch(spark, topic, startingOffsets=some, endingOffsets=end).groupBy("partition").count().collect()
    assert {row[0]: row[1] for row in found} == {0: 2, 1: 1, 3: 11}
    assert batch(spark, topic, startingTimestamp="2000").count() == 40
    assert batch(spark, topic, endingTimestamp="1500").count() == 40
    sliced = batch(spark, topic, minPartitions="10")
    assert (sliced.count(), sliced.rdd.getNumPartitions()) == (80, 10)


def test_mistakes_are_said_before_anything_runs(spark: SparkSession, topic: Topic) -> None:
    assert "did you mean startingOffsets?" in failure(lambda: batch(spark, topic, startingOfsets="latest").count())
    assert 'topic "ordres"' in failure(lambda: batch(spark, topic, subscribe="ordres").count())
    assert "do not name orders-1" in failure(
        lambda: batch(spark, topic, startingOffsets='{"orders": {"0": 1}}').count()
    )


def test_offsets_that_are_gone_fail_or_are_passed_over_as_failondataloss_says(
    spark: SparkSession, topic: Topic
) -> None:
    topic.write(400)
    topic.admin.delete_records({TopicPartition(topic.name, 2): 60})
    some = '{"orders": {"0": 50, "1": 50, "2": 50, "3": 50}}'
    said = failure(lambda: batch(spark, topic, startingOffsets=some).count())
    assert "offsets 50 to 100 of orders-2 were to be read, and it has 60 to 100" in said
    assert "set failOnDataLoss to false" in said
    assert batch(spark, topic, startingOffsets=some, failOnDataLoss="false").count() == 190


# --- the source, streaming --------------------------------------------------------------------------------------------


def test_a_stream_goes_on_where_it_was_and_sees_new_partitions(spark: SparkSession, topic: Topic, folder: Path) -> None:
    topic.write(100)
    first = stream(spark, topic, folder, given={"maxOffsetsPerTrigger": "40"}, availableNow=True)
    first.awaitTermination(60)
    rows = [progress["numInputRows"] for progress in first.recentProgress]
    assert sum(rows) == 100 and max(rows) == 40
    topic.admin.create_partitions({topic.name: 5})
    topic.partitions = 5
    topic.write(50)
    second = stream(spark, topic, folder, availableNow=True)
    second.awaitTermination(60)
    assert sorted(numbers(spark, folder)) == list(range(150))


def test_a_stream_whose_offsets_are_gone_fails_and_goes_on_when_it_is_told_to(
    spark: SparkSession, topic: Topic, folder: Path
) -> None:
    """Retention was faster than the query. The batch that failed is in the checkpoint, and is repeated."""
    topic.write(100)
    stream(spark, topic, folder, availableNow=True).awaitTermination(60)
    topic.write(100)
    topic.admin.delete_records({TopicPartition(topic.name, 1): 40})
    said = failure(lambda: stream(spark, topic, folder, availableNow=True).awaitTermination(60))
    assert "offsets 25 to 50 of orders-1 were to be read, and it has 40 to 50" in said
    assert "set failOnDataLoss to false" in said
    assert sorted(numbers(spark, folder)) == list(range(100))
    again = stream(spark, topic, folder, given={"failOnDataLoss": "false"}, availableNow=True)
    again.awaitTermination(60)
    assert again.exception() is None
    lost = set(range(101, 101 + 4 * 15, 4))
    assert sorted(numbers(spark, folder)) == sorted(set(range(200)) - lost)


def test_a_topic_that_vanishes_fails_the_query_and_leaves_its_checkpoint_as_it_was(
    spark: SparkSession, topic: Topic, folder: Path
) -> None:
    topic.write(100)
    query = stream(spark, topic, folder)
    query.processAllAvailable()
    topic.admin.delete_topics([topic.name])
    said = failure(lambda: query.awaitTermination(60))
    assert "was read up to 25 and is gone" in said
    assert "failOnDataLoss" in said
    assert len(numbers(spark, folder)) == 100
    again = stream(spark, topic, folder, given={"failOnDataLoss": "false"}, availableNow=True)
    again.awaitTermination(60)
    assert again.exception() is None


# --- the sink ---------------------------------------------------------------------------------------------------------


def test_rows_arrive_as_records(spark: SparkSession, topic: Topic) -> None:
    rows = spark.sql(
        "select cast(id as string) as key, cast(id as string) as value, cast(id % 2 as int) as partition, "
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers from range(100)"
    )
    rows.write.format("coterie").mode("append").options(
        **{
            "kafka.bootstrap.servers": topic.address,
            "topic": topic.name,
        }
    ).save()
    found = batch(spark, topic, includeHeaders="true").collect()
    assert sorted(int(row.value) for row in found) == list(range(100))
    assert all(row.partition == int(row.value) % 2 and row.key == row.value for row in found)
    assert {(each.key, bytes(each.value)) for row in found for each in row.headers} == {("h", b"x")}


def test_a_stream_goes_from_topic_to_topic(spark: SparkSession, topic: Topic, folder: Path) -> None:
    other = Topic(topic.address, "copies", 2)
    topic.write(100)
    rows = spark.readStream.format("coterie").options(**options(topic, startingOffsets="earliest")).load()
    query = (
        rows.selectExpr("key", "value", "'copies' as topic")
        .writeStream.format("coterie")
        .option("kafka.bootstrap.servers", topic.address)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert sorted(int(row.value) for row in batch(spark, other).collect()) == list(range(100))
    other.close()


def test_the_progress_of_a_query_without_a_group_is_seen_as_a_groups(
    spark: SparkSession, topic: Topic, folder: Path
) -> None:
    committer = OffsetCommitter({"kafka.bootstrap.servers": topic.address, "kafka.consumer.commit.groupid": "lag"})
    spark.streams.addListener(committer)
    try:
        topic.write(100)
        stream(spark, topic, folder, availableNow=True).awaitTermination(60)
        until(lambda: topic.committed("lag") == 100, 60)
    finally:
        spark.streams.removeListener(committer)


def test_a_sink_refuses_what_it_cannot_write(spark: SparkSession, topic: Topic) -> None:
    rows = spark.range(3)

    def write(frame: DataFrame, **more: str) -> None:
        given = {"kafka.bootstrap.servers": topic.address} | more
        frame.write.format("coterie").mode("append").options(**given).save()

    assert "there is no column value" in failure(lambda: write(rows, topic="orders"))
    assert "column id is not known" in failure(lambda: write(rows, topic="orders"))
    assert "column value is bigint" in failure(lambda: write(rows.toDF("value"), topic="orders"))
    assert "says where the rows go" in failure(lambda: write(rows.selectExpr("string(id) as value")))
    assert "null in its column topic" in failure(
        lambda: write(rows.selectExpr("string(id) as value", "string(null) as topic"))
    )
