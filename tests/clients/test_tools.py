"""Apache Kafka's own tools, unmodified: what an operator types against a Kafka cluster works here."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from apache_kafka import java_command, needs_apache_kafka
from clients.harness import BrokerProcess, Crew, Lines, wait_until
from clients.producing import Topics
from clients.tools import TOOLS, ToolError, Tools
from coterie.protocol.batch import BatchHeader, Compression, batches

pytestmark = [pytest.mark.real_time, needs_apache_kafka]

SECONDS = 60


def rows(table: str, first: str) -> list[list[str]]:
    """The lines that begin with a word, cut into words."""
    return [words for words in map(str.split, table.splitlines()) if words and words[0] == first]


@pytest.fixture(scope="module")
def tools(broker: BrokerProcess) -> Iterator[Tools]:
    with Tools(broker.bootstrap) as runner:
        yield runner


def test_a_topic_lives_by_the_topic_and_the_config_tool(tools: Tools, name: str) -> None:
    assert f"Created topic {name}." in tools.topics(
        "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=86400000"
    )
    with pytest.raises(ToolError, match="already exists"):
        tools.topics("--create", "--topic", name)
    tools.topics("--alter", "--topic", name, "--partitions", "3")
    described = tools.topics("--describe", "--topic", name)
    assert "PartitionCount: 3" in described and "ReplicationFactor: 1" in described
    assert "Configs: retention.ms=86400000" in described
    assert described.count("Leader: 1") == 3

    assert "Completed updating" in tools.configs("--alter", "--topic", name, "--add-config", "retention.ms=5000")
    assert "retention.ms=5000" in tools.configs("--describe", "--topic", name)
    with pytest.raises(ToolError, match="InvalidConfigurationException"):
        tools.configs("--alter", "--topic", name, "--add-config", "retention.ms=soon")

    tools.topics("--delete", "--topic", name)
    assert name not in tools.topics("--list").split()


def test_a_group_is_listed_described_reset_and_deleted(tools: Tools, crew: Crew, topics: Topics, name: str) -> None:
    places = topics.create(name, 2)
    topics.fill(places, 6)
    member = crew.start("java", assignor="range", topics=[name])
    crew.wait_until_settled(places)
    crew.wait_until_committed(topics.ends(places))
    group = ("--group", name)

    assert [name, "Stable"] in rows(tools.groups("--list", "--state"), name)
    offsets = rows(tools.groups("--describe", *group), name)
    assert sorted(row[1:6] for row in offsets) == [[name, str(number), "6", "6", "0"] for number in (0, 1)]
    assert {row[8] for row in offsets} == {member.client_id}
    (told,) = rows(tools.groups("--describe", *group, "--members", "--verbose"), name)
    assert told[3:5] == [member.client_id, "2"] and f"{name}:0,1" in "".join(told)
    (state,) = rows(tools.groups("--describe", *group, "--state"), name)
    assert state[-3:] == ["range", "Stable", "1"]
    assert [name, "Classic", "consumer"] in rows(tools.all_groups("--list"), name)
    to_two = ("--reset-offsets", *group, "--topic", name, "--to-offset", "2")
    assert "inactive" in tools.groups(*to_two, "--execute"), "offsets of a group with members cannot be set"

    member.leave()
    planned = [[name, name, str(number), "2"] for number in (0, 1)]
    assert sorted(rows(tools.groups(*to_two, "--dry-run"), name)) == planned
    assert crew.broker.facts.committed(name) == topics.ends(places), "a dry run changes nothing"
    assert sorted(rows(tools.groups(*to_two, "--execute"), name)) == planned
    assert set(crew.broker.facts.committed(name).values()) == {2}
    again = crew.start("confluent", assignor="range", topics=[name])
    crew.wait_until_committed(topics.ends(places))
    assert {offset for _, _, offset, _ in again.consumed} == {2, 3, 4, 5}
    again.leave()

    assert "was successful" in tools.groups("--delete", *group)
    assert name not in tools.groups("--list").split()


def test_the_java_consumer_follows_a_pattern_to_topics_created_later(
    broker: BrokerProcess, topics: Topics, name: str, tmp_path: Path
) -> None:
    """By ConsoleConsumer, since VerifiableConsumer takes no pattern."""
    config, out = tmp_path / "consumer.properties", tmp_path / "console.out"
    config.write_text(f"group.id={name}\nmetadata.max.age.ms=300\nauto.offset.reset=earliest\n")
    first = topics.create(f"{name}-a", 1)
    topics.fill(first)
    command = java_command(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--include", f"{name}-.*", "--command-config", config),
    )
    with out.open("wb") as stdout:
        process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL)
    try:
        lines = Lines(out)
        values: list[str] = []

        def has_read(count: int) -> bool:
            values.extend(line for line in lines.new() if "KIP-848" not in line)  # the new client advertises itself
            return len(values) >= count

        wait_until(lambda: has_read(5), "the first topic is read", lines.tail)
        second = topics.create(f"{name}-b", 1)
        topics.fill(second)
        wait_until(lambda: has_read(10), "the second topic is read", lines.tail)
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()
    assert sorted(values) == sorted(value for place in first | second for value in topics.produced[place])


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_the_java_producer_compresses(
    compression: str, tools: Tools, broker: BrokerProcess, topics: Topics, name: str
) -> None:
    topics.create(name, 1)
    told = tools.produce(
        *("--topic", name, "--num-records", "200", "--record-size", "200", "--throughput", "-1"),
        *("--command-property", f"compression.type={compression}"),
    )
    assert "200 records sent" in told
    (log,) = (broker.data / f"{name}-0").glob("*.log")

    def stored() -> list[BatchHeader]:
        return [header for _, header in batches(log.read_bytes())]

    wait_until(lambda: sum(one.record_count for one in stored()) == 200, "200 records are in the segment", broker.said)
    headers = stored()
    assert {header.compression for header in headers} == {Compression[compression.upper()]}
    assert all(header.has_producer for header in headers), "the Java producer is idempotent unless told otherwise"
