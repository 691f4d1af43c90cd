"""Metrics say what is known and leave out what is not; the dashboard and the alerts ask for metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from coterie.diagnosis import Grade, GroupSample, PartitionLag
from coterie.web.groups import WatchedGroups, from_facts
from coterie.web.metrics import COMPATIBLE, MetricsPage
from web.page_groups import bad_group, small_group

MONITORING = Path(__file__).parents[2] / "monitoring"
WORDS = frozenset(
    {
        "sum",
        "by",
        "rate",
        "increase",
        "histogram_quantile",
        "max",
        "and",
        "on",
        "group",
        "cause",
        "le",
        "topic",
        "finding",
    }
)


def written(
    groups: WatchedGroups, compatible: str | None = None
) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = MetricsPage(groups, compatible).write()[0].decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def watched() -> WatchedGroups:
    groups = from_facts([*small_group(), *bad_group()], Grade.OBSERVED, "broker")
    partitions = (PartitionLag("t", 0, 5, 9, "a"), PartitionLag("t", 1, 7, 7, "a"), PartitionLag("u", 0, None, 4))
    for at_ms in (1_000, 2_000):
        groups.add_samples({"billing": GroupSample(at_ms, "Stable", 3, ("a",), "1", partitions)})
    return groups


def test_rebalances_costs_lag_and_findings_are_counted() -> None:
    found = written(watched())
    billing = ("group", "billing")

    def value(name: str, *labels: tuple[str, str]) -> float | None:
        return found.get((name, tuple(sorted(labels))))

    assert value("coterie_group_rebalances_total", billing, ("cause", "new member")) == 3
    assert value("coterie_group_rebalances_total", billing, ("cause", "session expired")) == 1
    assert value("coterie_group_rebalance_duration_seconds_count", billing) == 5
    assert value("coterie_group_rebalance_duration_seconds_bucket", billing, ("le", "1.0")) == 4
    assert value("coterie_group_dead_partition_seconds_total", billing) == 90
    assert value("coterie_group_unassigned_partition_seconds_total", billing) == pytest.approx(15.57)
    assert value("coterie_group_lag_records", billing, ("topic", "t")) == 4
    assert value("coterie_group_lag_records", billing, ("topic", "u")) is None, "nothing was committed: it is unknown"
    assert value("coterie_group_lag_seconds", billing) is None, "the first sample is later than the record"
    assert (
        value("coterie_group_members", billing) == 1 and value("coterie_group_members", ("group", "payments")) is None
    )
    assert value("coterie_group_findings", billing, ("finding", "crash"), ("severity", "warning")) == 1


@pytest.mark.parametrize(
    ("name", "lag", "labels", "silent"),
    [
        (
            "kafka_exporter",
            "kafka_consumergroup_lag",
            {"consumergroup": "billing", "topic": "t", "partition": "0"},
            "kafka_consumergroup_members",
        ),
        (
            "kminion",
            "kminion_kafka_consumer_group_topic_partition_lag",
            {"group_id": "billing", "topic_name": "t", "partition_id": "0"},
            "kminion_kafka_consumer_group_members",
        ),
    ],
)
def test_other_exporters_names_are_served_too(name: str, lag: str, labels: dict[str, str], silent: str) -> None:
    found = written(watched(), name)
    assert found[lag, tuple(sorted(labels.items()))] == 4
    assert len([key for key in found if key[0] == lag]) == 2, "unknown lag has no sample"
    assert [key for key in found if key[0] == silent]
    assert not [key for key in written(watched()) if key[0] == lag] and name in COMPATIBLE


def test_a_scraper_may_ask_for_openmetrics() -> None:
    _, content_type = MetricsPage(watched()).write("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")


def queries() -> list[Any]:
    alerts = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    rules = [(f"alert {rule['alert']}", rule["expr"]) for group in alerts["groups"] for rule in group["rules"]]
    panels = [(f"panel {one['title']}", each["expr"]) for one in dashboard["panels"] for each in one["targets"]]
    return [pytest.param(expr, id=name) for name, expr in [*rules, *panels]]


@pytest.mark.parametrize("query", queries())
def test_queries_are_well_formed_and_ask_for_metrics_that_exist(query: str) -> None:
    outside = re.sub(r'"[^"]*"', '""', query)
    for opening, closing in ("()", "{}", "[]"):
        assert outside.count(opening) == outside.count(closing)
    names = {name for name, _ in written(watched())}
    labels = {label for _, found in written(watched()) for label, _ in found}
    asked = set(re.findall(r"\b(?!\d)[a-z_]+\b", re.sub(r"\[[^\]]*\]|\$\w+", "", outside)))
    metrics = {one for one in asked if one.startswith("coterie_")}
    known = names | {"coterie_group_lag_seconds"}  # it is unknown in this sample
    assert metrics and metrics <= known, metrics - known
    assert asked - metrics <= WORDS | labels | {"severity"}, asked - metrics


def test_alerts_and_dashboard_have_what_their_readers_need() -> None:
    alerts = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    for rule in alerts["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert {"summary", "description"} == rule["annotations"].keys() and re.fullmatch(r"\d+m", rule.get("for", "1m"))
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) and dashboard["schemaVersion"] >= 36
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24 and panel["type"] in {"timeseries", "table"}
