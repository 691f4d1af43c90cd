"""The pipeline on a log that Apache Kafka 4.3.1 has just written: classic groups and those of KIP-848."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from time import monotonic  # noqa: TID251  real processes live by the wall clock

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from apache_kafka import ApacheKafka, needs_apache_kafka
from coterie.client.admin.admin import Admin
from coterie.client.admin.admin_types import NewTopic
from coterie.client.producer.producer import Producer
from coterie.spark.pipeline.cluster import topic_names
from coterie.spark.pipeline.groups_pipeline import GroupsPipeline, PipelineOptions
from spark.second_reading import log_of_broker
from spark.tables import assert_as_read_again, table

pytestmark = [
    needs_apache_kafka,
    pytest.mark.real_time,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not os.environ.get("COTERIE_PIPELINE_SOAK"),
        reason="takes minutes: make pipeline-soak has it; a recorded log of Kafka's is read in every run",
    ),
]

PARTITIONS = 4


def consumer(bootstrap: str, protocol: str) -> Consumer:
    found = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"of-{protocol}",
            "group.protocol": protocol,
            "client.id": f"client-{protocol}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    found.subscribe(["orders"])
    return found


def poll_until_held(members: Sequence[Consumer], each: int) -> None:
    until = monotonic() + 120
    while any(len(one.assignment()) != each for one in members):
        assert monotonic() < until, [len(one.assignment()) for one in members]
        for one in members:
            one.poll(0.1)


def commit(member: Consumer, offset: int) -> None:
    places = [TopicPartition(each.topic, each.partition, offset) for each in member.assignment()]
    member.commit(offsets=places, asynchronous=False)


def live(bootstrap: str, protocol: str) -> None:
    """One comes, another comes, one goes, the other goes."""
    first = consumer(bootstrap, protocol)
    poll_until_held([first], PARTITIONS)
    second = consumer(bootstrap, protocol)
    poll_until_held([first, second], PARTITIONS // 2)
    commit(first, 5)
    first.close()
    poll_until_held([second], PARTITIONS)
    commit(second, 7)
    second.close()


def test_tables_of_kafkas_log_are_as_a_second_reading_has_them(spark: SparkSession, tmp_path: Path) -> None:
    with ApacheKafka({"offsets.topic.num.partitions": "2"}) as kafka:
        with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", PARTITIONS)])
        producer = Producer(bootstrap_servers=kafka.bootstrap)
        for number in range(400):
            producer.send("orders", b"%d" % number, partition=number % PARTITIONS)
        producer.flush()
        producer.close()
        for protocol in ("classic", "consumer"):
            live(kafka.bootstrap, protocol)
        kafka_options = {"kafka.bootstrap.servers": kafka.bootstrap}
        GroupsPipeline(spark, PipelineOptions(str(tmp_path), kafka_options), print).once()

        log = log_of_broker(kafka.bootstrap)
        assert_as_read_again(tmp_path, log, topic_names(kafka_options))
        found = table(tmp_path, "rebalances")
        assert {row["protocol"] for row in found} == {"classic", "consumer"} and len(found) >= 6
        assert {row["topic"] for row in table(tmp_path, "ownership")} == {"orders"}
        assert not [row for row in table(tmp_path, "skipped") if row["kind"] == "garbage"]
        health = {row["group_id"]: row for row in table(tmp_path, "health")}
        assert health["of-consumer"]["protocol"] == "consumer" and health["of-classic"]["state"] == "Empty"
        behind = {row["seconds_from"] for row in table(tmp_path, "lag")}
        assert behind == {"record"}, "every record that waits is there to be looked at"
