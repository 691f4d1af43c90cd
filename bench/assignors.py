"""Our sticky assignor next to Kafka's own StickyAssignor, in one run: milliseconds of CPU, least and median.

    python bench/assignors.py                 # equal subscriptions, both sides; unequal ones, ours
    python bench/assignors.py --quick         # the small sizes only

Each side starts from its own answer for the group before the event. Two figures for each: `assign`, which includes
reading the user data (as Kafka's assign does), and `bytes`, which includes reading the subscriptions as well. Java's
time is the CPU of the calling thread only, garbage collection and compilation not counted; ours is the whole process.
Both are warm: the first runs are not counted. Java is asked only where it answers in reasonable time.

Needs Java, javac and Kafka's jars (see tests/apache_kafka.py); without them only ours are timed. Results go to
bench/results/assignors.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent / "tests")]

from apache_kafka import jars, why_not  # noqa: E402
from coterie.assignors import Assignment, Member, Owned, Sticky, Topic  # noqa: E402
from coterie.protocol.subscription import Subscription, read_subscriptions, write_subscription  # noqa: E402

STICKY = Sticky()
JAVA_WARM_UPS = 5
OUR_WARM_UPS = 1
MEMBER = "consumer-{:04}-356e6da7-74eb-4666-a9c0-bd5236856079"
NEWCOMER = MEMBER.format(9999)

Times = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Setup:
    pattern: str
    members: int
    partitions: int
    topics: int
    event: str

    def __str__(self) -> str:
        return f"{self.pattern:7} {self.members:5} x {self.partitions:7}, {self.topics:4} topics, {self.event}"


@dataclass(frozen=True)
class Group:
    """Topic sizes and subscriptions before and after an event."""

    sizes: dict[str, int]
    sizes_after: dict[str, int]
    before: dict[str, list[str]]
    after: dict[str, list[str]]


def build(setup: Setup) -> Group:
    rng = random.Random(1)
    topics = [f"topic-{number:04}" for number in range(setup.topics)]
    subscriptions: dict[str, Callable[[int], list[str]]] = {
        "equal": lambda _: topics,
        "half": lambda _: sorted(rng.sample(topics, len(topics) // 2)),
        "nested": lambda number: topics[: number * len(topics) // setup.members + 1],
    }
    before = {MEMBER.format(number): subscriptions[setup.pattern](number) for number in range(setup.members)}
    sizes = dict.fromkeys(topics, setup.partitions // setup.topics)
    after, sizes_after = dict(before), dict(sizes)
    ids = list(before)
    if setup.event == "leave 1":
        del after[ids[len(ids) // 2]]
    elif setup.event == "leave 10 %":
        for member in ids[::10]:
            del after[member]
    elif setup.event == "join 1":
        after[NEWCOMER] = topics if setup.pattern == "nested" else subscriptions[setup.pattern](0)
    elif setup.event == "grow":
        sizes_after[topics[0]] += setup.partitions // 10
    elif setup.event == "scratch":
        before = {}
    return Group(sizes, sizes_after, before, after)


def ours(group: Group, runs: int) -> Times:
    previous: Assignment = {}
    if group.before:
        newcomers = [Member(member, topics) for member, topics in group.before.items()]
        previous = STICKY.assign(newcomers, {topic: Topic(size) for topic, size in group.sizes.items()})
    messages = {member: _subscription(topics, previous.get(member)) for member, topics in group.after.items()}
    topics = {topic: Topic(size) for topic, size in group.sizes_after.items()}
    took: dict[str, list[float]] = {"assign": [], "bytes": []}
    for run in range(-OUR_WARM_UPS, runs):
        started = time.process_time()
        told = read_subscriptions(messages.values())
        members = [Member.of(member, one) for member, one in zip(messages, told, strict=True)]
        read = time.process_time()
        answer = STICKY.assign(members, topics)
        ended = time.process_time()
        assert len(answer) == len(members)
        if run >= 0:
            took["assign"].append((ended - read) * 1000)
            took["bytes"].append((ended - started) * 1000)
    return {name: (min(values), median(values)) for name, values in took.items()}


def _subscription(topics: list[str], owned: Owned | None) -> bytes:
    if owned is None:
        return write_subscription(Subscription(topics))
    return write_subscription(Subscription(topics, STICKY.user_data(topics, owned, 5), {}, 5))


class Java:
    def __init__(self, directory: Path) -> None:
        self._classes = f"{directory}:{jars()}/*"
        self._input = directory / "group.txt"
        source = HERE / "java" / "StickyBench.java"
        subprocess.run(
            ["javac", "-nowarn", "-cp", self._classes, "-d", directory, source], check=True, capture_output=True
        )

    def time(self, group: Group, runs: int) -> Times:
        lines = [f"topic {topic} {size} {group.sizes_after[topic]}" for topic, size in group.sizes.items()]
        for member, topics in {**group.before, **group.after}.items():
            stays = "both" if member in group.after else "before"
            lines.append(f"member {member} {stays if member in group.before else 'after'} {','.join(topics)}")
        self._input.write_text("\n".join(lines), encoding="utf-8")
        command = [
            "java",
            "-Xmx3g",
            "-cp",
            self._classes,
            "StickyBench",
            str(self._input),
            str(JAVA_WARM_UPS),
            str(runs),
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows = [[float(word) for word in line.split()] for line in done.stdout.splitlines() if line[:1].isdigit()]
        columns = {"assign": [row[0] for row in rows], "bytes": [row[1] for row in rows]}
        return {name: (min(column), median(column)) for name, column in columns.items()}


def setups(*, quick: bool) -> list[tuple[Setup, bool]]:
    """What is timed, and whether Java is asked too: with unequal subscriptions it takes minutes."""
    sizes = (10_000,) if quick else (200_000, 1_000_000)
    members = 1000 if quick else 2000
    equal = [
        (Setup("equal", members, partitions, topics, event), True)
        for partitions in sizes
        for topics in (1, 10, 100)
        for event in ("leave 1", "join 1")
    ]
    events = ("scratch", "leave 1", "join 1", "leave 10 %", "grow")
    half = [(Setup("half", 100, 1000, 100, event), True) for event in events]
    nested = [(Setup("nested", 1000, 10_000, topics, "join 1"), False) for topics in (100, 1000)]
    large = [(Setup("half", 2000, 200_000, 100, event), False) for event in events]
    return equal + half + nested + ([] if quick else large)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small sizes only")
    parser.add_argument("--only", default="", help="equal, half or nested; writes no results")
    parser.add_argument("--runs", type=int, default=7, help="counted runs of each (7)")
    chosen = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as directory:
        java = Java(Path(directory)) if why_not() is None else None
        print(f"{'':47} {'ours: assign':>15} {'bytes':>15} {'Java: assign':>17} {'bytes':>17} {'ratio':>6}")
        for setup, ask_java in setups(quick=chosen.quick):
            if not setup.pattern.startswith(chosen.only):
                continue
            group = build(setup)
            mine = ours(group, chosen.runs)
            theirs = java.time(group, chosen.runs) if java and ask_java else None
            results.append({**setup.__dict__, "ours": mine, "java": theirs})
            print(_row(setup, mine, theirs), flush=True)
    if chosen.only:
        return
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    report = {
        "commit": commit.stdout.strip(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "milliseconds of CPU": "[least, median]",
        "runs": chosen.runs,
        "results": results,
    }
    target = HERE / "results" / "assignors.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _row(setup: Setup, mine: Times, theirs: Times | None) -> str:
    cells = [f"{mine[name][0]:6.1f} / {mine[name][1]:6.1f}" for name in ("assign", "bytes")]
    if theirs is None:
        return f"{setup!s:47} {cells[0]} {cells[1]}"
    cells += [f"{theirs[name][0]:7.1f} / {theirs[name][1]:7.1f}" for name in ("assign", "bytes")]
    ratio = theirs["assign"][0] / mine["assign"][0]
    return f"{setup!s:47} {' '.join(cells)} {ratio:5.1f}x"


if __name__ == "__main__":
    main()
