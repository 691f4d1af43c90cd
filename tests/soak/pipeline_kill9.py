"""kill -9 of the pipeline in the middle of --follow, again and again: no row missing, no row twice.

    make pipeline-soak KILLS=10 SEED=1

The log has been made before and more is committed meanwhile; batches are small, so that a kill meets one at work. After
the last kill the pipeline runs to the end, by spark-submit, and its tables are compared with a second reading of the
log.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from coterie import Broker
from coterie.client.admin.admin import Admin
from coterie.client.types import OffsetAndMetadata, TopicPartition
from spark.busy_groups import KEEPS_ALL, PARTITIONS, live_busily
from spark.second_reading import log_of_broker
from spark.tables import assert_as_read_again

__all__ = ["soak", "submitted"]

PATIENCE_S = 240.0
TOO_BUSY = b"Python worker failed to connect back"
"""Spark waits ten seconds for its workers, which cannot be set; on a machine that has no time for them it gives up."""


class Follower:
    """`coterie pipeline groups --follow` in a process group of its own: Python, Java and Spark's workers."""

    def __init__(self, bootstrap: str, out: Path, records_per_batch: int) -> None:
        command = [str(Path(sys.executable).with_name("coterie")), "pipeline", "groups", "--follow", "--every", "0.5"]
        command += ["--bootstrap", bootstrap, "--out", str(out), "--records-per-batch", str(records_per_batch)]
        self.log = out.parent / "follower.log"
        quick = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}  # it does not live long enough for more
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--master", "local[2]"],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **quick},
            )

    def wait_for_a_batch(self) -> bool:
        """Begun by somebody before us or by us: it has said that one is done. False: Spark gave up before."""
        until = time.monotonic() + PATIENCE_S
        while b"\nbatch " not in self.log.read_bytes():
            if self._process.poll() is not None and TOO_BUSY in self.log.read_bytes():
                return False
            assert self._process.poll() is None, self.log.read_text()[-3_000:]
            assert time.monotonic() < until, f"no batch within {PATIENCE_S} s: {self.log.read_text()[-3_000:]}"
            time.sleep(0.05)
        return True

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it ended before
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def soak(folder: Path, *, kills: int, seed: int, finish: Callable[[str, Path], None], steps: int = 1_200) -> list[str]:
    """Which batch each kill met. `finish` runs the pipeline to the end."""
    rng = Random(seed)
    live_busily(folder / "data", groups=4, steps=steps, seed=seed)
    out, met, gave_up = folder / "out", list[str](), 0
    with (
        Broker(data=folder / "data", settings=KEEPS_ALL) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        while len(met) < kills:
            number = len(met)
            follower = Follower(broker.bootstrap_servers, out, records_per_batch=max(steps // (3 * kills), 20))
            try:
                if not follower.wait_for_a_batch():
                    gave_up += 1
                    assert gave_up <= kills, "this machine has no time for Spark"
                    print("Spark gave up on its workers: started again, and not counted", flush=True)
                    continue
                places = [TopicPartition(*place) for place in PARTITIONS]
                admin.alter_group_offsets("more", {place: OffsetAndMetadata(number) for place in places})
                time.sleep(rng.random() * 6)
            finally:
                follower.kill()
            begun = sorted(int(each.name) for each in (out / "checkpoint" / "offsets").iterdir() if each.name.isdigit())
            done = sorted(int(each.name.rpartition("-")[2]) for each in (out / "state").glob("*-*"))
            aside = sorted(each.name for each in (out / "_aside").glob("*"))
            met.append(f"kill {number}: batch {begun[-1]} begun, {done[-1] if done else None} done, aside {aside}")
            print(met[-1], flush=True)
        finish(broker.bootstrap_servers, out)
        assert_as_read_again(out, log_of_broker(broker.bootstrap_servers))
    return met


def submitted(bootstrap: str, out: Path) -> None:
    """To the end by spark-submit: the very command of docs/pipeline.md, on this machine instead of a cluster."""
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
    (command,) = re.findall(r"^\$ (spark-submit .*?\n)```", page, re.DOTALL | re.MULTILINE)
    here = {"yarn": "'local[2]'", "kafka:9092": bootstrap, "hdfs:///groups": str(out), "--follow": "--once"}
    for theirs, ours in here.items():
        assert theirs in command, f"{theirs} is not in the command of the docs"
        command = command.replace(theirs, ours)
    beside = Path(sys.executable).parent
    places = {"PATH": f"{beside}:{os.environ['PATH']}", "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    subprocess.run(command, shell=True, check=True, env={**os.environ, **places})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=10)
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="pipeline-") as folder:
        soak(Path(folder), kills=asked.kills, seed=asked.seed, finish=submitted)
    print(f"{asked.kills} kills, seed {asked.seed}: no row is missing, none is there twice")


if __name__ == "__main__":
    main()
