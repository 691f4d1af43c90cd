"""Reports of consumers about rebalances, from the metrics that they push (KIP-714), without I/O.

The last numbers of each client instance are kept. A client that has rebalanced since its last push gives a fact,
`ClientReported`. What a client does not send is None, which is unknown, and never 0.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Final
from uuid import UUID

from coterie.facts import ClientReported
from coterie.protocol.buffer import Buffer
from coterie.protocol.otlp_metrics import NumberPoint, Temporality, read_metrics
from coterie.storage.metadata_files import id_text

MOST_REPORTS = 16_384
"""Client instances whose last numbers are kept."""
KEPT_MS = 3 * 3_600_000
"""How long they are kept: three times the longest push interval."""
LONGEST_LABEL = 32_767
MOST = 1 << 53
"""A larger number is no time and no count."""

_CONSUMER: Final = "org.apache.kafka.consumer."
_COORDINATOR: Final = f"{_CONSUMER}coordinator."
NUMBERS: Mapping[str, str] = {
    f"{_COORDINATOR}rebalance.total": "rebalances",
    f"{_COORDINATOR}rebalance.latency.avg": "rebalance_latency_avg_ms",
    f"{_COORDINATOR}rebalance.latency.max": "rebalance_latency_max_ms",
    f"{_COORDINATOR}rebalance.latency.total": "rebalance_latency_total_ms",
    f"{_COORDINATOR}commit.latency.avg": "commit_latency_avg_ms",
    f"{_COORDINATOR}commit.latency.max": "commit_latency_max_ms",
    f"{_COORDINATOR}assigned.partitions": "assigned_partitions",
    f"{_CONSUMER}poll.idle.ratio.avg": "poll_idle_ratio",
}
"""The metrics that are read, and the fields of `ClientReported` that they are."""
TOTALS = ("rebalances", "rebalance_latency_total_ms")
"""Numbers that grow with each rebalance: the fact has what was added since the last push."""
LATENCIES = ("rebalance_latency_avg_ms", "rebalance_latency_max_ms")
MEASURED = frozenset({*LATENCIES, "commit_latency_avg_ms", "commit_latency_max_ms"})
"""Numbers of which 0 means that nothing was measured: librdkafka sends 0 where the Java client sends NaN."""
MEMBER_ID_LABELS = ("group_member_id", "member_id")
"""The member id as the KIP names it, and as librdkafka does."""
RATIO = "poll_idle_ratio"


@dataclass(slots=True)
class LastReport:
    """The last numbers of one client instance."""

    at_ms: int
    numbers: dict[str, float] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    """The totals of a client that sends sums since its start."""


class ClientReports:
    def __init__(self) -> None:
        self.by_instance: OrderedDict[UUID, LastReport] = OrderedDict()
        """The oldest come first."""

    def receive(
        self, client_instance_id: UUID, metrics: Buffer, client_id: str, host: str, now_ms: int
    ) -> ClientReported | None:
        """Take the metrics of a push. Returns a fact if the client has rebalanced. Raises `MalformedError`."""
        points = read_metrics(metrics, NUMBERS.__contains__)
        last = self.by_instance.get(client_instance_id, LastReport(now_ms))
        numbers, sums = _numbers(points, last.sums)
        if not numbers and not sums:
            return None
        self.by_instance[client_instance_id] = LastReport(now_ms, {**last.numbers, **numbers}, {**last.sums, **sums})
        self.by_instance.move_to_end(client_instance_id)
        self._forget_old(now_ms)
        labels = _labels(points)
        group_id = labels.get("group_id", "")
        if not group_id or not has_rebalanced(numbers, last.numbers):
            return None
        whole = {name: ceil(number) for name, number in numbers.items() if name != RATIO}
        return ClientReported(
            now_ms,
            group_id,
            member_id=next((labels[name] for name in MEMBER_ID_LABELS if name in labels), ""),
            instance_id=labels.get("group_instance_id"),
            client_id=client_id,
            client_instance_id=id_text(client_instance_id),
            client_host=host,
            poll_idle_ratio=numbers.get(RATIO),
            **whole,
        )

    def _forget_old(self, now_ms: int) -> None:
        while self.by_instance:
            oldest, report = next(iter(self.by_instance.items()))
            if len(self.by_instance) <= MOST_REPORTS and now_ms - report.at_ms <= KEPT_MS:
                return
            del self.by_instance[oldest]


def has_rebalanced(numbers: Mapping[str, float], before: Mapping[str, float]) -> bool:
    """Return whether a client has rebalanced since its last push.

    A total says it. A client that sends none has, if a latency of rebalances is not what it was: averages and maxima
    stay for a while.
    """
    totals = [numbers[name] for name in TOTALS if name in numbers]
    if totals:
        return any(total > 0 for total in totals)
    return any(name in numbers and numbers[name] != before.get(name) for name in LATENCIES)


def _numbers(
    points: Iterable[NumberPoint], sums_before: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the numbers by field, and the sums since the start. A sum gives a number if the one before it is known."""
    numbers: dict[str, float] = {}
    sums: dict[str, float] = {}
    for point in points:
        name = NUMBERS[point.name]
        if not 0 <= point.value <= MOST or (point.value == 0 and name in MEASURED):
            continue
        if name not in TOTALS or point.temporality is Temporality.DELTA:
            numbers[name] = point.value
            continue
        sums[name] = point.value
        if name in sums_before:  # less than before: the client has begun again
            added = point.value - sums_before[name]
            numbers[name] = added if added >= 0 else point.value
    return numbers, sums


def _labels(points: Iterable[NumberPoint]) -> dict[str, str]:
    found: dict[str, str] = {}
    for point in points:
        found.update({name: text for name, text in point.labels.items() if 0 < len(text) <= LONGEST_LABEL})
    return found
