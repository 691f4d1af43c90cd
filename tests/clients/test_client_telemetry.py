"""Real clients push their metrics (KIP-714), and what they say about rebalances is in the log and in the diagnosis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apache_kafka import needs_apache_kafka
from clients.harness import BrokerProcess, Crew, wait_until
from clients.tools import Tools
from coterie import Admin, ConfigChange, ConfigResource, NewTopic, checked
from coterie.diagnosis import Grade
from coterie.diagnosis.from_facts import HistoryBuilder
from coterie.diagnosis.model import Happening
from coterie.facts import Fact
from coterie.ledger.written_facts import read_fact
from coterie.protocol.api import ResourceType

pytestmark = pytest.mark.real_time

INTERVAL_MS = 1_000
SUBSCRIPTION = [
    ConfigChange("metrics", "org.apache.kafka.consumer."),
    ConfigChange("interval.ms", str(INTERVAL_MS)),
    ConfigChange("match", "client_id=g-.*"),
]


@pytest.fixture
def telemetry_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, {"coterie.client.telemetry.enable": "true"}) as running:
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            checked(admin.alter_configs({ConfigResource(ResourceType.CLIENT_METRICS, "rebalances"): SUBSCRIPTION}))
            checked(admin.create_topics([NewTopic("t", 3)]))
        yield running


@pytest.mark.parametrize("library", ["confluent", pytest.param("java", marks=needs_apache_kafka)])
def test_a_consumer_reports_its_rebalance(telemetry_broker: BrokerProcess, tmp_path: Path, library: str) -> None:
    facts = telemetry_broker.facts
    with Crew(telemetry_broker, tmp_path, "g") as crew:
        crew.start(library, topics=["t"], assignor="range")
        crew.wait_until_settled({("t", 0), ("t", 1), ("t", 2)})
        wait_until(lambda: bool(facts.of("g", "ClientReported")), "the client reports a rebalance", crew.said)
        (member_id,) = {one["member_id"] for one in facts.of("g", "MemberJoined")}
    told = facts.of("g", "ClientReported")[0]
    assert told["client_id"] == facts.of("g", "MemberJoined")[0]["client_id"]
    assert told["member_id"] == member_id and told["client_host"] == "127.0.0.1"
    assert len(told["client_instance_id"]) == 22
    assert told["rebalance_latency_max_ms"] > 0 and told["rebalance_latency_total_ms"] > 0
    if library == "java":
        assert told["rebalances"] >= 1
    else:
        assert told["rebalances"] is None, "librdkafka does not count them"
    check_diagnosis(facts.of("g"), member_id)


@needs_apache_kafka
def test_kafkas_tool_sets_describes_and_deletes_a_subscription(telemetry_broker: BrokerProcess) -> None:
    with Tools(telemetry_broker.bootstrap) as tools:
        asked = ("--metrics", "org.apache.kafka.producer.", "--interval", "30000")
        tools.client_metrics("--alter", "--name", "more", *asked)
        assert tools.client_metrics("--list").split() == ["more", "rebalances"]
        told = tools.client_metrics("--describe", "--name", "more")
        assert "interval.ms=30000" in told and "metrics=org.apache.kafka.producer." in told
        tools.client_metrics("--delete", "--name", "more")
        assert tools.client_metrics("--list").split() == ["rebalances"]


def check_diagnosis(told: list[dict[str, Any]], member_id: str) -> None:
    """The report is evidence of the group, and nothing disagrees with it."""
    builder = HistoryBuilder(Grade.OBSERVED)
    for fact in _facts(told):
        builder.add(fact, "log")
    history = builder.histories()["g"]
    assert history.grades == {"observed", "reported"}
    assert any(one.what is Happening.CLIENT_REPORTED for one in history.events)
    latency = history.members[member_id].rebalance_latency_max_ms
    assert latency.grade is Grade.REPORTED and latency.value is not None and latency.value > 0
    assert not any(one.disagreements for one in history.rebalances)


def _facts(told: list[dict[str, Any]]) -> Iterator[Fact]:
    for one in told:
        fact = read_fact(json.dumps(one).encode())
        assert fact is not None
        yield fact
