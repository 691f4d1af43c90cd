"""The group coordinators of Coterie and of Apache Kafka 4.3.1, measured by coordbench in one run.

    make bench
    .venv/bin/python bench/next_to_kafka.py [--json FILE] [--quick] [--only rebalance] [--flush os]

Both brokers run at once, each on its defaults (Coterie syncs to disk before it answers, Kafka does not), and are loaded
in turn, never together. Kafka is warmed first: a JVM needs it. What counts is the broker's CPU for a request, ours
divided by Kafka's; `aim` is what we want of it. Needs Java, and Maven or COTERIE_KAFKA_LIBS.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from data_path import data_path  # noqa: E402
from measured import Process, commit, coterie_serve, write_results  # noqa: E402

from apache_kafka import CLUSTER_ID, SERVER, ApacheKafka, java_command, why_not  # noqa: E402

Cases = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Aim:
    scenario: str
    case: str
    figure: str
    ratio: float | None = None
    """Of Kafka's, at most."""
    at_least: float | None = None
    """Of Kafka's, for a figure of which more is better."""
    at_most: float | None = None
    """By itself, whatever Kafka does."""

    def is_met(self, ours: float, ratio: float | None) -> bool:
        if self.at_most is not None:
            return ours <= self.at_most
        if ratio is None:
            return False
        return ratio >= self.at_least if self.at_least is not None else ratio <= (self.ratio or 0)

    def __str__(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return f"ratio >= {self.at_least:g}" if self.at_least is not None else f"ratio <= {self.ratio:g}"


AIMS = (
    Aim("heartbeat", "closed 1000 conns", "broker_cpu_us", ratio=0.5),
    Aim("heartbeat", "closed 1000 conns", "req_per_s", at_least=1.0),
    Aim("heartbeat", "open 5000/s 1000 conns", "broker_cpu_us", ratio=0.25),
    Aim("heartbeat", "open 5000/s 1000 conns", "p99_ms", ratio=1.0),
    *(
        Aim("commit", f"commit p={count}", "broker_cpu_us", ratio=ratio)
        for count, ratio in ((1, 0.6), (10, 0.45), (100, 0.35))
    ),
    Aim("commit", "commit p=1", "req_per_s", at_least=1.0),
    *(
        Aim("commit", f"commit p=1 open {rate}/s", figure, ratio=ratio)
        for rate in (500, 2000)
        for figure, ratio in (("broker_cpu_us", 0.8), ("p99_ms", 1.0))
    ),
    *(Aim("commit", f"fetch p={count}", "broker_cpu_us", ratio=0.5) for count in (1, 10, 100)),
    *(
        Aim("loads", f"{scenario} at {load} %", "p99_ms", ratio=1.0)
        for scenario in ("heartbeat", "commit", "rejoin", "produce")
        for load in (10, 30, 60, 90)
    ),
    Aim("rejoin", "closed 100 groups", "broker_cpu_us", ratio=0.7),
    Aim("rejoin", "closed 100 groups", "req_per_s", at_least=1.0),
    Aim("rebalance", "n=100", "broker_cpu_us_per_member", ratio=0.7),
    Aim("rebalance", "n=1000", "broker_cpu_us_per_member", ratio=0.7),
    Aim("storm", "100 groups x 10", "broker_cpu_us_per_member", ratio=0.7),
    Aim("mix", "2000 members", "cpu_percent", ratio=0.5),
    Aim("mix", "2000 members", "heartbeat_p99_ms", ratio=1.0),
    Aim("mix", "2000 members", "commit_p99_ms", ratio=1.0),
    Aim("idle", "10000 members", "cpu_percent", ratio=0.25),
    Aim("idle", "10000 members", "rss_mib", at_most=200),
    Aim("data", "produce 1 KiB", "broker_cpu_ms_per_mb", ratio=0.9),
    Aim("data", "fetch 1 KiB", "broker_cpu_ms_per_mb", ratio=0.3),
    Aim("start", "start", "api_versions_s", at_most=0.25),
    Aim("start", "start", "rss_mib", at_most=100),
    Aim("recover", "recover", "last_groups_back_s", at_most=1),
    Aim("recover", "recover", "lost_offsets", at_most=0),
)
SATURATED = {
    "heartbeat": "closed 1000 conns",
    "commit": "commit p=1",
    "rejoin": "closed 100 groups",
    "produce": "closed 100 conns",
}
"""The case of each scenario that has as many requests per second as a broker can answer."""
LOADS = (10, 30, 60, 90)
"""Per cent of what the slower of both brokers can answer."""
RUNNING = ("heartbeat", "commit", "rejoin", "rebalance", "storm", "mix", "idle", "data", "loads")
LAUNCHED = ("start", "recover")
OPTIONS = {
    "commit": ["--rate", "500", "2000"],
    "mix": ["--runs", "1", "--warmup", "0"],
    "rebalance": ["--sizes", "100", "1000"],
    "data": ["200", "3"],  # megabytes, runs
    "loads": ["--runs", "1", "--seconds", "5"],
    "start": ["--runs", "3"],
    "recover": ["--runs", "1", "--warmup", "0"],
}
QUICK = {
    "heartbeat": ["--runs", "1", "--seconds", "2"],
    "commit": ["--runs", "1", "--seconds", "2", "--rate", "500", "2000"],
    "rejoin": ["--runs", "1", "--seconds", "2"],
    "mix": ["--runs", "1", "--warmup", "0", "--seconds", "20"],
    "rebalance": ["--runs", "1", "--sizes", "100", "1000"],
    "storm": ["--runs", "1"],
    "idle": ["--runs", "1", "--seconds", "6"],
    "data": ["50", "1"],
    "loads": ["--runs", "1", "--warmup", "0", "--seconds", "2"],
    "start": ["--runs", "1", "--warmup", "0"],
    "recover": ["--runs", "1", "--warmup", "0"],
}


def coordbench(scenario: str, where: str, *options: str) -> Cases:
    """Medians by case; a target that misbehaves ends the run."""
    command = [sys.executable, "-m", "coordbench", scenario, where, "--json", *options]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(HERE)}, stdout=subprocess.PIPE, text=True, check=False
    )
    if not done.stdout.startswith("{"):
        raise SystemExit(f"coordbench {scenario} {where} ended with {done.returncode}")
    said = json.loads(done.stdout)
    if said["failures"]:
        print(f"  {scenario} {where}: {'; '.join(said['failures'])}", file=sys.stderr)
    return {case: rows["median"] for case, rows in said["cases"].items()}


def warm(where: str, pid: int) -> None:
    for scenario, options in (
        ("heartbeat", ["--seconds", "15", "--rate"]),
        ("commit", ["--seconds", "8"]),
        ("rebalance", ["--sizes", "100"]),
    ):
        coordbench(scenario, where, "--pid", str(pid), "--runs", "1", "--warmup", "0", *options)


def running(only: Sequence[str], options: Mapping[str, list[str]], flush: str) -> Iterator[tuple[str, str, Cases]]:
    """Scenario by scenario, first the one, then the other."""
    with ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory())
        ours = stack.enter_context(Process(coterie_serve("--data", data, "--flush", flush)))
        host, port = ours.ready()
        kafka = stack.enter_context(ApacheKafka({"group.initial.rebalance.delay.ms": "3000"}, flags=SERVER))
        say("warming Kafka")
        warm(kafka.bootstrap, kafka.pid)
        both = (("coterie", f"{host}:{port}", ours.pid), ("kafka", kafka.bootstrap, kafka.pid))
        for scenario in only:
            if scenario == "loads":
                for name, cases in loads(both, options.get(scenario, [])).items():
                    yield scenario, name, cases
                continue
            for name, where, pid in both:
                say(f"{scenario}: {name}")
                chosen = options.get(scenario, [])
                if scenario == "data":
                    yield scenario, name, data_path(where, pid, *map(int, chosen))
                else:
                    yield scenario, name, coordbench(scenario, where, "--pid", str(pid), *chosen)


def loads(both: Sequence[tuple[str, str, int]], chosen: Sequence[str]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Latencies at parts of the load that both can hold, which is measured first."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {name: {} for name, _, _ in both}
    for scenario, closed in SATURATED.items():
        more = [*chosen, *(["--partitions", "1"] if scenario == "commit" else [])]
        held = []
        for name, where, pid in both:
            say(f"loads: {scenario}, {name}, as many as it can")
            row = coordbench(scenario, where, *more, "--rate", "--pid", str(pid))[closed]
            found[name][f"{scenario} at most"] = row
            held.append(row["req_per_s"])
        rates = {load: max(1, int(min(held) * load / 100)) for load in LOADS}
        for name, where, pid in both:
            say(f"loads: {scenario}, {name}, {', '.join(map(str, rates.values()))} a second")
            cases = coordbench(scenario, where, *more, "--rate", *map(str, rates.values()), "--pid", str(pid))
            for load, rate in rates.items():
                (row,) = (row for case, row in cases.items() if f"open {rate}/s" in case)
                found[name][f"{scenario} at {load} %"] = row
    return found


def launched(only: Sequence[str], options: Mapping[str, list[str]]) -> Iterator[tuple[str, str, Cases]]:
    for scenario in only:
        for name, command in (("coterie", _coterie_command), ("kafka", _kafka_command)):
            with command() as (where, run, before):
                say(f"{scenario}: {name}")
                more = ["--command", shlex.join(run), "--before", before, *options.get(scenario, [])]
                yield scenario, name, coordbench(scenario, where, *more)


@contextmanager
def _coterie_command() -> Iterator[tuple[str, list[str], str]]:
    with tempfile.TemporaryDirectory() as home:
        port = str(ApacheKafka().port)
        command = coterie_serve("--data", f"{home}/data", "--port", port)
        yield f"127.0.0.1:{port}", command, f"rm -rf {home}/data"


@contextmanager
def _kafka_command() -> Iterator[tuple[str, list[str], str]]:
    with ApacheKafka() as kafka:
        kafka.stop()
        properties = str(kafka.home / "server.properties")
        shape = shlex.join(java_command("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties))
        command = java_command("kafka.Kafka", properties, heap=kafka.heap, flags=SERVER)
        yield kafka.bootstrap, command, f"rm -rf {kafka.data_dir} && {shape}"


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def judged(found: Mapping[str, Mapping[str, Cases]]) -> list[dict[str, Any]]:
    rows = []
    for aim in AIMS:
        both = {name: cases.get(aim.case, {}).get(aim.figure) for name, cases in found.get(aim.scenario, {}).items()}
        ours, theirs = both.get("coterie"), both.get("kafka")
        if ours is None:
            continue
        ratio = ours / theirs if theirs else None
        rows.append(
            {
                "scenario": aim.scenario,
                "case": aim.case,
                "figure": aim.figure,
                "coterie": round(ours, 2),
                "kafka": None if theirs is None else round(theirs, 2),
                "ratio": None if ratio is None else round(ratio, 2),
                "aim": str(aim),
                "met": aim.is_met(ours, ratio),
            }
        )
    return rows


def kept_results(path: str) -> dict[str, Any]:
    """Return what the file has, so that a run of some scenarios (`--only`) leaves the others in it.

    Each scenario is of one run of both brokers; `commits` says of which code.
    """
    file = Path(path)
    return json.loads(file.read_text()) if file.exists() else {}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ("case", "figure", "coterie", "kafka", "ratio", "aim", "met")
    cells = [head, *(tuple("-" if row[name] is None else str(row[name]) for name in head) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the figures there; those of scenarios that were not asked for stay")
    parser.add_argument("--flush", choices=["sync", "os"], default="sync", help="os: as Kafka, which does not sync")
    parser.add_argument("--quick", action="store_true", help="one short run of each")
    parser.add_argument("--only", nargs="+", default=[*RUNNING, *LAUNCHED], choices=[*RUNNING, *LAUNCHED])
    options = parser.parse_args()
    if options.flush == "os" and options.json:
        parser.error("the file is of --flush sync, the default: leave out --json")
    if why_not():
        raise SystemExit(why_not())
    chosen = QUICK if options.quick else OPTIONS
    found: dict[str, dict[str, Cases]] = {}
    with_running = [name for name in RUNNING if name in options.only]
    with_launched = [name for name in LAUNCHED if name in options.only]
    for scenario, name, cases in [
        *(running(with_running, chosen, options.flush) if with_running else ()),
        *launched(with_launched, chosen),
    ]:
        found.setdefault(scenario, {})[name] = cases
    print(table(judged(found)), file=sys.stderr)
    kept = kept_results(options.json) if options.json else {}
    cases = {**kept.get("cases", {}), **found}
    commits = {**kept.get("commits", {}), **dict.fromkeys(found, commit())}
    write_results(options.json, {"rows": judged(cases), "cases": cases, "commits": commits})


if __name__ == "__main__":
    main()
