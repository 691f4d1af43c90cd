"""Apache Kafka's tools for administrators print the same of our broker as of Apache Kafka 4.3.1.

Differences that are meant are tests of their own, at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from apache_kafka import ApacheKafka, needs_apache_kafka
from clients.harness import BrokerProcess
from clients.nodes import ThreeNodes
from clients.tools import ToolError, Tools
from coterie import Admin, NewTopic, Producer, checked

pytestmark = [pytest.mark.real_time, needs_apache_kafka]

Run = Callable[[Tools], str]


@dataclass(frozen=True)
class Cluster:
    tools: Tools
    changing: Mapping[str, str]
    """What is another one in each cluster: a text, and what stands for it in a comparison."""

    def said(self, run: Run) -> str:
        """What a tool printed, or how it failed, without all that differs between two clusters."""
        try:
            text = run(self.tools)
        except ToolError as error:
            text = f"failed: {error}"
        for own, common in self.changing.items():
            text = text.replace(own, common)
        text = re.sub(r"(?m)^\s+(at|Suppressed:|\.\.\.) .*\n?", "", text)  # of stack traces the messages count
        return re.sub(r"\b1[0-9]{12}\b", "TIME", text)


def prepared(bootstrap: str, data: Path) -> Iterator[Cluster]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        checked(admin.create_topics([NewTopic("t", 2, 1), NewTopic("u", 1, 1)]))
        cluster_id = admin.describe_cluster().cluster_id
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("t", "x", partition=0)
    with Tools(bootstrap) as tools:
        yield Cluster(tools, {str(data): "DATA", bootstrap: "BOOTSTRAP", str(cluster_id): "CLUSTER"})


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with ApacheKafka() as running:
        yield from prepared(running.bootstrap, running.data_dir)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield from prepared(broker.bootstrap, broker.data)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tools read: `here` and `nowhere` are reassignments, `t0` names a partition."""
    directory = tmp_path_factory.mktemp("json")
    contents = {
        "here": {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]},
        "nowhere": {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]},
        "topics": {"version": 1, "topics": [{"topic": "t"}]},
        "t0": {"partitions": [{"topic": "t", "partition": 0}]},
    }
    for name, content in contents.items():
        (directory / name).write_text(json.dumps(content))
    return directory


def _configs(*arguments: str) -> Callable[[Tools, Path], str]:
    return lambda tools, _: tools.configs("--describe", *arguments)


SAME: Mapping[str, Callable[[Tools, Path], str]] = {
    "a reassignment is planned": lambda tools, files: tools.reassign(
        "--generate", "--topics-to-move-json-file", f"{files}/topics", "--broker-list", "1"
    ),
    "a reassignment is done": lambda tools, files: tools.reassign(
        "--execute", "--reassignment-json-file", f"{files}/here"
    ),
    "a reassignment is verified": lambda tools, files: tools.reassign(
        "--verify", "--reassignment-json-file", f"{files}/here"
    ),
    "a reassignment is cancelled": lambda tools, files: tools.reassign(
        "--cancel", "--reassignment-json-file", f"{files}/here"
    ),
    "a reassignment is impossible": lambda tools, files: tools.reassign(
        "--execute", "--reassignment-json-file", f"{files}/nowhere"
    ),
    "reassignments are listed": lambda tools, _: tools.reassign("--list"),
    "all leaders are elected": lambda tools, _: tools.elect("--election-type", "preferred", "--all-topic-partitions"),
    "a leader is elected": lambda tools, _: tools.elect(
        "--election-type", "preferred", "--topic", "t", "--partition", "0"
    ),
    "a leader of no topic is elected": lambda tools, _: tools.elect(
        "--election-type", "preferred", "--topic", "ghost", "--partition", "0"
    ),
    "an unclean leader is elected": lambda tools, files: tools.elect(
        "--election-type", "unclean", "--path-to-json-file", f"{files}/t0"
    ),
    "configs of topics": _configs("--entity-type", "topics"),
    "configs of a topic": _configs("--topic", "t"),
    "configs of a broker": _configs("--broker", "1"),
    "loggers of another broker": _configs("--broker-logger", "2"),
    "configs of groups": _configs("--entity-type", "groups"),
    "configs of a group": _configs("--group", "g"),
    "configs of client metrics": _configs("--entity-type", "client-metrics"),
    "quotas of users": _configs("--entity-type", "users"),
    "quotas of a user": _configs("--user", "alice"),
    "quotas of clients": _configs("--entity-type", "clients"),
    "quotas of a user's clients": _configs("--entity-type", "users", "--entity-type", "clients"),
    "quotas of addresses": _configs("--entity-type", "ips"),
    "a quota is removed that nobody has": lambda tools, _: tools.configs(
        "--alter", "--user", "bob", "--delete-config", "producer_byte_rate"
    ),
    "log directories": lambda tools, _: tools.log_directories("--describe", "--topic-list", "t"),
    "transactions": lambda tools, _: tools.transactions("list"),
    "producers of a partition": lambda tools, _: tools.transactions(
        "describe-producers", "--topic", "t", "--partition", "0"
    ),
    "hanging transactions": lambda tools, _: tools.transactions("find-hanging", "--broker-id", "1"),
    "offsets": lambda tools, _: tools.offsets("--topic", "t"),
    "metrics of clients": lambda tools, _: tools.client_metrics("--list"),
    "topics with problems": lambda tools, _: tools.topics("--describe", "--under-replicated-partitions"),
}  # fmt: skip


@pytest.mark.parametrize("what", SAME)
def test_a_tool_prints_the_same_of_both(what: str, ours: Cluster, kafka: Cluster, files: Path) -> None:
    run = SAME[what]
    assert ours.said(lambda tools: run(tools, files)) == kafka.said(lambda tools: run(tools, files))


# --- differences that are meant ---------------------------------------------------------------------------------------


def test_the_quorum_is_the_same_but_for_a_log_of_metadata(ours: Cluster, kafka: Cluster) -> None:
    def rows(cluster: Cluster) -> dict[str, str]:
        lines = cluster.said(lambda tools: tools.quorum("describe", "--status")).splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    mine, theirs = rows(ours), rows(kafka)
    assert mine.keys() == theirs.keys()
    for key in ("LeaderId", "MaxFollowerLag", "MaxFollowerLagTimeMs", "CurrentObservers", "ClusterId"):
        assert mine[key] == theirs[key], key
    assert (mine["LeaderEpoch"], mine["HighWatermark"]) == ("0", "0")
    table = ours.said(lambda tools: tools.quorum("describe", "--replication")).splitlines()[1].split()
    assert table == ["1", "AAAAAAAAAAAAAAAAAAAAAA", "0", "0", "TIME", "TIME", "Leader"]


def test_a_quota_is_refused_with_the_reason(ours: Cluster) -> None:
    with pytest.raises(ToolError, match="this broker has no quotas"):
        ours.tools.configs("--alter", "--user", "alice", "--add-config", "producer_byte_rate=1000")


def test_the_features_are_those_of_consumer_groups_and_transactions(ours: Cluster) -> None:
    for line, (name, level) in zip(
        ours.tools.features("describe").strip().splitlines(),
        [("group.version", "1"), ("transaction.version", "2")],
        strict=True,
    ):
        assert line.split() == [
            *("Feature:", name, "SupportedMinVersion:", "0", "SupportedMaxVersion:", level),
            *("FinalizedVersionLevel:", level, "Epoch:", "0"),
        ]


def test_every_api_of_ours_is_known_to_the_tool_for_versions(ours: Cluster) -> None:
    listed = ours.tools.api_versions()
    assert "AlterPartitionReassignments(45): 0 to 1" in listed and "UNKNOWN" not in listed


def test_partitions_are_reassigned_to_another_node_and_leaders_elected(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    with (
        ThreeNodes(tmp_path, {"auto.leader.rebalance.enable": "false"}) as nodes,
        Admin(bootstrap_servers=nodes.bootstrap) as admin,
        Tools(nodes.bootstrap) as tools,
    ):
        checked(admin.create_topics([NewTopic("t", replicas={0: [1], 1: [2]})]))

        def leaders() -> list[int | None]:
            found = checked(admin.describe_topics(["t"]))["t"].partitions
            return [one.leader.id if one.leader else None for one in found]

        moves = [{"topic": "t", "partition": 0, "replicas": [3]}, {"topic": "t", "partition": 1, "replicas": [2]}]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        assert "Successfully started" in tools.reassign("--execute", "--reassignment-json-file", str(plan))
        assert leaders() == [3, 2]
        verified = tools.reassign("--verify", "--reassignment-json-file", str(plan))
        assert verified.count("is completed") == 2 and "in progress" not in verified

        nodes.broker.stop_node(3)
        nodes.broker.start_node(3)
        assert leaders() != [3, 2]
        assert "Successfully completed leader election" in tools.elect(
            "--election-type", "preferred", "--topic", "t", "--partition", "0"
        )
        assert leaders() == [3, 2]
        lines = tools.quorum("describe", "--replication").splitlines()[1:]
        assert sorted(line.split()[-1] for line in lines if line.strip()) == ["Follower", "Follower", "Leader"]
