"""The tables of measurements in README.md and performance.md, from the files of bench/results/."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent.parent / "bench" / "results"
BOTH = ("coterie", "kafka")


class Pair(NamedTuple):
    """The same figure of Coterie and of Apache Kafka, and how many times Kafka's ours is."""

    coterie: float
    kafka: float
    ratio: float

    @classmethod
    def of(cls, coterie: float, kafka: float) -> Pair:
        return cls(coterie, kafka, coterie / kafka)


@cache
def results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def measured(scenario: str, case: str, figure: str) -> Pair | None:
    """Return a figure of `make bench`, or None if that scenario was not measured."""
    cases = results("next_to_kafka")["cases"].get(scenario, {})
    both = [cases.get(name, {}).get(case, {}).get(figure) for name in BOTH]
    return None if None in both else Pair.of(*both)


def several(scenario: str, cases: Sequence[str], figure: str) -> list[Pair]:
    found = [measured(scenario, case, figure) for case in cases]
    return [pair for pair in found if pair is not None]


@dataclass(frozen=True)
class Row:
    label: str
    pairs: Callable[[], Sequence[Pair | None]]
    form: str
    """Of one figure, as for `format`."""
    unit: str
    command: str = "make bench"

    def cells(self) -> str | None:
        pairs = [pair for pair in self.pairs() if pair is not None]
        if not pairs:
            return None
        ours, kafkas = (f"{', '.join(format(pair[at], self.form) for pair in pairs)} {self.unit}" for at in (0, 1))
        ratios = ", ".join(f"{pair.ratio:.2f}" for pair in pairs)
        return f"| {self.label} | {ours} | {kafkas} | {ratios} | `{self.command}` |"


def _quartile(name: str, *keys: str, factor: float = 1) -> Pair:
    """Return medians, of figures that are kept as quartiles. The ratio is that of runs in turns."""
    found = results(name)
    for key in keys:
        found = found[key]
    return Pair(found["coterie"][1] * factor, found["kafka"][1] * factor, found["ratio"])


def _spark(job: str) -> Pair:
    runs = results("spark")[job]
    return Pair(runs["coterie"]["cpu_s"], runs["kafka"]["cpu_s"], runs["ratio"]["cpu"])


def _tls() -> Pair:
    found = results("tls")
    return Pair(found["coterie_cpu_us"], found["kafka_cpu_us"], found["ratio"])


def _transaction() -> Pair:
    found = results("transactions")
    return Pair(found["cpu_us"]["coterie"][1], found["cpu_us"]["kafka"][1], found["ratio"])


PARTITIONS = (1, 10, 100)
RATES = (500, 2000)
GROUPS = "consumer_groups"
FULL_SPEED, RATE = "closed 1000 conns", "open 5000/s 1000 conns"
REJOINS, STORM, IDLE = "closed 100 groups", "100 groups x 10", "10000 members"
CPU, PER_MEMBER = "broker_cpu_us", "broker_cpu_us_per_member"

ROWS = (
    Row("a heartbeat, 1 000 connections at full speed", lambda: [measured("heartbeat", FULL_SPEED, CPU)], ".1f", "µs"),
    Row("a heartbeat, 5 000 a second", lambda: [measured("heartbeat", RATE, CPU)], ".1f", "µs"),
    Row(
        "a heartbeat over TLS, 200 connections at full speed",
        lambda: [_tls()],
        ".1f",
        "µs",
        "make bench-tls",
    ),
    Row(
        "a ConsumerGroupHeartbeat, 200 connections at full speed",
        lambda: [_quartile(GROUPS, "heartbeat", "cpu_us")],
        ".1f",
        "µs",
        "make bench-consumer-groups",
    ),
    Row(
        "1 000 members form a consumer group; one more joins",
        lambda: [_quartile(GROUPS, "large", key, factor=0.001) for key in ("from_nothing_cpu_ms", "one_more_cpu_ms")],
        ".2f",
        "s",
        "make bench-consumer-groups",
    ),
    Row(
        "a commit of 1, 10, 100 partitions, at full speed",
        lambda: several("commit", [f"commit p={count}" for count in PARTITIONS], CPU),
        ".0f",
        "µs",
    ),
    Row(
        "a commit of one partition, at 500 and 2 000 a second",
        lambda: several("commit", [f"commit p=1 open {rate}/s" for rate in RATES], CPU),
        ".0f",
        "µs",
    ),
    Row(
        "a fetch of 1, 10, 100 offsets",
        lambda: several("commit", [f"fetch p={count}" for count in PARTITIONS], CPU),
        ".0f",
        "µs",
    ),
    Row(
        "a transaction of 10 records on 3 partitions with an offset, 100 producers",
        lambda: [_transaction()],
        ".0f",
        "µs",
        "make bench-transactions",
    ),
    Row(
        "a join with its sync, groups of one member at full speed",
        lambda: [measured("rejoin", REJOINS, CPU)],
        ".0f",
        "µs",
    ),
    Row(
        "a rebalance, per member, in groups of 100 and 1 000",
        lambda: several("rebalance", ["n=100", "n=1000"], PER_MEMBER),
        ".0f",
        "µs",
    ),
    Row("100 groups of 10 rejoin at once, per member", lambda: [measured("storm", STORM, PER_MEMBER)], ".0f", "µs"),
    Row(
        "2 000 members with heartbeats, commits and a deploy",
        lambda: [measured("mix", "2000 members", "cpu_percent")],
        ".1f",
        "% of a core",
    ),
    Row("10 000 idle members", lambda: [measured("idle", IDLE, "cpu_percent")], ".1f", "% of a core"),
    Row("10 000 idle members", lambda: [measured("idle", IDLE, "rss_mib")], ".0f", "MiB"),
    Row(
        "produce, fetch, per MB of 1 KiB records",
        lambda: several("data", ["produce 1 KiB", "fetch 1 KiB"], "broker_cpu_ms_per_mb"),
        ".1f",
        "ms",
    ),
    Row("start, exec to first answer", lambda: [measured("start", "start", "api_versions_s")], ".2f", "s"),
    Row("memory after the start", lambda: [measured("start", "start", "rss_mib")], ".0f", "MiB"),
    Row(
        "load 200 000 offsets after `kill -9`, none lost",
        lambda: [measured("recover", "recover", "last_groups_back_s")],
        ".1f",
        "s",
    ),
    Row(
        "Spark reads 5 M records of 100 bytes, plain and lz4; compared with Spark's own Kafka source",
        lambda: [_spark("read, none"), _spark("read, lz4")],
        ".1f",
        "s",
        "make bench-spark",
    ),
    Row(
        "Spark writes 1 M of them; compared with Spark's own Kafka sink",
        lambda: [_spark("write")],
        ".1f",
        "s",
        "make bench-spark",
    ),
)

LATENCIES = ("p50_ms", "p99_ms", "p999_ms")
SATURATED = (
    ("heartbeats", "heartbeat", FULL_SPEED),
    ("commits of one partition", "commit", "commit p=1"),
    ("commits of ten partitions", "commit", "commit p=10"),
    ("joins with their syncs", "rejoin", REJOINS),
)
PARTS_OF_LOAD = (10, 30, 60, 90)


def readme_table() -> str:
    """Broker CPU next to Kafka's, for the README."""
    cells = [row.cells() for row in ROWS]
    return "\n".join(
        [
            "| | Coterie | Kafka | ratio | reproduce with |",
            "|---|---|---|---|---|",
            *(row for row in cells if row is not None),
        ]
    )


def throughput_table() -> str:
    """Requests per second at full speed, both cores shared with the clients."""
    lines = ["| a second, at full speed | Coterie | Kafka | ratio |", "|---|---|---|---|"]
    for label, scenario, case in SATURATED:
        pair = measured(scenario, case, "req_per_s")
        if pair is not None:
            lines.append(f"| {label} | {_thousands(pair.coterie)} | {_thousands(pair.kafka)} | {pair.ratio:.2f} |")
    return "\n".join(lines)


def latency_table() -> str:
    """Latencies in milliseconds by load."""
    lines = [
        "| p50, p99, p99.9 in ms | Coterie | Kafka |",
        "|---|---|---|",
        *(_latencies("commit", f"commit p=1 open {rate}/s", f"commits, {_thousands(rate)} a second") for rate in RATES),
        _latencies("heartbeat", RATE, "heartbeats, 5 000 a second"),
    ]
    lines += [
        _latencies("loads", f"{scenario} at {part} %", f"{scenario}, {part} % of the load that both can answer")
        for scenario in ("heartbeat", "commit", "rejoin", "produce")
        for part in PARTS_OF_LOAD
    ]
    return "\n".join(line for line in lines if line)


def _latencies(scenario: str, case: str, label: str) -> str:
    pairs = [measured(scenario, case, figure) for figure in LATENCIES]
    if None in pairs:
        return ""
    ours, kafkas = (", ".join(f"{pair[at]:.2f}" for pair in pairs if pair) for at in (0, 1))
    return f"| {label} | {ours} | {kafkas} |"


def _thousands(count: float) -> str:
    return f"{count:,.0f}".replace(",", " ")
