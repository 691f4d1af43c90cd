"""A night of scripted misfortune with real clients, on Apache Kafka and on Coterie: is every rebalance explained?

Each scene of `night_scenes.py` has a group of its own. At the end every source is asked alone, and all together: of
each rebalance, whether cause and member are right, unknown or wrong; of each finding, whether it was made, and whether
others were. A wrong cause, a contradiction between sources, or a false finding is a failure.

    make night                                    # both brokers, all scenes
    python tests/soak/night.py --on apache --only crash,pauses --seed 7
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from apache_kafka import ApacheKafka
from clients.harness import BrokerProcess
from coterie.client.admin import Admin, NewTopic
from coterie.diagnosis import ExplainedRebalance, GroupHistory
from coterie.diagnosis.broker_log import read_logs
from coterie.diagnosis.cluster_watch import SETTINGS, ClusterWatch
from coterie.diagnosis.detectors import findings_of
from coterie.diagnosis.merge import merge_all
from coterie.facts import Cause
from coterie.ledger.derived import DerivedCause
from coterie.settings.client_settings import AdminSettings
from coterie.settings.consumer_settings import ConsumerSettings
from soak.night_scenes import SCENES, Scene

AT_ONCE = 3
SLACK_MS = 1_500
BROKER = {
    "offsets.topic.num.partitions": "4",
    "group.consumer.session.timeout.ms": "8000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
Histories = dict[str, GroupHistory]
MOVED = "coordinator-moved"
ANY = {str(one) for one in (*Cause, *DerivedCause)}
AFTER_RESTART_S = 20


@dataclass
class Running:
    bootstrap: str
    log: Path | None
    restart: Callable[[], None]


@contextmanager
def running(name: str, directory: Path) -> Iterator[Running]:
    if name == "apache":
        with ApacheKafka(BROKER, loggers={"org.apache.kafka.coordinator.group": "INFO"}) as kafka:

            def restart_kafka() -> None:
                kafka.stop()
                kafka.start()

            yield Running(kafka.bootstrap, kafka.log, restart_kafka)
        return
    with BrokerProcess(directory, BROKER) as broker:

        def restart() -> None:
            broker.stop()
            broker.start()

        yield Running(broker.bootstrap, None, restart)


@dataclass
class Score:
    """What one source said."""

    right: int = 0
    unknown: int = 0
    wrong: int = 0
    found: int = 0
    missed: int = 0
    false: int = 0
    told: list[str] = field(default_factory=list)

    def line(self, name: str) -> str:
        said = self.right + self.wrong
        seen = said + self.unknown
        precision = f"{self.right / said:.0%}" if said else "-"
        recall = f"{self.right / seen:.0%}" if seen else "-"
        findings = f"findings {self.found} of {self.found + self.missed}, {self.false} false"
        return (
            f"{name:9}  {seen:3} rebalances: {self.right} right, {self.unknown} unknown, {self.wrong} wrong; "
            f"precision {precision}, recall {recall}; {findings}"
        )


def play(name: str, seed: int, only: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as directory, running(name, Path(directory)) as broker:
        scenes = make_scenes(broker, Path(directory), seed, only)
        watch = ClusterWatch(
            AdminSettings.load(bootstrap_servers=broker.bootstrap),
            ConsumerSettings.load("", (), SETTINGS, bootstrap_servers=broker.bootstrap),
        )
        with watch, ThreadPoolExecutor(AT_ONCE) as pool:
            done = {pool.submit(played, scene, SCENES[kind].play): scene for kind, scene in scenes}
            while not all(one.done() for one in done):
                watch.poll(0.5)
                watch.sample()
                time.sleep(1)
            sources = collected(watch, broker)
            failed = {scene.group: one.result() for one, scene in done.items() if one.result()}
            moved = {scene.group for kind, scene in scenes if kind == MOVED}
            if moved:
                restarted(broker, [scene for _, scene in scenes if scene.group in moved])
                for source, found in collected(watch, broker).items():
                    sources[source] |= {group: one for group, one in found.items() if group in moved}
        for _, scene in scenes:
            scene.end()
    sources["all"] = merge_all(list(sources.values()))
    print(f"\n{name}, seed {seed}: {len(scenes)} scenes")
    for group, why in failed.items():
        print(f"  not played to its end: {group}: {why[:2_000]}")
    scores = {source: judged(scenes, found, failed) for source, found in sources.items()}
    for source, score in scores.items():
        print("  " + score.line(source))
    for source, score in scores.items():
        for line in score.told:
            print(f"    {source}: {line}")
    contradictions = [
        f"{history.group_id} {one.number}: {name}: {getattr(one, name).claims}"
        for history in sources["all"].values()
        for one in history.rebalances
        for name in one.disagreements
    ]
    print(f"  contradictions between sources: {len(contradictions)}")
    for line in contradictions[:10]:
        print(f"    {line[:600]}")
    return not contradictions and not any(score.wrong or score.false for score in scores.values())


def make_scenes(broker: Running, directory: Path, seed: int, only: list[str]) -> list[tuple[str, Scene]]:
    scenes = []
    topics: dict[str, int] = {}
    for kind, plan in SCENES.items():
        if only and kind not in only:
            continue
        for protocol in plan.protocols:
            group = f"{kind}-{protocol}"
            named = {f"{group}-{topic}": count for topic, count in plan.topics.items()}
            topics |= named
            rng = Random(f"{seed} {group}")
            scenes.append((kind, Scene(broker.bootstrap, directory / "scenes", group, rng, named, protocol)))
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        made = admin.create_topics([NewTopic(name, count) for name, count in topics.items()])
        assert all(not isinstance(one, Exception) for one in made.values()), made
    Random(seed).shuffle(scenes)
    return scenes


def collected(watch: ClusterWatch, broker: Running) -> dict[str, Histories]:
    """Return what each source knows now."""
    for _ in range(20):
        watch.poll(0.5)
    watch.sample()
    sources = {grade: merge_all([found]) for grade, found in watch.sources().items() if found}
    if broker.log is not None:
        with broker.log.open(errors="replace") as lines:
            sources["logged"] = read_logs([("server.log", iter(lines))]).histories()
    return sources


def restarted(broker: Running, scenes: list[Scene]) -> None:
    """Restart the broker at the end of the night. Only one scene is judged after it; its members stay."""
    for scene in scenes:
        scene.note("the coordinator starts again", ANY, "")
    broker.restart()
    time.sleep(AFTER_RESTART_S)


def played(scene: Scene, play_it: object) -> str:
    """Play a scene. Returns why it did not get to its end; empty if it did."""
    assert callable(play_it)
    try:
        play_it(scene)
    except Exception as error:  # noqa: BLE001  one scene must not end the night
        return repr(error)
    return ""


def judged(scenes: list[tuple[str, Scene]], found: Histories, failed: Mapping[str, str]) -> Score:
    score = Score()
    for kind, scene in scenes:
        history = found.get(scene.group)
        if history is None or scene.group in failed:
            continue
        for one in history.rebalances:
            verdict, why = judge(scene, history, one)
            setattr(score, verdict, getattr(score, verdict) + 1)
            if verdict == "wrong":
                score.told.append(why)
        plan = SCENES[kind]
        names = Counter(finding.name for finding in findings_of(history))
        score.found += len(plan.finds & set(names))
        score.missed += len(plan.finds - set(names))
        false = set(names) - plan.finds - plan.may
        score.false += len(false)
        score.told += [f"{scene.group}: false finding {name}" for name in sorted(false)]
        score.told += [f"{scene.group}: missed {name}" for name in sorted(plan.finds - set(names))]
    return score


def judge(scene: Scene, history: GroupHistory, one: ExplainedRebalance) -> tuple[str, str]:
    """Compare cause and member with what was done at that time."""
    if one.cause.value is None:
        return "unknown", ""
    low = one.began_ms.value if one.began_ms.bound.value == "" else None
    high = one.ended_ms.value
    begin = (low if low is not None else one.at_ms) - SLACK_MS
    noticed = max(each.at_ms or 0 for each in one.cause.evidence)  # of a sample: some time after it
    end = max(high or 0, one.at_ms, noticed) + SLACK_MS
    deeds = [deed for deed in scene.deeds if deed.from_ms <= end and deed.to_ms >= begin]
    who = history.name_of(one.member.value) if one.member.value else None
    by_id = history.members.get(one.member.value or "")
    names = {who, by_id.client_id if by_id is not None else who}
    for deed in deeds:
        is_named = one.member.value is None or not (by_id is not None and by_id.client_id) or deed.client_id in names
        if one.cause.value in deed.causes and (is_named or deed.client_id in (who or "")):
            return "right", ""
    if one.cause.value in {"leader rejoined", "protocols changed"} and deeds:
        return "right", ""  # a member that joins again within what was done, as cooperative ones do
    told = ", ".join(f"{deed.client_id} {deed.what}" for deed in deeds)
    return "wrong", f"{scene.group} {one.number}: {one.cause.value} by {who}; what was done: {told or 'nothing'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=["apache", "coterie", "both"], default="both")
    parser.add_argument("--only", default="", help="scenes, separated by commas")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    only = [one for one in options.only.split(",") if one]
    unknown = set(only) - set(SCENES)
    if unknown:
        parser.error(f"unknown scenes {', '.join(sorted(unknown))}; there are {', '.join(SCENES)}")
    brokers = ["coterie", "apache"] if options.on == "both" else [options.on]
    results = [play(broker, options.seed, only) for broker in brokers]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
