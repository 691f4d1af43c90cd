"""Metrics of groups for Prometheus. They need the extra `metrics`.

A value that is not known has no sample: 0 would say that it is known. `COMPATIBLE` has the names of other exporters, so
that dashboards that were made for them go on working.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from coterie.diagnosis import GroupSample, PartitionLag
from coterie.errors import CoterieError
from coterie.extras import how_to_install
from coterie.web.totals import BUCKETS_S

if TYPE_CHECKING:
    from prometheus_client import Metric

    from coterie.web.groups import WatchedGroup, WatchedGroups

Named = Iterable[tuple[str, "WatchedGroup"]]


class MetricsPage:
    """Writes the metrics in the format that the scraper asks for."""

    def __init__(self, groups: WatchedGroups, compatible: str | None = None) -> None:
        try:
            from prometheus_client import CollectorRegistry
        except ModuleNotFoundError:
            raise CoterieError(f"metrics need prometheus-client: {how_to_install('metrics')}") from None
        self._registry = CollectorRegistry()
        self._registry.register(GroupMetrics(groups, compatible))

    def write(self, accepts: str = "") -> tuple[bytes, str]:
        """Return the page and its content type."""
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accepts)
        return encode(self._registry), content_type


class GroupMetrics:
    """A collector: it reads the groups when they are scraped."""

    def __init__(self, groups: WatchedGroups, compatible: str | None = None) -> None:
        self._groups = groups
        self._compatible = COMPATIBLE[compatible] if compatible else None

    def describe(self) -> Iterable[Metric]:
        """Return nothing: a registry would collect all of them to know their names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        groups = list(self._groups.groups.items())
        yield from _rebalances(groups)
        yield from _lag(groups)
        yield from _findings(self._groups)
        if self._compatible is not None:
            samples = {name: group.lag.last for name, group in groups if group.lag.last is not None}
            yield from self._compatible(samples)


def _gauge(name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float | None]]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        if value is not None:
            family.add_metric(values, value)
    return family


def _counter(name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _rebalances(groups: Named) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    yield _counter(
        "coterie_group_rebalances",
        "Rebalances that have ended, by cause.",
        ["group", "cause"],
        [((name, cause), n) for name, group in groups for cause, n in sorted(group.totals.causes.items())],
    )
    durations = HistogramMetricFamily(
        "coterie_group_rebalance_duration_seconds",
        "Durations of rebalances; those of unknown duration are left out.",
        labels=["group"],
    )
    limits = [*(str(limit) for limit in BUCKETS_S), "+Inf"]
    for name, group in groups:
        counts = list(zip(limits, accumulate(group.totals.durations), strict=True))
        durations.add_metric([name], counts, group.totals.duration_ms / 1_000)
    yield durations
    yield _counter(
        "coterie_group_unassigned_partition_seconds",
        "Time for which partitions had no owner until a rebalance assigned them again, summed over partitions.",
        ["group"],
        [((name,), group.totals.unassigned_ms / 1_000) for name, group in groups],
    )
    yield _counter(
        "coterie_group_dead_partition_seconds",
        "Time from the last sign of life of a crashed member to the end of its session, summed over its partitions.",
        ["group"],
        [((name,), group.timeline.dead_partition_ms / 1_000) for name, group in groups],
    )
    yield _counter(
        "coterie_group_moved_partitions",
        "Partitions that another member got in a rebalance.",
        ["group"],
        [((name,), group.totals.moved) for name, group in groups],
    )


def _lag(groups: Named) -> Iterator[Metric]:
    sampled = [(name, group, group.lag.last, group.lag.points[-1]) for name, group in groups if group.lag.last]
    yield _gauge(
        "coterie_group_lag_records",
        "Records between the committed offset and the end of the log, summed over the partitions of a topic.",
        ["group", "topic"],
        [((name, topic), lag) for name, _, last, _ in sampled for topic, lag in _by_topic(last, _lag_of).items()],
    )
    yield _gauge(
        "coterie_group_lag_seconds",
        "For how long the oldest record that was not committed yet has waited; the largest of all partitions.",
        ["group"],
        [((name,), point.seconds) for name, _, _, point in sampled],
    )
    yield _gauge(
        "coterie_group_members",
        "Members of the group.",
        ["group"],
        [((name,), len(last.members)) for name, _, last, _ in sampled],
    )
    yield _gauge(
        "coterie_group_state",
        "1 for the state that the group is in.",
        ["group", "state"],
        [((name, last.state), 1) for name, _, last, _ in sampled],
    )
    yield _gauge(
        "coterie_group_unassigned_partitions",
        "Unassigned partitions with a committed offset.",
        ["group"],
        [((name,), sum(not one.owner for one in last.partitions)) for name, _, last, _ in sampled],
    )


def _findings(groups: WatchedGroups) -> Iterator[Metric]:
    counts = Counter((one.group_id, one.name, str(one.severity)) for one in groups.findings())
    yield _gauge(
        "coterie_group_findings",
        "What is wrong with the group, by the name of the finding.",
        ["group", "finding", "severity"],
        [(labels, count) for labels, count in sorted(counts.items())],
    )
    yield _counter(
        "coterie_facts_lost",
        "Events that were not looked at, because there were too many.",
        [],
        [((), groups.lost)],
    )


def _lag_of(one: PartitionLag) -> int | None:
    return one.lag


def _by_topic(sample: GroupSample, value_of: Callable[[PartitionLag], int | None]) -> dict[str, int]:
    """Return sums by topic, of the partitions whose value is known."""
    sums: dict[str, int] = {}
    for one in sample.partitions:
        value = value_of(one)
        if value is not None:
            sums[one.topic] = sums.get(one.topic, 0) + value
    return sums


# --- the names of other exporters -------------------------------------------------------------------------------------

Samples = Mapping[str, GroupSample]


def _kafka_exporter(samples: Samples) -> Iterator[Metric]:
    """Use the names of github.com/danielqsj/kafka_exporter."""
    group, topic, partition = "consumergroup", "topic", "partition"
    each = [((name, one.topic, str(one.partition)), one) for name, last in samples.items() for one in last.partitions]
    yield _gauge(
        "kafka_consumergroup_current_offset",
        "Committed offset of a group.",
        [group, topic, partition],
        [(labels, one.committed) for labels, one in each],
    )
    yield _gauge(
        "kafka_consumergroup_current_offset_sum",
        "Committed offsets of a group, summed over a topic.",
        [group, topic],
        _sums(samples, lambda one: one.committed),
    )
    yield _gauge("kafka_consumergroup_lag", "Lag of a group.", [group, topic, partition], [(x, o.lag) for x, o in each])
    yield _gauge(
        "kafka_consumergroup_lag_sum", "Lag of a group, summed over a topic.", [group, topic], _sums(samples, _lag_of)
    )
    yield _gauge("kafka_consumergroup_members", "Members of a group.", [group], _members(samples))
    yield _gauge(
        "kafka_topic_partition_current_offset", "End offset of a partition.", [topic, partition], _ends(samples)
    )


def _kminion(samples: Samples) -> Iterator[Metric]:
    """Use the names of github.com/redpanda-data/kminion."""
    group, topic, partition = "group_id", "topic_name", "partition_id"
    name = "kminion_kafka_consumer_group"
    each = [((name, one.topic, str(one.partition)), one) for name, last in samples.items() for one in last.partitions]
    yield _gauge(
        f"{name}_topic_partition_lag", "Lag of a group.", [group, topic, partition], [(x, o.lag) for x, o in each]
    )
    yield _gauge(f"{name}_topic_lag", "Lag of a group, summed over a topic.", [group, topic], _sums(samples, _lag_of))
    yield _gauge(
        f"{name}_topic_offset_sum",
        "Committed offsets of a group, summed over a topic.",
        [group, topic],
        _sums(samples, lambda one: one.committed),
    )
    yield _gauge(
        f"{name}_topic_assigned_partitions",
        "Assigned partitions of a group, by topic.",
        [group, topic],
        _sums(samples, lambda one: 1 if one.owner else None),
    )
    yield _gauge(f"{name}_members", "Members of a group.", [group], _members(samples))
    yield _gauge(
        f"{name}_info",
        "1 if the group is Stable, else 0.",
        [group, "state"],
        [((one, last.state), float(last.state == "Stable")) for one, last in samples.items()],
    )
    yield _gauge(
        "kminion_kafka_topic_partition_high_water_mark",
        "High watermark of a partition.",
        [topic, partition],
        _ends(samples),
    )


def _sums(samples: Samples, value_of: Callable[[PartitionLag], int | None]) -> list[tuple[Sequence[str], float]]:
    return [((name, topic), n) for name, last in samples.items() for topic, n in _by_topic(last, value_of).items()]


def _members(samples: Samples) -> list[tuple[Sequence[str], float]]:
    return [((name,), len(last.members)) for name, last in samples.items()]


def _ends(samples: Samples) -> list[tuple[Sequence[str], float | None]]:
    ends = {(one.topic, one.partition): one.end for last in samples.values() for one in last.partitions}
    return [((topic, str(number)), end) for (topic, number), end in sorted(ends.items())]


COMPATIBLE: Mapping[str, Callable[[Samples], Iterator[Metric]]] = {
    "kafka_exporter": _kafka_exporter,
    "kminion": _kminion,
}
"""Other exporters, and their names for what is known here."""
