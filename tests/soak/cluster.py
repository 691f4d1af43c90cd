"""Groups of four client libraries on a cluster of three Apache Kafka brokers to which everything happens.

    python tests/soak/cluster.py --minutes 10 --seed 1

A producer numbers records per partition, with acks=all. Each library has a group of two members, and there is a mixed
group with a member of each. Meanwhile partitions are added, brokers restarted one after the other and killed one after
the other, partitions reassigned, a leader elected uncleanly, a topic deleted and created again. Held for each group:

- lost: acknowledged records that no member was given. What the unclean election truncates is counted apart: of that
  topic, what is in the log at the end must have been seen.
- two owners: pairs of members of a group that said they own the same partition at the same time.
- backwards: committed offsets that went back, other than in the topics that were truncated or created again.

Exits with 1 if one of them is not 0 for a group with our members; what befalls groups of the others alone is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apache_kafka import run_java, why_not
from clients.libraries import LIBRARIES, TESTS
from clients.members.telling import Orders
from coterie import Admin, Consumer, Producer, TopicPartition
from coterie.client.admin.admin_types import NewTopic
from coterie.errors import CoterieError, KafkaError
from soak.kafka_cluster import KafkaCluster

PLAIN, MOVED, UNCLEAN, RECREATED = "plain", "moved", "unclean", "recreated"
TOPICS = (PLAIN, MOVED, UNCLEAN, RECREATED)
KINDS = ("coterie", "java", "confluent", "kafka-python")
MIXED = "mixed"
OVERLAP_MS = 1_000
"""Members tell of a revocation when their listener is called, and clocks are read in several processes."""
RECORDS_PER_SECOND = 80
PATIENCE_S = 150.0
SESSION_MS = 45_000


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


# --- members ----------------------------------------------------------------------------------------------------------


class Member:
    """A consumer in a process of its own; what it tells is read from its output."""

    def __init__(
        self,
        kind: str,
        group: str,
        number: int,
        bootstrap: str,
        directory: Path,
        topics: Sequence[str] = TOPICS,
    ) -> None:
        self.kind, self.group = kind, group
        self.name = f"{group}-{kind}-{number}"
        told = Orders(
            bootstrap=bootstrap,
            group=group,
            client_id=self.name,
            assignor="range",
            topics=topics,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1_000,
            metadata_max_age_ms=3_000,
        )
        library = LIBRARIES["java-consumer" if kind == "java" else kind]
        self.out, self.err = directory / f"{self.name}.out", directory / f"{self.name}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                library.command(told, directory),
                stdout=out,
                stderr=err,
                cwd=TESTS,
                env={**os.environ, "PYTHONPATH": str(TESTS)},
            )
        self._at = 0
        self.owned: dict[tuple[str, int], int] = {}
        """Since when, by what it told."""

    def events(self) -> Iterator[dict[str, Any]]:
        with self.out.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._at += len(line)
                yield json.loads(line)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


# --- what was written -------------------------------------------------------------------------------------------------


class Writer:
    """Sends numbered records to every partition in turn, at a steady rate, and knows which are acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(bootstrap_servers=bootstrap, acks="all", linger_ms=20, metadata_max_age_ms=3_000)
        self._lock = threading.Lock()
        self.targets: dict[str, int] = {}
        """Topics and how many partitions of them are written to."""
        self.incarnation = 0
        self.acked: dict[str, set[str]] = {topic: set() for topic in TOPICS}
        self.failed: Counter[str] = Counter()
        self._numbers: Counter[tuple[str, int]] = Counter()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(1 / RECORDS_PER_SECOND):
            places = [(topic, one) for topic, count in list(self.targets.items()) for one in range(count)]
            if places:
                self.send(*places[sum(self._numbers.values()) % len(places)])

    def send(self, topic: str, partition: int) -> None:
        with self._lock:
            number = self._numbers[topic, partition]
            self._numbers[topic, partition] += 1
        value = f"{topic}/{self.incarnation}/{partition}/{number}"

        def settled(_metadata: object, error: Exception | None) -> None:
            if error is None:
                self.acked[topic].add(value)
            else:
                self.failed[topic] += 1

        try:
            self._producer.send(topic, value, partition=partition, on_delivery=settled)
        except CoterieError:
            self.failed[topic] += 1

    def burst(self, topic: str, count: int) -> set[str]:
        """So many records to partition 0, acknowledged when it returns; their values."""
        before = set(self.acked[topic])
        for _ in range(count):
            self.send(topic, 0)
        self._producer.flush()
        return self.acked[topic] - before

    def flush(self) -> None:
        self._producer.flush()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        self._producer.close()


# --- what was seen ----------------------------------------------------------------------------------------------------


@dataclass
class Group:
    name: str
    members: list[Member]
    seen: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    repeated: int = 0
    owned: list[tuple[tuple[str, int], int, int, str]] = field(default_factory=list)
    """Partition, from, until, by whom."""
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    backwards: list[str] = field(default_factory=list)
    went_back: int = 0
    """Commits that went back where that is right."""
    rebalances: int = 0
    ended: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def is_ours(self) -> bool:
        return any(member.kind == "coterie" for member in self.members)

    def read(self) -> None:
        for member in self.members:
            for event in member.events():
                self._take(member, event)
            if not member.is_running and member.name not in self.ended:
                self.ended.append(member.name)

    def _take(self, member: Member, event: dict[str, Any]) -> None:
        kind, at_ms = event["event"], event["at_ms"]
        if kind == "consumed":
            for topic, _, _, value in event["records"]:
                self.repeated += value in self.seen[topic]
                self.seen[topic].add(value)
        elif kind == "assigned":
            self.rebalances += 1
            for topic, partition in event["partitions"]:
                member.owned[topic, partition] = at_ms
        elif kind in {"revoked", "lost"}:
            for topic, partition in event["partitions"]:
                since_ms = member.owned.pop((topic, partition), None)
                if since_ms is not None:
                    self.owned.append(((topic, partition), since_ms, at_ms, member.name))
        elif kind in {"commit_failed", "error"}:
            self.errors[event.get("error", "?")] += 1

    def sample(self, admin: Admin, may_go_back: Callable[[TopicPartition], bool]) -> None:
        try:
            found = admin.list_group_offsets(self.name)
        except CoterieError:
            return  # no coordinator at the moment
        for one, at in found.items():
            if at is None or isinstance(at, KafkaError):
                continue
            before = self.committed.get(one, -1)
            self.committed[one] = at.offset
            if at.offset < before:
                if may_go_back(one):
                    self.went_back += 1
                else:
                    self.backwards.append(f"{one}: {before} to {at.offset}")

    def two_owners(self) -> list[str]:
        now_ms = time.time_ns() // 1_000_000
        held = self.owned + [
            (place, since_ms, now_ms, member.name)
            for member in self.members
            for place, since_ms in member.owned.items()
        ]
        by_place: dict[tuple[str, int], list[tuple[int, int, str]]] = defaultdict(list)
        for place, since_ms, until_ms, name in held:
            by_place[place].append((since_ms, until_ms, name))
        found = []
        for place, spans in by_place.items():
            spans.sort()
            for at, (since_ms, until_ms, name) in enumerate(spans):
                for other_since, other_until, other in spans[at + 1 :]:
                    both_ms = min(until_ms, other_until) - max(since_ms, other_since)
                    if other != name and both_ms > OVERLAP_MS:
                        found.append(f"{place[0]}-{place[1]}: {name} and {other} for {both_ms} ms")
        return found


# --- what happens -----------------------------------------------------------------------------------------------------


class Soak:
    def __init__(self, cluster: KafkaCluster, directory: Path, minutes: float, rng: random.Random) -> None:
        self.cluster, self.rng = cluster, rng
        self.admin = Admin(
            bootstrap_servers=cluster.bootstrap, default_api_timeout_ms=15_000, request_timeout_ms=10_000
        )
        self.pause_s = minutes * 60 / 30
        self.directory = directory
        self.truncated: set[str] = set()
        self.may_go_back: set[str] = set()
        self.steps: list[str] = []
        self._create(
            NewTopic(PLAIN, 4, 3),
            NewTopic(MOVED, 3, 2, {"min.insync.replicas": "1"}),
            NewTopic(RECREATED, 2, 3),
            NewTopic(
                UNCLEAN,
                configs={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
                replicas={0: (1, 2)},
            ),
        )
        self.writer = Writer(cluster.bootstrap)
        self.groups = [
            Group(kind, [Member(kind, kind, number, cluster.bootstrap, directory) for number in range(2)])
            for kind in KINDS
        ]
        mixed = [Member(kind, MIXED, 0, cluster.bootstrap, directory) for kind in KINDS]
        self.groups.append(Group(MIXED, mixed))
        self._sampled = 0.0

    def _create(self, *topics: NewTopic) -> None:
        for result in self.admin.create_topics(topics).values():
            if isinstance(result, KafkaError):
                raise result

    # waiting

    def tick(self) -> None:
        for group in self.groups:
            group.read()
        if time.monotonic() - self._sampled > 2:
            for group in self.groups:
                group.sample(self.admin, lambda one: one.topic in self.may_go_back)
            self._sampled = time.monotonic()
        time.sleep(0.2)

    def pause(self, factor: float = 1.0) -> None:
        until = time.monotonic() + self.pause_s * factor
        while time.monotonic() < until:
            self.tick()

    def until(self, holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> bool:
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > patience_s:
                say(f"  gave up after {patience_s:.0f} s: {what}")
                return False
            self.tick()
        return True

    def is_whole(self) -> bool:
        try:
            found = self.admin.describe_topics([*TOPICS, "__consumer_offsets"])
        except CoterieError:
            return False
        return all(
            not isinstance(topic, KafkaError)
            and all(one.leader is not None and len(one.isr) == len(one.replicas) for one in topic.partitions)
            for topic in found.values()
        )

    def until_whole(self) -> None:
        self.until(self.is_whole, "all replicas are in sync")

    def have_all_seen(self, topic: str, values: set[str]) -> bool:
        return all(values <= group.seen[topic] for group in self.groups if not group.ended)

    def drain(self, topic: str) -> None:
        """Nothing more is written to it, and every group has what was."""
        self.writer.targets.pop(topic, None)
        self.writer.flush()
        acked = set(self.writer.acked[topic])
        self.until(lambda: self.have_all_seen(topic, acked), f"every group has read all of {topic}")

    # steps

    def step(self, name: str, do: Callable[[], None]) -> None:
        say(f"{name} ...")
        began = time.monotonic()
        do()
        self.until_whole()
        self.pause()
        acked = sum(map(len, self.writer.acked.values()))
        say(f"  {name}: {time.monotonic() - began:.0f} s; {acked} records acknowledged; " + self.behind())
        self.steps.append(name)

    def behind(self) -> str:
        parts = []
        for group in self.groups:
            behind = sum(
                len(values - group.seen[topic] - self.truncated) for topic, values in self.writer.acked.items()
            )
            parts.append(f"{group.name} {behind}")
        return "not yet seen: " + ", ".join(parts)

    def rolling_restart(self) -> None:
        for number in self.rng.sample([1, 2, 3], 3):
            self.cluster.nodes[number].stop()
            self.pause(0.2)
            self.cluster.start(number)
            self.until_whole()

    def kill_each(self) -> None:
        for number in self.rng.sample([1, 2, 3], 3):
            self.cluster.nodes[number].kill()
            self.pause(0.5)
            self.cluster.start(number)
            self.until_whole()

    def add_partitions(self) -> None:
        self.admin.create_partitions({PLAIN: 6})
        self.until(lambda: self._partitions(PLAIN) == 6, "there are six partitions")
        self.writer.targets[PLAIN] = 6

    def _partitions(self, topic: str) -> int:
        found = self.admin.describe_topics([topic])[topic]
        return 0 if isinstance(found, KafkaError) else len(found.partitions)

    def reassign(self) -> None:
        replicas = {number: self.rng.sample([1, 2, 3], 2) for number in range(3)}
        plan = self.directory / "reassignment.json"
        rows = [{"topic": MOVED, "partition": number, "replicas": to} for number, to in replicas.items()]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        run_java(tool, "--bootstrap-server", self.cluster.bootstrap, "--reassignment-json-file", plan, "--execute")

        def is_done() -> bool:
            found = self.admin.describe_topics([MOVED])[MOVED]
            return not isinstance(found, KafkaError) and all(
                sorted(one.replicas) == sorted(replicas[one.partition]) for one in found.partitions
            )

        self.until(is_done, "the partitions have moved")

    def unclean_election(self) -> None:
        self.drain(UNCLEAN)
        self.cluster.nodes[2].stop()
        doomed = self.writer.burst(UNCLEAN, 100)
        self.until(lambda: self.have_all_seen(UNCLEAN, doomed), "every group has read what will be truncated")
        self.pause(0.3)  # and committed it
        self.may_go_back.add(UNCLEAN)
        self.cluster.nodes[1].kill()
        self.cluster.start(2)
        self.until(lambda: self._leader(UNCLEAN) == 2, "node 2 leads")
        self.truncated = doomed
        after = self.writer.burst(UNCLEAN, 300)
        say(f"  {len(doomed)} acknowledged records truncated, {len(after)} written since")
        self.cluster.start(1)
        self.until(lambda: self.have_all_seen(UNCLEAN, after), "every group has read what was written since", 60)
        self.writer.targets[UNCLEAN] = 1

    def _leader(self, topic: str) -> int:
        try:
            found = self.admin.describe_topics([topic])[topic]
        except CoterieError:
            return -1
        if isinstance(found, KafkaError) or found.partitions[0].leader is None:
            return -1
        return found.partitions[0].leader.id

    def recreate(self) -> None:
        self.drain(RECREATED)
        self.may_go_back.add(RECREATED)
        self.admin.delete_topics([RECREATED])
        self.pause(0.3)
        self.writer.incarnation += 1
        self._create(NewTopic(RECREATED, 2, 3))
        self.writer.targets[RECREATED] = 2

    def run(self) -> None:
        self.writer.start()
        self.writer.targets |= {PLAIN: 4, MOVED: 3, UNCLEAN: 1, RECREATED: 2}
        self.until(lambda: all(len(group.seen[PLAIN]) > 20 for group in self.groups), "every group reads")
        say("every group reads; " + self.behind())
        steps: dict[str, Callable[[], None]] = {
            "partitions added": self.add_partitions,
            "rolling restart": self.rolling_restart,
            "kill -9 of each": self.kill_each,
            "reassignment": self.reassign,
            "unclean election": self.unclean_election,
            "deleted and recreated": self.recreate,
        }
        for name in self.rng.sample(list(steps), len(steps)):
            self.step(name, steps[name])
        for topic in list(self.writer.targets):
            self.drain(topic)

    # judging

    def in_the_log(self, topic: str) -> set[str]:
        """All that is there now, read by nobody's member."""
        with Consumer(bootstrap_servers=self.cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            places = consumer.partitions_for(topic)
            consumer.assign(places)
            ends = consumer.end_offsets(places)
            found: set[str] = set()
            until = time.monotonic() + 60
            while any(consumer.position(one) < ends[one] for one in places) and time.monotonic() < until:
                found |= {(record.value or b"").decode() for record in consumer.poll(0.5)}
        return found

    def judge(self) -> bool:
        logs = {topic: self.in_the_log(topic) for topic in TOPICS}
        acked = {topic: set(values) for topic, values in self.writer.acked.items()}
        gone = {topic: len(acked[topic] - logs[topic]) for topic in (PLAIN, MOVED)}
        truncated = len(acked[UNCLEAN] - logs[UNCLEAN])
        print(f"\nsteps: {', '.join(self.steps)}")
        print(
            f"acknowledged: {', '.join(f'{topic} {len(values)}' for topic, values in sorted(acked.items()))}; ", end=""
        )
        print(f"not acknowledged: {sum(self.writer.failed.values())}")
        print(f"truncated by the unclean election: {truncated}; lost by the brokers elsewhere: {sum(gone.values())}\n")
        print(f"{'group':14}{'seen':>8}{'again':>7}{'lost':>6}{'two owners':>12}{'backwards':>11}", end="")
        print(f"{'went back':>11}{'assigned':>10}{'ended':>7}")
        is_well = True
        details: list[str] = []
        for group in self.groups:
            group.read()
            must = {PLAIN: acked[PLAIN], MOVED: acked[MOVED], RECREATED: acked[RECREATED], UNCLEAN: logs[UNCLEAN]}
            lost = {topic: values - group.seen[topic] for topic, values in must.items()}
            owners = group.two_owners()
            count = sum(map(len, lost.values()))
            seen = sum(map(len, group.seen.values()))
            print(
                f"{group.name:14}{seen:8}{group.repeated:7}{count:6}{len(owners):12}{len(group.backwards):11}", end=""
            )
            print(f"{group.went_back:11}{group.rebalances:10}{len(group.ended):7}")
            details += [
                f"{group.name}: {len(values)} of {topic}: {_some(values)}" for topic, values in lost.items() if values
            ]
            details += [f"{group.name}: two owners: {one}" for one in owners[:5]]
            details += [f"{group.name}: back: {one}" for one in group.backwards[:5]]
            details += [f"{group.name}: ended by itself: {one}" for one in group.ended]
            if group.errors:
                details.append(f"{group.name}: told errors: {dict(group.errors)}")
            if group.is_ours:
                ours_ended = [one for one in group.ended if "-coterie-" in one]
                is_well = is_well and not (count or owners or group.backwards or ours_ended)
        print("", *details, sep="\n")
        return is_well and truncated > 0 and not sum(gone.values())

    def end(self) -> None:
        for group in self.groups:
            for member in group.members:
                member.end()
        self.writer.end()
        self.admin.close()


def _some(values: set[str], count: int = 4) -> str:
    return ", ".join(sorted(values)[:count]) + (" ..." if len(values) > count else "")


def main() -> int:
    parser = argparse.ArgumentParser(description="Groups on a cluster of three Apache Kafka brokers.")
    parser.add_argument("--minutes", type=float, default=10, help="about how long it takes (default %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="chooses the order of what happens")
    parser.add_argument("--keep", type=Path, default=None, help="keep what the members told in this directory")
    given = parser.parse_args()
    if (reason := why_not()) is not None:
        print(reason)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that brokers and members are ended, too
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    say(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="cluster-soak-") as scratch, KafkaCluster() as cluster:
        directory = Path(scratch) if given.keep is None else given.keep
        directory.mkdir(parents=True, exist_ok=True)
        say("three brokers are up")
        soak = Soak(cluster, directory, given.minutes, random.Random(seed))
        try:
            soak.run()
            is_well = soak.judge()
        finally:
            soak.end()
    held = "every group with a Coterie member held; for the others see the table"
    say(held if is_well else f"something did not hold; again with --seed {seed}")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
