"""A night of scripted misfortune with real clients, on Apache Kafka and on Coterie: is every rebalance explained?

Each scene of `night_scenes.py` has a group of its own. At the end every source is asked alone, and all together, and
`night_judge.py` counts what is right, vague, unknown or wrong. It is a failure if a source names a wrong cause or
member, or finds what is not there; if sources contradict each other; if all of them together miss a finding, or
something that was done and must cause a rebalance; if there is a finding about a quiet group; or if a scene does not
get to its end.

    make night                                    # both brokers, all scenes
    python tests/soak/night.py --on apache --only crash,pauses --seed 7
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from apache_kafka import ApacheKafka
from clients.harness import BrokerProcess
from coterie.client.admin import Admin, NewTopic
from coterie.diagnosis import GroupHistory
from coterie.diagnosis.broker_log import read_logs
from coterie.diagnosis.cluster_watch import SETTINGS, ClusterWatch
from coterie.diagnosis.detectors import findings_of
from coterie.diagnosis.merge import merge_all
from coterie.facts import Cause
from coterie.settings.client_settings import AdminSettings
from coterie.settings.consumer_settings import ConsumerSettings
from soak.night_judge import Judge, Scenes
from soak.night_scenes import SCENES, Scene

Histories = dict[str, GroupHistory]

AT_ONCE = 3
BROKER = {
    "offsets.topic.num.partitions": "4",
    "group.consumer.session.timeout.ms": "8000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
MOVED = "coordinator-moved"
AFTER_RESTART_S = 20


@dataclass
class Running:
    bootstrap: str
    log: Path | None
    restart: Callable[[], None]


@contextmanager
def running(name: str, directory: Path, settings: dict[str, str] = BROKER) -> Iterator[Running]:
    if name == "apache":
        with ApacheKafka(settings, loggers={"org.apache.kafka.coordinator.group": "INFO"}) as kafka:

            def restart_kafka() -> None:
                kafka.stop()
                kafka.start()

            yield Running(kafka.bootstrap, kafka.log, restart_kafka)
        return
    with BrokerProcess(directory, settings) as broker:

        def restart() -> None:
            broker.stop()
            broker.start()

        yield Running(broker.bootstrap, None, restart)


def play(name: str, seed: int, only: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as directory, running(name, Path(directory)) as broker:
        scenes = make_scenes(broker, Path(directory), seed, only)
        watch = ClusterWatch(
            AdminSettings.load(bootstrap_servers=broker.bootstrap),
            ConsumerSettings.load("", (), SETTINGS, bootstrap_servers=broker.bootstrap),
        )
        with ExitStack() as ending, watch, ThreadPoolExecutor(AT_ONCE) as pool:
            for _, scene in scenes:
                ending.callback(scene.end)
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
    print(f"\n{name}, seed {seed}: {len(scenes)} scenes", flush=True)
    for group, why in failed.items():
        print(f"  not played to its end: {group}: {why[:2_000]}")
    return report(sources, [(kind, scene) for kind, scene in scenes if scene.group not in failed]) and not failed


def report(sources: dict[str, Histories], scenes: Scenes) -> bool:
    """Print what the sources said, and what is wrong with that. Returns whether nothing is."""
    everything = merge_all(list(sources.values()))
    judge = Judge(scenes, everything)
    scores = {source: judge.score(found) for source, found in sources.items()}
    together = scores["all"] = judge.score(everything, knows_all=True)
    for source, score in scores.items():
        print("  " + score.line(source))
    for source, score in scores.items():
        for line in score.told:
            print(f"    {source}: {line}")
    not_explained = judge.not_explained(together)
    must = sum(deed.must for _, scene in scenes for deed in scene.deeds)
    print(f"  done and explained: {must - len(not_explained)} of {must}")
    for line in not_explained:
        print(f"    not explained: {line}")
    quiet = [findings_of(everything[scene.group]) for kind, scene in scenes if kind == "quiet"]
    print(f"  quiet groups: {len(quiet)}, findings about them: {sum(map(len, quiet))}")
    groups = {scene.group for _, scene in scenes}
    contradictions = [
        f"{history.group_id} {one.number}: {name}: {getattr(one, name).claims}"
        for history in everything.values()
        if history.group_id in groups
        for one in history.rebalances
        for name in one.disagreements
    ]
    print(f"  contradictions between sources: {len(contradictions)}")
    for line in contradictions[:10]:
        print(f"    {line[:600]}")
    is_false = any(score.verdicts["wrong"] or score.false for score in scores.values())
    return not (is_false or contradictions or together.missed or not_explained or any(quiet))


def make_scenes(broker: Running, directory: Path, seed: int, only: list[str]) -> Scenes:
    scenes: Scenes = []
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
        scene.note("the coordinator starts again", {str(Cause.COORDINATOR_MOVED)}, "", must=False)
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
