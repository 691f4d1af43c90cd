"""Exactly once from Kafka through Spark to Kafka, by kill -9: drivers, executors, the source's process, another member.

    make spark-transactions-soak                                        on Coterie, then on Apache Kafka
    PYTHONPATH=tests python tests/soak/spark_transactions.py --kills 12 --seed 7 --on apache

A Spark application with two executors and an ordinary member share a group. Both read orders and write bills, in
transactions that have the group's offsets. A kill of the driver leaves its executors alive for a moment, so that tasks
of a driver that is dead still write. Half of the kills wait until the transaction of the query is open.

Checked at the end, for a reader with read_committed: each order has one bill, with its content; the committed offsets
of the group are the ends of the partitions, and the bills are those before them. Exit status 1 if not.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event, Thread

from apache_kafka import ApacheKafka
from coterie import Admin, Broker, Consumer, NewTopic, Producer, TopicPartition, checked
from coterie.client.admin import LATEST

__all__ = ["soak"]

INPUT, OUTPUT, GROUP, PARTITIONS = "orders", "bills", "billing", 4
HERE = Path(__file__).parent
AT_WORK_WITHIN_S = 300.0
SETTLES_WITHIN_S = 180.0
COMMANDS = {
    "driver": "SparkSubmit",
    "executor": "CoarseGrainedExecutorBackend",
    "source": "python_streaming_source_runner",
}
"""What is in the command line of a process that is killed."""


def processes_of(session: int) -> dict[int, str]:
    """The processes that one process has started, by whatever way; and their command lines."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):  # it has ended meanwhile
            if int((path / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def kill_hard(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Spark:
    """The application: started again whenever it is not alive."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address, self.folder = address, folder
        self.process: subprocess.Popen[bytes] | None = None
        self.sessions: list[int] = []
        self.reasons: Counter[str] = Counter()

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        self.note_end()
        arguments = [str(HERE / "spark_transactions_app.py"), self.address, INPUT, OUTPUT, GROUP, str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], stdout=log, stderr=log, start_new_session=True
            )
        self.sessions.append(self.process.pid)

    def note_end(self) -> None:
        """Remember what a query has failed with, if it could still say so."""
        error = self.folder / "error"
        if error.exists():
            text = error.read_text()
            lines = [line.strip() for line in text.splitlines() if "Error:" in line or "Exception:" in line]
            self.reasons[(lines or [text[:150]])[-1][:150]] += 1
            error.rename(self.folder / f"error-{len(self.sessions)}")

    def batches(self) -> int:
        """Return how many are done. Spark deletes old notes."""
        return max((int(path.name) + 1 for path in (self.folder / "checkpoint" / "commits").glob("[0-9]*")), default=0)

    def until_at_work(self) -> None:
        """Until it has done a batch; it is started as often as that takes."""
        begins, before = time.monotonic(), self.batches()
        while self.batches() == before:
            if not self.is_alive:
                self.start()
            if time.monotonic() - begins > AT_WORK_WITHIN_S:
                raise SystemExit(f"no batch within {AT_WORK_WITHIN_S} s: {(self.folder / 'log').read_text()[-3000:]}")
            time.sleep(0.1)

    def kill(self, what: str, rng: Random) -> bool:
        """Return whether there was such a process."""
        assert self.process is not None
        found = [pid for pid, line in processes_of(self.process.pid).items() if COMMANDS[what] in line]
        if not found:
            return False
        if what == "driver":
            kill_hard(self.process.pid, *found)
            self.process.wait()
        else:
            kill_hard(rng.choice(sorted(found)))
        return True

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            self.end()

    def end(self) -> None:
        for session in self.sessions:
            kill_hard(*processes_of(session))


class Member:
    def __init__(self, address: str) -> None:
        self.address = address
        self.process: subprocess.Popen[bytes] | None = None

    def change(self, rng: Random) -> str:
        """Start it; or stop it, in order or not."""
        if self.process is None or self.process.poll() is not None:
            command = [str(HERE / "transactional_member.py"), self.address, INPUT, OUTPUT, GROUP]
            self.process = subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL)
            return "member started"
        if rng.random() < 0.5:
            self.end()
            return "member killed"
        self.process.terminate()
        self.process.wait(60)
        return "member stopped"

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Orders:
    """Some hundred orders a second, each with a content of its own."""

    def __init__(self, address: str) -> None:
        self.contents: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self._ends = Event()
        self._producer = Producer(bootstrap_servers=address)
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ends.wait(0.1):
            for _ in range(60):
                content = b"order %d" % number
                self._producer.send(INPUT, content, key=b"%d" % (number % 97), partition=number % PARTITIONS)
                self.contents[number % PARTITIONS].append(content)
                number += 1
        self._producer.close()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()


@contextmanager
def broker(where: str) -> Iterator[str]:
    if where == "apache":
        with ApacheKafka({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}) as kafka:
            yield kafka.bootstrap
    else:
        with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as ours:
            yield ours.bootstrap_servers


def soak(where: str, kills: int, minutes: float, seed: int) -> bool:
    """Return whether everything held. The last kill is `minutes` after the start at the latest."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory() as name, broker(where) as address, Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(INPUT, PARTITIONS), NewTopic(OUTPUT, PARTITIONS)])
        spark, member, orders = Spark(address, Path(name)), Member(address), Orders(address)
        happened: Counter[str] = Counter()
        try:
            _live(spark, member, admin, rng, (kills, minutes), happened)
            orders.end()
            _settle(spark, admin, orders)
            spark.stop()
        finally:
            orders.end()
            member.end()
            spark.end()
        happened["batches"] = spark.batches()
        happened["batches that were written again"] = (Path(name) / "log").read_text().count("and is written again")
        happened["starts of the application"] = len(spark.sessions)
        for reason, count in spark.reasons.items():
            print(f"the query ended {count} times with: {reason}", flush=True)
        return _judge(address, admin, orders, happened)


def _live(
    spark: Spark, member: Member, admin: Admin, rng: Random, limits: tuple[int, float], happened: Counter[str]
) -> None:
    began = time.monotonic()
    spark.until_at_work()
    left, minutes = limits
    while left and time.monotonic() < began + 60 * minutes:
        time.sleep(rng.uniform(0.5, 4))
        is_open = False
        if rng.random() < 0.4:
            what = member.change(rng)
        else:
            what = f"{rng.choice(['driver', 'driver', 'executor', 'executor', 'executor', 'source'])} killed"
            is_open = rng.random() < 0.5 and _wait_until_open(admin)
            if not spark.is_alive or not spark.kill(what.split()[0], rng):
                continue
            left -= 1
            happened["in an open transaction"] += is_open
        happened[what] += 1
        print(f"{time.monotonic() - began:5.0f} s: {what}{', in an open transaction' * is_open}", flush=True)
        if what in {"driver killed", "source killed"}:  # an executor is replaced while the query goes on
            spark.until_at_work()
    spark.until_at_work()


def _wait_until_open(admin: Admin) -> bool:
    """Wait for a moment in which the query's transaction is open; not for ever."""
    ends_at = time.monotonic() + 5
    while time.monotonic() < ends_at:
        (found,) = admin.describe_transactions(["spark"]).values()
        if not isinstance(found, Exception) and found.state == "Ongoing":
            return True
        time.sleep(0.005)
    return False


def _settle(spark: Spark, admin: Admin, orders: Orders) -> None:
    ends_at = time.monotonic() + SETTLES_WITHIN_S
    while sum(committed(admin).values()) < sum(map(len, orders.contents)):
        if not spark.is_alive:
            spark.start()
        if time.monotonic() > ends_at:
            print(f"not read to the end within {SETTLES_WITHIN_S} s: {committed(admin)}", flush=True)
            return
        time.sleep(0.2)


def committed(admin: Admin) -> dict[int, int]:
    found = checked(admin.list_group_offsets(GROUP, require_stable=True))
    return {each.partition: offset.offset for each, offset in found.items() if offset is not None}


def bills(address: str, admin: Admin, isolation_level: str) -> list[str]:
    """What a reader with this isolation level sees."""
    partitions = [TopicPartition(OUTPUT, number) for number in range(PARTITIONS)]
    ends = checked(admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True))
    found = []
    with Consumer(bootstrap_servers=address, isolation_level=isolation_level, auto_offset_reset="earliest") as reader:
        reader.assign(partitions)
        while any(reader.position(each) < ends[each].offset for each in partitions):
            found += [(record.value or b"").decode() for record in reader.poll(1.0)]
    return found


def _judge(address: str, admin: Admin, orders: Orders, happened: Counter[str]) -> bool:
    expected = {
        f"{partition}:{offset}:{content.decode()}"
        for partition, contents in enumerate(orders.contents)
        for offset, content in enumerate(contents)
    }
    found = Counter(bills(address, admin, "read_committed"))
    ends = committed(admin)
    before = {bill for bill in expected if int(bill.split(":")[1]) < ends.get(int(bill.split(":")[0]), 0)}
    outcome = {
        "orders": len(expected),
        **happened,
        "bills": found.total(),
        "bills that were aborted": len(bills(address, admin, "read_uncommitted")) - found.total(),
        "missing": len(expected - found.keys()),
        "twice": sum(count > 1 for count in found.values()),
        "strange": len(found.keys() - expected),
        "committed and without a bill": len(before - found.keys()),
        "with a bill and not committed": len((found.keys() & expected) - before),
        "not committed": len(expected) - sum(ends.values()),
    }
    print(json.dumps(outcome), flush=True)
    wrong = ("missing", "twice", "strange", "committed and without a bill", "with a bill and not committed")
    return not any(outcome[each] for each in (*wrong, "not committed"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", choices=["coterie", "apache"], default="coterie")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=30, help="no kill after that")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    print(f"seed {given.seed} on {given.on}", flush=True)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(2))  # and end what was started
    sys.exit(0 if soak(given.on, given.kills, given.minutes, given.seed) else 1)
