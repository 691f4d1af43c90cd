"""Three members in one group, two of them Spark applications: they come, stop in order, and die by kill -9.

    make spark-soak                                        ten minutes on Coterie, ten on Apache Kafka
    PYTHONPATH=tests python tests/soak/spark_members.py --minutes 3 --seed 7 --on apache

Batches take up to three seconds, ten heartbeats. Held at the end: nothing is missing; what is twice was in a batch
under way when its reader was killed. A stop in order, a join and a leave cost nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Event, Thread

from apache_kafka import ApacheKafka
from coterie import Broker
from coterie.client.admin.admin import Admin
from coterie.client.admin.words import NewTopic
from coterie.client.producer import Producer
from soak.plain_member import COMMITTED

__all__ = ["soak"]

TOPIC, GROUP, PARTITIONS = "orders", "soak", 6
LONGEST_BATCH_S = 3.0
ENDS_WITHIN_S = 120
Place = tuple[int, int]
HERE = Path(__file__).parent


class Member:
    """A process that is started, stopped and killed again and again; its folder outlives it."""

    def __init__(self, name: str, address: str, folder: Path) -> None:
        self.name, self.address, self.folder = name, address, folder / name
        self.folder.mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        self.under_way: set[Place] = set()
        """What was under way whenever it was killed."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        """In a session of its own, so that a kill takes the JVM and its workers with it."""
        (self.folder / "started").unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.command()], stdout=log, stderr=log, start_new_session=True
            )

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """In order; a process that is only just coming up does not know yet what that is."""
        assert self.process is not None
        ends_at = time.monotonic() + ENDS_WITHIN_S
        while not (self.folder / "started").exists():
            assert self.is_alive and time.monotonic() < ends_at, f"{self.name} did not come up"
            time.sleep(0.1)
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(ENDS_WITHIN_S)
        assert code == 0, f"{self.name} ended with {code}: {(self.folder / 'log').read_text()[-2000:]}"

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.under_way |= self.not_yet_committed()

    def not_yet_committed(self) -> set[Place]:
        raise NotImplementedError

    def seen(self) -> list[Place]:
        raise NotImplementedError


class Application(Member):
    def command(self) -> list[str]:
        return [str(HERE / "spark_app.py"), self.address, TOPIC, GROUP, str(self.folder), str(LONGEST_BATCH_S)]

    def _batches(self, log: str) -> list[int]:
        folder = self.folder / "checkpoint" / log
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.exists() else []

    def not_yet_committed(self) -> set[Place]:
        """The last plan in the checkpoint: the one before it was committed before this one was made."""
        begun = self._batches("offsets")
        if not begun:
            return set()
        text = (self.folder / "checkpoint" / "offsets" / str(begun[-1])).read_text()
        plan = json.loads(text.splitlines()[2])
        spans = plan["topics"].get(TOPIC, {}).items()
        return {(int(number), offset) for number, span in spans for offset in range(span["from"], span["until"])}

    def seen(self) -> list[Place]:
        """Of batches that Spark's log says are done."""
        done = self._batches("commits")
        sink = self.folder / "sink"
        return [(row[0], row[1]) for batch in done for row in json.loads((sink / str(batch)).read_text())]


class Plain(Member):
    def command(self) -> list[str]:
        return [str(HERE / "plain_member.py"), self.address, TOPIC, GROUP, str(self.folder / "seen")]

    def _lines(self) -> list[str]:
        file = self.folder / "seen"
        return [line for line in file.read_text().splitlines() if line == COMMITTED or line.endswith("]]")]

    def not_yet_committed(self) -> set[Place]:
        if not (self.folder / "seen").exists():
            return set()
        found: set[Place] = set()
        for line in reversed(self._lines()):
            if line == COMMITTED:
                break
            found |= {(row[0], row[1]) for row in json.loads(line)}
        return found

    def seen(self) -> list[Place]:
        lines = [line for line in self._lines() if line != COMMITTED]
        return [(row[0], row[1]) for line in lines for row in json.loads(line)]


class Writing:
    """Some hundred records a second, round robin."""

    def __init__(self, address: str) -> None:
        self.counts = [0] * PARTITIONS
        self._ends = Event()
        self._producer = Producer(bootstrap_servers=address)
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(0.1):
            for number in range(60):
                self._producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                self.counts[number % PARTITIONS] += 1
        self._producer.close()

    def end(self) -> set[Place]:
        self._ends.set()
        self._thread.join()
        return {(number, offset) for number, count in enumerate(self.counts) for offset in range(count)}


@contextmanager
def broker(where: str) -> Iterator[str]:
    if where == "apache":
        with ApacheKafka() as kafka:
            yield kafka.bootstrap
    else:
        with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as ours:
            yield ours.bootstrap_servers


def soak(where: str, minutes: float, seed: int) -> dict[str, int]:
    dice = Random(seed)
    with tempfile.TemporaryDirectory() as name, broker(where) as address, Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        members = [
            Application("one", address, Path(name)),
            Application("two", address, Path(name)),
            Plain("plain", address, Path(name)),
        ]
        writing = Writing(address)
        happened: Counter[str] = Counter()
        try:
            _live(members, dice, time.monotonic() + minutes * 60, happened)
            written = writing.end()
            _settle(admin, members, len(written))
        finally:
            writing.end()
            for member in members:
                if member.is_alive:
                    member.kill()
        return _judge(members, written, happened)


def _live(members: list[Member], dice: Random, ends_at: float, happened: Counter[str]) -> None:
    for member in members:
        member.start()
    time.sleep(45)  # two JVMs come up
    while time.monotonic() < ends_at:
        time.sleep(dice.uniform(3, 12))
        member = dice.choice(members)
        if not member.is_alive:
            assert not (member.folder / "error").exists(), (member.folder / "error").read_text()
            what = "start"
        else:
            what = dice.choice(["stop", "stop", "kill"])
        happened[what] += 1
        print(f"{what} {member.name}", flush=True)
        getattr(member, what)()


def _settle(admin: Admin, members: list[Member], count: int) -> None:
    """All come back and read to the end; then they stop in order."""
    for member in members:
        if not member.is_alive:
            member.start()
    ends_at = time.monotonic() + 180
    while _committed(admin) < count:
        assert time.monotonic() < ends_at, f"{_committed(admin)} of {count} are committed after three minutes"
        time.sleep(1)
    for member in members:
        member.stop()


def _committed(admin: Admin) -> int:
    found = admin.list_group_offsets(GROUP).values()
    return sum(each.offset for each in found if each is not None and not isinstance(each, Exception))


def _judge(members: list[Member], written: set[Place], happened: Counter[str]) -> dict[str, int]:
    seen = Counter(place for member in members for place in member.seen())
    twice = {place for place, count in seen.items() if count > 1}
    under_way = set().union(*(member.under_way for member in members))
    outcome = {
        "records": len(written),
        **happened,
        "missing": len(written - seen.keys()),
        "strange": len(seen.keys() - written),
        "twice": len(twice),
        "twice and not under way in a kill": len(twice - under_way),
    }
    print(json.dumps(outcome), flush=True)
    assert not outcome["missing"] and not outcome["strange"], sorted(written - seen.keys())[:10]
    assert not twice - under_way, sorted(twice - under_way)[:10]
    return outcome


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", choices=["coterie", "apache"], default="coterie")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    print(f"seed {given.seed} on {given.on}", flush=True)
    soak(given.on, given.minutes, given.seed)
