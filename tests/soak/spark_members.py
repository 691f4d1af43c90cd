"""Three members in one group, two of them Spark applications: they come, stop in order, and die by kill -9.

    make spark-soak                                        ten minutes on Coterie, ten on Apache Kafka
    PYTHONPATH=tests python tests/soak/spark_members.py --minutes 3 --seed 7 --on apache

Batches take up to three seconds, ten heartbeats. Held at the end: nothing is missing; what is twice was in a batch
under way when its reader was killed. A stop in order, a join and a leave cost nothing. No partition was worked on by
two at once, by what the members wrote down themselves; and what a member kept, it read on where it was.
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
from typing import Any

from apache_kafka import ApacheKafka
from coterie import Broker
from coterie.client.admin.admin import Admin
from coterie.client.admin.admin_types import NewTopic
from coterie.client.producer.producer import Producer
from coterie.spark.batch_plan import BatchPlan
from soak.stretches import Stretch, gaps, overlaps

__all__ = ["soak"]

TOPIC, GROUP, PARTITIONS = "orders", "soak", 6
LONGEST_BATCH_S = 3.0
ENDS_WITHIN_S = 120
COMES_UP_WITHIN_S = 240
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
        self.starts: list[float] = []
        self.ends: list[float] = []

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        """In a session of its own, so that a kill takes the JVM and its workers with it."""
        (self.folder / "started").unlink(missing_ok=True)
        self.starts.append(time.time())
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
        self.ends.append(time.time())
        assert code == 0, f"{self.name} ended with {code}: {(self.folder / 'log').read_text()[-2000:]}"

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.ends.append(time.time())
        self.under_way |= self.not_yet_committed()

    def not_yet_committed(self) -> set[Place]:
        raise NotImplementedError

    def seen(self) -> list[Place]:
        raise NotImplementedError

    def stretches(self) -> list[Stretch]:
        """When it worked on which partition, each within one life of it."""
        raise NotImplementedError

    @property
    def is_at_work(self) -> bool:
        """It has had a partition in this life."""
        assert not (self.folder / "error").exists(), (self.folder / "error").read_text()
        return self.is_alive and any(each.ended_s > self.starts[-1] for each in self.stretches())

    def end_after(self, at_s: float) -> float:
        return min((end for end in self.ends if end >= at_s), default=time.time())


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
        spans = self._spans(begun[-1])
        return {(number, offset) for number, span in spans.items() for offset in range(*span)}

    def _spans(self, batch: int) -> dict[int, Place]:
        """What the plan of a batch reads. Spark may have deleted the plan before, and then it is taken for empty."""
        begun = self._plan(batch - 1) if batch - 1 in self._batches("offsets") else None
        plan = BatchPlan.from_json(self._plan(batch), BatchPlan.from_json(begun) if begun else None)
        return {each.partition: (span.from_offset, span.until_offset) for each, span in plan.spans.items()}

    def _plan(self, batch: int) -> Any:
        return json.loads((self.folder / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()[2])

    def stretches(self) -> list[Stretch]:
        """A batch, from its plan to the note that it is done. One that was repeated may not have been ours any more."""
        found = []
        for batch in self._batches("commits"):
            began_s, ended_s = (
                (self.folder / "checkpoint" / log / str(batch)).stat().st_mtime for log in ("offsets", "commits")
            )
            is_repeated = any(began_s < start < ended_s for start in self.starts)
            spans = [(number, span) for number, span in self._spans(batch).items() if span[1] > span[0]]
            found += [Stretch(self.name, number, began_s, ended_s, *span, is_repeated) for number, span in spans]
        return found

    def seen(self) -> list[Place]:
        """Of batches that Spark's log says are done."""
        done = self._batches("commits")
        sink = self.folder / "sink"
        return [(row[0], row[1]) for batch in done for row in json.loads((sink / str(batch)).read_text())]


class Plain(Member):
    def command(self) -> list[str]:
        return [str(HERE / "plain_member.py"), self.address, TOPIC, GROUP, str(self.folder / "seen")]

    def _lines(self) -> list[dict[str, Any]]:
        """The last may have been broken off by a kill."""
        file = self.folder / "seen"
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}") and line.startswith("{")]

    def not_yet_committed(self) -> set[Place]:
        found: set[Place] = set()
        for line in reversed(self._lines()):
            if "committed" in line:
                break
            found |= {(row[0], row[1]) for row in line.get("read", [])}
        return found

    def seen(self) -> list[Place]:
        return [(row[0], row[1]) for line in self._lines() for row in line.get("read", [])]

    def stretches(self) -> list[Stretch]:
        """From the assignment to the end of the commit that gives it up, whatever it read meanwhile."""
        found = []
        lines = self._lines()
        for start_s in self.starts:
            end_s = self.end_after(start_s)
            began: dict[int, float] = {}
            for line in (each for each in lines if start_s <= each["at"] <= end_s):
                began |= dict.fromkeys(line.get("owns", []), line["at"])
                given = [(each, began.pop(each)) for each in line.get("gives", []) if each in began]
                found += [Stretch(self.name, each, since, line["at"]) for each, since in given]
                for each in line.get("loses", []):
                    began.pop(each, None)  # when, it learned too late
            found += [Stretch(self.name, each, since, end_s) for each, since in began.items()]
        return found


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
    rng = Random(seed)
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
            _live(members, rng, minutes, happened)
            written = writing.end()
            _settle(admin, members, len(written))
        finally:
            writing.end()
            for member in members:
                if member.is_alive:
                    member.kill()
        return _judge(members, written, happened)


def _live(members: list[Member], rng: Random, minutes: float, happened: Counter[str]) -> None:
    """It begins, and ends, with all of them at work, so that none was there in name only."""
    _all_at_work(members)
    ends_at = time.monotonic() + minutes * 60
    while time.monotonic() < ends_at:
        time.sleep(rng.uniform(3, 12))
        member = rng.choice(members)
        if not member.is_alive:
            what = "start"
        elif member.is_at_work:
            what = rng.choice(["stop", "stop", "kill"])
        else:
            continue  # it is only just coming up
        happened[what] += 1
        print(f"{what} {member.name}", flush=True)
        getattr(member, what)()
    _all_at_work(members)


def _all_at_work(members: list[Member]) -> None:
    for member in members:
        if not member.is_alive:
            member.start()
    ends_at = time.monotonic() + COMES_UP_WITHIN_S
    while not all(member.is_at_work for member in members):
        idle = [member.name for member in members if not member.is_at_work]
        assert time.monotonic() < ends_at, f"{idle} read nothing within {COMES_UP_WITHIN_S} s"
        time.sleep(0.5)


def _settle(admin: Admin, members: list[Member], count: int) -> None:
    """They read to the end, and stop in order."""
    ends_at = time.monotonic() + 180
    while committed(admin) < count:
        assert time.monotonic() < ends_at, (
            f"{committed(admin)} of {count} are committed after three minutes: "
            f"{admin.list_group_offsets(GROUP)} {admin.describe_groups([GROUP])}"
        )
        time.sleep(1)
    for member in members:
        member.stop()


def committed(admin: Admin) -> int:
    found = admin.list_group_offsets(GROUP).values()
    return sum(each.offset for each in found if each is not None and not isinstance(each, Exception))


def _judge(members: list[Member], written: set[Place], happened: Counter[str]) -> dict[str, int]:
    seen = Counter(place for member in members for place in member.seen())
    stretches = [each for member in members for each in member.stretches()]
    twice = {place for place, count in seen.items() if count > 1}
    under_way = set().union(*(member.under_way for member in members))
    outcome = {
        "records": len(written),
        **happened,
        "missing": len(written - seen.keys()),
        "strange": len(seen.keys() - written),
        "twice": len(twice),
        "twice and not under way in a kill": len(twice - under_way),
        **{f"stretches of {member.name}": len(member.stretches()) for member in members},
        "two at once": len(overlaps(stretches)),
        "gaps in what was kept": len(gaps(stretches)),
    }
    print(json.dumps(outcome), flush=True)
    assert not outcome["missing"] and not outcome["strange"], sorted(written - seen.keys())[:10]
    assert not twice - under_way, sorted(twice - under_way)[:10]
    assert all(member.stretches() for member in members)
    assert not overlaps(stretches), overlaps(stretches)[:10]
    assert not gaps(stretches), gaps(stretches)[:10]
    return outcome


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", choices=["coterie", "apache"], default="coterie")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    print(f"seed {given.seed} on {given.on}", flush=True)
    soak(given.on, given.minutes, given.seed)
