"""Ten situations with real clients, and what `coterie plan` says about them: is the forecast right?

Each situation is played with processes on Apache Kafka and on Coterie. Members write down when they are assigned
partitions and lose them; the coordinator's own record of rebalances and removed members is read as `coterie groups why`
reads it. Then the same situation is simulated. A figure is right if it differs by at most 20 % or one heartbeat
interval (detection, longest rebalance), or by 30 % (unread partition-seconds), from the median of the forecast.

With --records, records are produced in every situation. Members write down each record that they process, with the
time, so that lag and duplicates are measured too: a record is late from the moment it was sent until it was processed
for the first time. A lag is right if it differs by at most 30 % or a second, duplicates by at most 30 % or ten.

Heartbeats of a fresh group are all sent at the same moment. In a group that has run for long they are not, so each
process is stopped for one to two heartbeat intervals before the situation begins.

    make plan-calibration
    python tests/soak/plan_calibration.py --on apache --only crash-eager,deploy-eager --library java-consumer
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from clients.harness import Member, wait_until
from clients.members.telling import Orders
from coterie import Producer
from coterie.client.admin import Admin, NewTopic
from coterie.diagnosis import GroupHistory
from coterie.diagnosis.cluster_watch import SETTINGS, ClusterWatch
from coterie.diagnosis.merge import merge_all
from coterie.diagnosis.model import Departure
from coterie.forecast import Change, Crashes, Deploy, Forecast, GroupModel, Grow, Question, Scale, Slow, parse_group
from coterie.forecast.simulated_group import simulate_group
from coterie.settings.client_settings import AdminSettings
from coterie.settings.consumer_settings import ConsumerSettings
from soak.night import collected, running

POLL_INTERVAL_MS, METADATA_MS = 6_000, 3_000
NEW_PARTITIONS = NEW_MEMBERS = 2
SLOW_S = 10.0
RECORDS_PER_S = 40
PATIENCE_S = 120.0
SEEDS = range(15)
BROKER = {"offsets.topic.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
EAGER = {"partition.assignment.strategy": "range"}
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
CONSUMER = {"group.protocol": "consumer"}
STATIC = {"group.instance.id": "each"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Size:
    """The size of the group, and its timing."""

    members: int = 4
    partitions: int = 12
    session_ms: int = 6_000
    heartbeat_ms: int = 1_000
    pause_s: float = 3.0

    @property
    def broker(self) -> dict[str, str]:
        """Return the settings of the broker."""
        bounds = ("", "min.")
        return {
            **BROKER,
            **{f"group.consumer.{bound}session.timeout.ms": str(self.session_ms) for bound in bounds},
            **{f"group.consumer.{bound}heartbeat.interval.ms": str(self.heartbeat_ms) for bound in bounds},
        }


@dataclass
class Stage:
    """A group of real members on a broker."""

    bootstrap: str
    directory: Path
    group: str
    library: str
    settings: Mapping[str, str]
    size: Size
    rng: Random
    members: dict[str, Member] = field(default_factory=dict)
    started: list[Member] = field(default_factory=list)
    restarts_s: list[float] = field(default_factory=list)
    created_ms: dict[int, int] = field(default_factory=dict)
    """When partitions were created that were not there at the begin."""
    sent_ms: list[int] = field(default_factory=list)
    """When each record was sent."""

    @property
    def topic(self) -> str:
        return self.group

    @property
    def partitions(self) -> int:
        return self.size.partitions + len(self.created_ms)

    def start(self, name: str) -> Member:
        directory = self.directory / f"{self.group}-{len(self.started)}"
        directory.mkdir(parents=True)
        orders = Orders(
            bootstrap=self.bootstrap,
            group=self.group,
            client_id=name,
            assignor=self.settings.get("partition.assignment.strategy", ""),
            topics=[self.topic],
            instance_id=name if "group.instance.id" in self.settings else None,
            session_timeout_ms=self.size.session_ms,
            heartbeat_interval_ms=self.size.heartbeat_ms,
            metadata_max_age_ms=METADATA_MS,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            protocol=self.settings.get("group.protocol", "classic"),
            slow_ms=round(SLOW_S * 1_000),
        )
        member = self.members[name] = Member(self.library, orders, directory)
        self.started.append(member)
        return member

    def settle(self) -> None:
        """Wait until all members share all partitions."""

        def is_settled() -> bool:
            owned = [one.read().owned for one in self.members.values()]
            return sum(map(len, owned)) == self.partitions and all(owned)

        said = lambda: "\n".join(one.said() for one in self.members.values())  # noqa: E731
        wait_until(is_settled, f"{self.group} has settled", said, PATIENCE_S)

    def spread_heartbeats(self) -> None:
        """Stop all processes for one to two intervals: each sends a heartbeat when it goes on."""
        for member in self.members.values():
            member.suspend()
        began = time.monotonic()
        for intervals, name in sorted((self.rng.uniform(1, 2), name) for name in self.members):
            time.sleep(max(began + intervals * self.size.heartbeat_ms / 1_000 - time.monotonic(), 0))
            self.members[name].resume()

    def replace(self, name: str) -> None:
        """Stop a member in order and start it again. The time between is what a forecast is told."""
        old = self.members.pop(name)
        old.leave()
        began_ms = old.told("closed")[-1]["at_ms"]
        self.start(name)
        self.restarts_s.append((self.started_ms(name) - began_ms) / 1_000)

    def started_ms(self, name: str) -> int:
        """Wait until a process has its consumer, and return when."""
        new = self.members[name]
        wait_until(lambda: bool(new.told("started")), f"{name} has started", new.said, PATIENCE_S)
        at_ms: int = new.told("started")[-1]["at_ms"]
        return at_ms

    @contextmanager
    def records(self) -> Iterator[None]:
        """Produce records for as long as the block runs."""
        ends = threading.Event()

        def produce() -> None:
            with Producer(bootstrap_servers=self.bootstrap, linger_ms=0) as producer:
                number = 0
                while not ends.wait(1 / RECORDS_PER_S):
                    self.sent_ms.append(now_ms())
                    producer.send(self.topic, str(self.sent_ms[-1]), partition=number % self.size.partitions)
                    number += 1

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def end(self) -> None:
        for member in self.started:
            member.discard()

    # --- what was measured

    def unread_s(self, from_ms: int, to_ms: int) -> float:
        """Return the partition-seconds in which no running member had a partition, by what members wrote down."""
        owned: dict[int, list[tuple[int, int]]] = {number: [] for number in range(self.partitions)}
        for member in self.started:
            since: dict[int, int] = {}
            gone_ms = to_ms if member.ended_ms is None else member.ended_ms
            for event in member.read().events:
                numbers = [number for _, number in event.get("partitions", ())]
                if event["event"] == "assigned":
                    since |= dict.fromkeys(numbers, event["at_ms"])
                elif event["event"] in {"revoked", "lost"}:
                    for number in numbers:
                        if number in since:
                            owned[number].append((since.pop(number), event["at_ms"]))
            closed = [event["at_ms"] for event in member.events if event["event"] == "closed"]
            for number, began_ms in since.items():
                owned[number].append((began_ms, closed[-1] if closed else gone_ms))
        total = 0
        for number, spans in owned.items():
            total += _uncovered(spans, max(from_ms, self.created_ms.get(number, from_ms)), to_ms)
        return total / 1_000

    def lag(self, from_ms: int, to_ms: int) -> Lag | None:
        """Return the lag by what members wrote down, or None if there were no records."""
        if not self.sent_ms:
            return None
        first_ms: dict[tuple[int, int], int] = {}
        duplicates, worst_ms = 0, 0
        consumed = [event for one in self.started for event in one.read().events if event["event"] == "consumed"]
        for event in sorted(consumed, key=lambda event: int(event["at_ms"])):
            for _, partition, offset, value in event["records"]:
                at_ms = first_ms.setdefault((partition, offset), event["at_ms"])
                if at_ms != event["at_ms"]:
                    duplicates += event["at_ms"] >= from_ms
                elif from_ms <= at_ms <= to_ms:
                    worst_ms = max(worst_ms, at_ms - int(value))
        steps = sorted([*((at_ms, 1) for at_ms in self.sent_ms), *((at_ms, -1) for at_ms in first_ms.values())])
        waiting = most = 0
        for at_ms, step in steps:
            waiting += step
            if from_ms <= at_ms <= to_ms:
                most = max(most, waiting)
        return Lag(most, worst_ms / 1_000, duplicates)


@dataclass(frozen=True)
class Lag:
    worst_records: int
    worst_s: float
    duplicates: int


def _uncovered(spans: list[tuple[int, int]], from_ms: int, to_ms: int) -> int:
    at_ms, free = from_ms, 0
    for began_ms, ended_ms in sorted(spans):
        if began_ms > at_ms:
            free += min(began_ms, to_ms) - min(at_ms, to_ms)
        at_ms = max(at_ms, ended_ms)
    return free + max(to_ms - at_ms, 0)


# --- situations -------------------------------------------------------------------------------------------------------


def deploy(stage: Stage) -> None:
    for number, name in enumerate(sorted(stage.members)):
        if number:
            time.sleep(stage.size.pause_s)
        stage.replace(name)


def crash(stage: Stage) -> None:
    time.sleep(stage.rng.uniform(0, stage.size.heartbeat_ms / 1_000))
    stage.members.pop("c01").kill()


def slow(stage: Stage) -> None:
    victim = stage.members["c01"]
    before = len(victim.told("busy"))
    victim.is_next_slow()
    wait_until(lambda: len(victim.told("busy")) > before, "c01 is slow", victim.said, PATIENCE_S)
    time.sleep(SLOW_S + stage.size.heartbeat_ms / 1_000)


def grow(stage: Stage) -> None:
    before = stage.partitions
    stage.created_ms = dict.fromkeys(range(before, before + NEW_PARTITIONS), now_ms())
    with Admin(bootstrap_servers=stage.bootstrap) as admin:
        admin.create_partitions({stage.topic: before + NEW_PARTITIONS})


def scale_out(stage: Stage) -> None:
    began_ms = now_ms()
    names = [f"d{number}" for number in range(NEW_MEMBERS)]
    for name in names:
        stage.start(name)
    for name in names:
        stage.restarts_s.append((stage.started_ms(name) - began_ms) / 1_000)


@dataclass(frozen=True)
class Situation:
    settings: Mapping[str, str]
    play: Callable[[Stage], None]
    change: Callable[[Size], Change]
    has_records: bool = False


def _deploys(size: Size) -> Change:
    return Deploy(pause_s=size.pause_s)


def _crashes(_size: Size) -> Change:
    return Crashes(restarts=False)


SITUATIONS: Mapping[str, Situation] = {
    "deploy-eager": Situation(EAGER, deploy, _deploys),
    "deploy-cooperative": Situation(COOPERATIVE, deploy, _deploys),
    "deploy-kip848": Situation(CONSUMER, deploy, _deploys),
    "deploy-static": Situation(EAGER | STATIC, deploy, _deploys),
    "crash-eager": Situation(EAGER, crash, _crashes),
    "crash-cooperative": Situation(COOPERATIVE, crash, _crashes),
    "crash-kip848": Situation(CONSUMER, crash, _crashes),
    "slow-eager": Situation(EAGER, slow, lambda _size: Slow(stall_s=SLOW_S), has_records=True),
    "grow-eager": Situation(EAGER, grow, lambda size: Grow("t", size.partitions + NEW_PARTITIONS)),
    "scale-out-cooperative": Situation(COOPERATIVE, scale_out, lambda size: Scale(size.members + NEW_MEMBERS)),
}


# --- measured and simulated -------------------------------------------------------------------------------------------


@dataclass
class Measured:
    rebalances: int | None
    unread_s: float
    detection_s: float | None
    longest_rebalance_s: float | None
    restart_s: float | None
    worst_lag_s: float | None = None
    worst_lag_records: int | None = None
    duplicates: int | None = None


def measure(situation: Situation, stage: Stage) -> tuple[Stage, int, int]:
    """Play a situation. Return the stage, and the times of its begin and end."""
    with Admin(bootstrap_servers=stage.bootstrap) as admin:
        admin.create_topics([NewTopic(stage.topic, stage.size.partitions)])
    try:
        for at in range(stage.size.members):
            stage.start(f"c{at:02}")
        stage.settle()
        time.sleep(1)
        stage.spread_heartbeats()
        time.sleep(stage.rng.uniform(1, 2))
        stage.settle()
        begin_ms = now_ms()
        if situation.has_records:
            with stage.records():
                time.sleep(2)
                begin_ms = now_ms()
                situation.play(stage)
                stage.settle()
                time.sleep(2)
        else:
            situation.play(stage)
            stage.settle()
            time.sleep(2)
        return stage, begin_ms, now_ms()
    finally:
        stage.end()


def measured(stage: Stage, begin_ms: int, end_ms: int, history: GroupHistory | None) -> Measured:
    rebalances = [one for one in history.rebalances if begin_ms <= one.at_ms <= end_ms] if history else None
    took = [one.took[0] for one in rebalances or [] if one.took[0] is not None]
    killed = [one for one in stage.started if one.ended_ms is not None and not one.told("closed")]
    detection = None
    for member in killed:
        for stay in history.stays if history else []:
            if stay.client_id == member.client_id and stay.departure.value == Departure.SESSION_EXPIRED:
                detection = ((stay.gone_ms.value or 0) - (member.ended_ms or 0)) / 1_000
    lag = stage.lag(begin_ms, end_ms)
    return Measured(
        len(rebalances) if rebalances is not None else None,
        round(stage.unread_s(begin_ms, end_ms), 2),
        detection,
        max(took) / 1_000 if took else None,
        median(stage.restarts_s) if stage.restarts_s else None,
        lag.worst_s if lag else None,
        lag.worst_records if lag else None,
        lag.duplicates if lag else None,
    )


def model_of(situation: Situation, size: Size, restart_s: float | None) -> GroupModel:
    is_consumer = situation.settings.get("group.protocol") == "consumer"
    classic = {"session.timeout.ms": str(size.session_ms), "heartbeat.interval.ms": str(size.heartbeat_ms)}
    return parse_group(
        {
            "members": size.members,
            "topics": {"t": {"partitions": size.partitions, "records_per_s": RECORDS_PER_S * situation.has_records}},
            "restart_s": restart_s if restart_s is not None else 1.0,
            "settings": {
                **size.broker,
                **({} if is_consumer else classic),
                "max.poll.interval.ms": POLL_INTERVAL_MS,
                "metadata.max.age.ms": METADATA_MS,
                "enable.auto.commit": False,
                **situation.settings,
            },
        },
        "calibration",
    )


def forecast(situation: Situation, size: Size, restart_s: float | None) -> Forecast:
    question = Question(model_of(situation, size, restart_s), situation.change(size))
    return Forecast(question, [simulate_group(question, seed) for seed in SEEDS])


LAGS = ("worst_lag_s", "worst_lag_records", "duplicates")
HEADS = ("rebalances", "unread_s", "detection_s", "longest_rebalance_s", *LAGS)


def judged(found: list[Measured], simulated: Forecast, heartbeat_s: float) -> dict[str, dict[str, Any]]:
    """Return for each figure the median of the real runs, the forecast and whether they agree."""
    rows: dict[str, dict[str, Any]] = {}
    for head in HEADS:
        values = [value for one in found if (value := getattr(one, head)) is not None]
        spread = simulated.spread(head)
        if not values and (not spread.values or head in LAGS):
            continue
        real = median(values) if values else None
        said = spread.median
        row = {"measured": real, "runs": values, "median": said, "p10": spread.at(10), "p90": spread.at(90)}
        row["agrees"] = _agrees(head, real, said, heartbeat_s)
        rows[head] = row
    return rows


def _agrees(head: str, real: float | None, said: float | None, heartbeat_s: float) -> bool | None:
    if real is None or said is None:
        return None
    off = abs(real - said)
    if head in {"detection_s", "longest_rebalance_s"}:
        return off <= max(0.2 * said, heartbeat_s)
    if head == "unread_s":
        return off <= 0.3 * said
    if head in LAGS:
        return off <= max(0.3 * said, {"worst_lag_s": 1, "worst_lag_records": RECORDS_PER_S, "duplicates": 10}[head])
    return off <= 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=["apache", "coterie"], default="coterie")
    parser.add_argument("--library", choices=["coterie", "confluent", "java-consumer"], default="coterie")
    parser.add_argument("--only", default="", help="situations, separated by commas")
    parser.add_argument("--runs", type=int, default=1, help="real runs of each situation")
    parser.add_argument("--seed", type=int, default=1)
    for each in fields(Size):
        option = f"--{each.name.replace('_', '-')}"
        parser.add_argument(option, type=type(each.default), default=each.default)
    parser.add_argument("--records", action="store_true", help="produce records in every situation: measures the lag")
    parser.add_argument("--json", type=Path, help="add the results to this file")
    options = parser.parse_args()
    names = [one for one in options.only.split(",") if one] or list(SITUATIONS)
    unknown = set(names) - set(SITUATIONS)
    if unknown:
        parser.error(f"unknown situations {', '.join(sorted(unknown))}; there are {', '.join(SITUATIONS)}")
    situations = {
        name: replace(SITUATIONS[name], has_records=SITUATIONS[name].has_records or options.records) for name in names
    }
    size = Size(**{each.name: getattr(options, each.name) for each in fields(Size)})
    played: dict[str, list[tuple[Stage, int, int]]] = {}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        running(options.on, Path(directory), size.broker) as broker,
    ):
        stages: list[Stage] = []
        try:
            for name in names:
                for number in range(options.runs):
                    rng = Random(f"{options.seed} {name} {number}")
                    print(f"{name}, run {number + 1} of {options.runs}", file=sys.stderr, flush=True)
                    group, situation = f"{name}-{number}", situations[name]
                    stage = Stage(
                        broker.bootstrap, Path(directory), group, options.library, situation.settings, size, rng
                    )
                    stages.append(stage)
                    one = measure(situation, stage)
                    played.setdefault(name, []).append(one)
            watch = ClusterWatch(
                AdminSettings.load(bootstrap_servers=broker.bootstrap),
                ConsumerSettings.load("", (), SETTINGS, bootstrap_servers=broker.bootstrap),
            )
            with watch:
                histories = merge_all(list(collected(watch, broker).values()))
        finally:
            for stage in stages:
                stage.end()
        results = {
            name: [measured(stage, begin, end, histories.get(stage.group)) for stage, begin, end in runs]
            for name, runs in played.items()
        }
    return report(options, size, situations, results)


def report(
    options: argparse.Namespace, size: Size, situations: Mapping[str, Situation], results: Mapping[str, list[Measured]]
) -> int:
    wrong = 0
    kept: dict[str, Any] = {}
    print(f"{options.library} members on {options.on}: measured, and simulated as median (p10-p90)")
    for name, found in results.items():
        restarts = [one.restart_s for one in found if one.restart_s is not None]
        simulated = forecast(situations[name], size, median(restarts) if restarts else None)
        rows = judged(found, simulated, size.heartbeat_ms / 1_000)
        kept[name] = {**rows, "restart_s": restarts}
        cells = []
        for head, row in rows.items():
            mark = {True: "", False: " !", None: " ?"}[row["agrees"]]
            wrong += row["agrees"] is False
            said = f"{_f(row['median'])} ({_f(row['p10'])}-{_f(row['p90'])})"
            cells.append(f"{head} {_f(row['measured'])} / {said}{mark}")
        print(f"  {name:22} " + "; ".join(cells))
    if options.json is not None:
        before = json.loads(options.json.read_text()) if options.json.exists() else {}
        title = f"{options.library} on {options.on}{', with records' if options.records else ''}"
        before.setdefault(title, {}).update(kept)
        options.json.write_text(json.dumps(before, indent=1) + "\n")
    print(f"{wrong} figures differ by more than their bound")
    return 1 if wrong else 0


def _f(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    raise SystemExit(main())
