"""What confluent-kafka's and kafka-python's admin clients say of a cluster: the same of ours and of Apache Kafka 4.3.1.

Each method that asks about the cluster is called on both. Differences that are meant are named where they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import ElectionType, TopicCollection, TopicPartition
from confluent_kafka import admin as untyped_admin
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaError as PythonError

from apache_kafka import ApacheKafka, needs_apache_kafka
from clients.harness import BrokerProcess
from coterie import Admin, NewTopic, Producer, checked

pytestmark = [pytest.mark.real_time, needs_apache_kafka]

SECONDS = 30
confluent: Any = untyped_admin
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
P0, GHOST = PythonPartition("t", 0), PythonPartition("ghost", 0)
PREFERRED, UNCLEAN = 0, 1


class Cluster(NamedTuple):
    confluent: AdminClient
    python: Any
    changing: Mapping[str, str]
    """What is another one in each cluster: a text, and what stands for it in a comparison."""


def prepared(bootstrap: str, data: Path) -> Iterator[Cluster]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        (made,) = checked(admin.create_topics([NewTopic("t", 2, 1)])).values()
        cluster_id = str(admin.describe_cluster().cluster_id)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("t", "x", partition=0, timestamp=1_700_000_000_000)
    changing = {str(data): "DATA", bootstrap.rpartition(":")[2]: "PORT", cluster_id: "CLUSTER", str(made.id): "T"}
    librdkafka = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    python = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        yield Cluster(librdkafka, python, changing)
    finally:
        python.close()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with ApacheKafka() as running:
        yield from prepared(running.bootstrap, running.data_dir)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield from prepared(broker.bootstrap, broker.data)


def _elected(cluster: Cluster, kind: Any, places: list[TopicPartition] | None) -> dict[tuple[str, int], str]:
    found = cluster.confluent.elect_leaders(kind, places).result(SECONDS)
    return {(place.topic, place.partition): str(error) for place, error in found.items()}


def _configs(cluster: Cluster, kind: Any, name: str) -> dict[str, tuple[str, int, bool]]:
    (found,) = cluster.confluent.describe_configs([confluent.ConfigResource(kind, name)]).values()
    asked = ("node.id", "log.dirs", "num.partitions", "retention.ms", "cleanup.policy")
    return {
        name: (entry.value, entry.source, entry.is_read_only)
        for name, entry in sorted(found.result(SECONDS).items())
        if name in asked
    }


def _offsets(cluster: Cluster) -> list[tuple[int, int, int]]:
    found = cluster.confluent.list_offsets({T0: confluent.OffsetSpec.latest(), T1: confluent.OffsetSpec.earliest()})
    return [(place.partition, one.result(SECONDS).offset, one.result().leader_epoch) for place, one in found.items()]


def _topics(cluster: Cluster) -> list[Any]:
    found = cluster.confluent.describe_topics(TopicCollection(["t"]))["t"].result(SECONDS)
    return [(one.id, one.leader.id, [node.id for node in one.replicas]) for one in found.partitions]


def _log_dirs(cluster: Cluster) -> Any:
    """The sizes; the disks are one, but what is free of it changes."""
    (found,) = cluster.python.describe_log_dirs()
    (directory,) = found["log_dirs"]
    for topic in directory["topics"]:
        topic["partitions"].sort(key=lambda one: one["partition_index"])
    assert directory.pop("total_bytes") >= directory.pop("usable_bytes") > 0
    return directory


def _quorum(cluster: Cluster) -> Any:
    """The leader and the voters: Coterie has no metadata log, and no listener of its own for controllers."""
    (topic,) = cluster.python.describe_metadata_quorum()["topics"]
    (partition,) = topic["partitions"]
    return topic["topic_name"], partition["leader_id"], [one["replica_id"] for one in partition["current_voters"]]


SAME: Mapping[str, Callable[[Cluster], Any]] = {
    "confluent: elections": lambda c: _elected(c, ElectionType.PREFERRED, [T0, TopicPartition("ghost", 0)]),
    "confluent: all elections": lambda c: _elected(c, ElectionType.PREFERRED, None),
    "confluent: unclean elections": lambda c: _elected(c, ElectionType.UNCLEAN, [T0, TopicPartition("t", 9)]),
    "confluent: cluster": lambda c: [
        (found.controller.id, [node.id for node in found.nodes])
        for found in [c.confluent.describe_cluster().result(SECONDS)]
    ],
    "confluent: offsets": _offsets,
    "confluent: topics": _topics,
    "confluent: configs of a topic": lambda c: _configs(c, confluent.ResourceType.TOPIC, "t"),
    "confluent: configs of a broker": lambda c: _configs(c, confluent.ResourceType.BROKER, "1"),
    "confluent: groups": lambda c: c.confluent.list_consumer_groups().result(SECONDS).valid,
    "kafka-python: a reassignment": lambda c: c.python.alter_partition_reassignments({P0: [1]}),
    "kafka-python: wrong reassignments": lambda c: c.python.alter_partition_reassignments({P0: [7], GHOST: [1]}),
    "kafka-python: a cancelled reassignment": lambda c: c.python.alter_partition_reassignments({P0: None}),
    "kafka-python: reassignments": lambda c: c.python.list_partition_reassignments(),
    "kafka-python: an election": lambda c: c.python.elect_leaders(PREFERRED, [P0], raise_errors=False),
    "kafka-python: an unclean election": lambda c: c.python.elect_leaders(UNCLEAN, [P0, GHOST], raise_errors=False),
    "kafka-python: all elections": lambda c: c.python.elect_leaders(PREFERRED),
    "kafka-python: quorum": _quorum,
    "kafka-python: what has configs": lambda c: c.python.list_config_resources(),
    "kafka-python: producers": lambda c: c.python.describe_producers([P0]),
    "kafka-python: producers of no partition": lambda c: c.python.describe_producers([GHOST]),
    "kafka-python: transactions": lambda c: c.python.list_transactions(),
    "kafka-python: hanging transactions": lambda c: c.python.find_hanging_transactions(),
    "kafka-python: log directories": _log_dirs,
    "kafka-python: offsets": lambda c: c.python.list_partition_offsets({P0: -1}),
    "kafka-python: the version that it guesses": lambda c: str(c.python.get_broker_version_data(1)),
}


@pytest.mark.parametrize("what", SAME)
def test_an_admin_client_is_told_the_same(what: str, ours: Cluster, kafka: Cluster) -> None:
    def said(cluster: Cluster) -> str:
        try:
            text = str(SAME[what](cluster))
        except PythonError as error:
            text = f"failed: {error!r}"
        for own, common in cluster.changing.items():
            text = text.replace(own, common)
        return re.sub(r"\b1[89][0-9]{11}\b", "NOW", text)

    assert said(ours) == said(kafka)
