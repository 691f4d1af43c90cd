"""A member of a group on a standalone cluster of Spark: master and two workers, each a process, by kill -9.

    make spark-soak                                        ten minutes and 15 kills on Coterie, the same on Apache Kafka
    PYTHONPATH=tests python tests/soak/spark_cluster.py --minutes 3 --kills 5 --seed 7 --on apache

Killed are an executor, a worker with its executors, the driver, the process of the source, which is the member, and an
ordinary consumer that is the other member. Speculation is on; how many tasks ran twice is not counted. Checked at the
end: nothing is missing; what is twice was in a batch under way when its reader was killed, so an executor or a worker
costs nothing; within the application nothing is twice at all; and no partition was worked on by two members at once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pyspark

from coterie.client.admin.admin import Admin
from coterie.client.admin.admin_types import NewTopic
from soak.spark_members import PARTITIONS, TOPIC, Application, Member, Plain, Writing, broker
from soak.spark_members import committed as committed_offsets
from soak.spark_transactions import kill_hard, processes_of
from soak.stretches import overlaps

__all__ = ["soak"]

WITHIN_S = 240.0
KILLED = ("executor", "worker", "driver", "source", "other member")
COMMANDS = {"executor": "CoarseGrainedExecutorBackend", "source": "python_streaming_source_runner"}


class Cluster:
    """Spark's own master and workers, on free ports of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.master = f"spark://127.0.0.1:{port}"
        self.sessions: list[int] = []
        self._start("master.Master", "--port", str(port))
        self.workers = [self._worker(), self._worker()]

    def _start(self, name: str, *more: str) -> int:
        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        with (self.folder / "cluster.log").open("ab") as log:
            started = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--webui-port", "0", *more],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.sessions.append(started.pid)
        return started.pid

    def _worker(self) -> int:
        files = self.folder / f"worker-{len(self.sessions)}"
        return self._start("worker.Worker", "--cores", "2", "--memory", "600m", "--work-dir", str(files), self.master)

    def executors(self) -> list[int]:
        lines = {pid: line for worker in self.workers for pid, line in processes_of(worker).items()}
        return sorted(pid for pid, line in lines.items() if COMMANDS["executor"] in line)

    def kill_worker(self, which: int) -> None:
        """Kill it with its executors, as a machine that fails does; another comes in its place."""
        kill_hard(*processes_of(self.workers[which]))
        self.workers[which] = self._worker()

    def end(self) -> None:
        for session in self.sessions:
            kill_hard(*processes_of(session))
            with suppress(ChildProcessError):
                os.waitpid(session, 0)


class OnCluster(Application):
    master = ""

    def command(self) -> list[str]:
        return [*super().command(), self.master]

    def batches(self) -> int:
        return len(self._batches("commits"))

    def kill_source(self) -> bool:
        """Kill the process that is the member. The query fails, and the application ends by itself."""
        assert self.process is not None
        found = [pid for pid, line in processes_of(self.process.pid).items() if COMMANDS["source"] in line]
        if not found:
            return False
        kill_hard(*found)
        self.process.wait(WITHIN_S)
        self.ends.append(time.time())
        (self.folder / "error").unlink(missing_ok=True)
        self.under_way |= self.not_yet_committed()
        return True


def until_at_work(spark: OnCluster) -> None:
    """Wait for two more batches. An application that has ended, or that Spark gave no worker, is started again."""
    wanted, ends_at = spark.batches() + 2, time.monotonic() + WITHIN_S
    while spark.batches() < wanted:
        assert time.monotonic() < ends_at, f"no batch: {(spark.folder / 'log').read_text()[-3000:]}"
        error = spark.folder / "error"
        assert not error.exists(), error.read_text()
        assert spark.is_alive, (spark.folder / "log").read_text()[-3000:]
        time.sleep(0.2)


def strike(what: str, cluster: Cluster, spark: OnCluster, plain: Plain, rng: Random) -> bool:
    """Kill something, and start again what does not come back by itself. Return whether there was such a process."""
    if what == "executor":
        found = cluster.executors()
        kill_hard(*found[: rng.randint(1, 2)])
        return bool(found)
    if what == "worker":
        cluster.kill_worker(rng.randrange(2))
        return True
    member: Member = plain if what == "other member" else spark
    if what == "source":
        if not spark.kill_source():
            return False
    else:
        member.kill()
    member.start()
    return True


def soak(where: str, minutes: float, kills: int, seed: int) -> Counter[str]:
    rng = Random(seed)
    happened: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, broker(where) as address, Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        cluster = Cluster(Path(name))
        spark, plain = OnCluster("spark", address, Path(name)), Plain("plain", address, Path(name))
        spark.master = cluster.master
        writing = Writing(address)
        try:
            spark.start()
            until_at_work(spark)
            plain.start()
            began = time.monotonic()
            for number in range(kills):
                time.sleep(max(began + minutes * 60 * number / kills - time.monotonic(), 0) + rng.uniform(1, 4))
                what = KILLED[number % len(KILLED)]
                happened[what if strike(what, cluster, spark, plain, rng) else f"no {what}"] += 1
                print(f"{time.monotonic() - began:.0f} s: kill -9: {what}", flush=True)
                until_at_work(spark)
            time.sleep(max(began + minutes * 60 - time.monotonic(), 0))
            written = writing.end()
            ends_at = time.monotonic() + WITHIN_S
            while committed_offsets(admin) < len(written):
                assert time.monotonic() < ends_at, f"{committed_offsets(admin)} of {len(written)} are committed"
                time.sleep(1)
            for member in (spark, plain):
                member.stop()
        finally:
            writing.end()
            for member in (spark, plain):
                if member.is_alive:
                    member.kill()
            cluster.end()
        _judge([spark, plain], written, happened)
    return happened


def _judge(members: list[Member], written: set[tuple[int, int]], happened: Counter[str]) -> None:
    seen = Counter(place for member in members for place in member.seen())
    twice = {place for place, count in seen.items() if count > 1}
    under_way = set().union(*(member.under_way for member in members))
    stretches = [each for member in members for each in member.stretches()]
    outcome = {
        "records": len(written),
        "kills": happened.total(),
        **happened,
        "missing": len(written - seen.keys()),
        "strange": len(seen.keys() - written),
        "twice": len(twice),
        "twice and not under way in a kill": len(twice - under_way),
        "twice within the application": sum(count > 1 for count in Counter(members[0].seen()).values()),
        "two at once": len(overlaps(stretches)),
        **{f"stretches of {member.name}": len(member.stretches()) for member in members},
    }
    print(json.dumps(outcome), flush=True)
    assert not outcome["missing"] and not outcome["strange"] and not twice - under_way, outcome
    assert not outcome["twice within the application"], outcome
    assert not overlaps(stretches), overlaps(stretches)[:10]
    assert all(member.seen() for member in members)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", choices=["coterie", "apache"], default="coterie")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    print(f"seed {given.seed} on {given.on}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    soak(given.on, given.minutes, given.kills, given.seed)
