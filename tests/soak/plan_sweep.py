"""Worlds of `coterie plan` on Spark: how many a second on one core and on two, and what kill -9 costs.

    make plan-sweep
    PYTHONPATH=tests python tests/soak/plan_sweep.py --worlds 120 --kills 4 --json bench/results/plan_sweep.json

The same worlds run on local[1] and local[2], on a standalone cluster of processes (a master and two workers) with one
executor core and with two, and on that cluster while executors and Python workers are killed. Checked: every run has
the rows that a simulation without Spark gives. The rate counts from the first row to the last, so neither the start of
Spark nor the first job counts. CPU time is that of all processes of the run.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

from coterie.forecast import Deploy, Question, parse_group, simulate_group
from coterie.forecast.variants import World, variants_of
from coterie.structs import asdict
from soak.processes import cpu_seconds
from soak.spark_cluster import Cluster
from soak.spark_transactions import kill_hard, processes_of

GROUP = {
    "members": 4,
    "ms_per_record": 4,
    "restart_s": 6,
    "topics": {"orders": {"partitions": 12, "records_per_s": 400}},
    "settings": {"session.timeout.ms": 10_000},
}
"""The group of docs/plan.md."""
LOOK_S = 0.2
WITHIN_S = 900.0
PYTHON_WORKER = "pyspark.daemon"


def asked(worlds: int) -> list[World]:
    questions = variants_of(Question(parse_group(GROUP, "sweep"), Deploy(), "as it is"), ["usual"])
    return [(questions[number % len(questions)], number // len(questions)) for number in range(worlds)]


def without_spark(worlds: int) -> list[dict[str, Any]]:
    """Return the rows as this process computes them."""
    rows = []
    for number, (question, seed) in enumerate(asked(worlds)):
        rows.append({"world": number, "variant": question.name} | asdict(simulate_group(question, seed)))
    return rows


def child(master: str, out: Path, worlds: int) -> None:
    """Run the worlds, and print when each row was there."""
    from coterie.spark.sweep import Sweep

    sweep = Sweep(out, master, lambda text: print(text, file=sys.stderr, flush=True))
    try:
        for _ in sweep(asked(worlds)):
            print(time.time(), flush=True)
    finally:
        sweep.close()


class Run:
    """A run of all worlds in processes of its own."""

    def __init__(self, master: str, out: Path, worlds: int, cores: int | None = None) -> None:
        conf = f"--conf spark.cores.max={cores} --conf spark.executor.cores=1 " if cores is not None else ""
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_SUBMIT_ARGS": f"{conf}--conf spark.executor.memory=512m --conf spark.driver.memory=512m "
            "--conf spark.ui.enabled=false pyspark-shell",
        }
        self.out = out
        self._log = out.with_suffix(".log")
        with self._log.open("wb") as log, self._rows_file.open("wb") as rows:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--child", master, str(out), str(worlds)],
                stdout=rows,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    @property
    def _rows_file(self) -> Path:
        return self.out.with_suffix(".rows")

    @property
    def row_times(self) -> list[float]:
        return [float(line) for line in self._rows_file.read_text().split()]

    def finish(self, sessions: Sequence[int] = (), each: Callable[[int], object] = bool) -> dict[str, Any]:
        """Wait for the end. Return the rate, and the CPU time of the run and of the cluster's processes."""
        cpu: dict[int, float] = {}
        before = {pid: used for session in sessions for pid, used in _cpu_of(session).items()}
        ends_at = time.monotonic() + WITHIN_S
        try:
            while self.process.poll() is None:
                assert time.monotonic() < ends_at, self.said()
                for session in (self.process.pid, *sessions):
                    cpu |= _cpu_of(session)
                each(len(self.row_times))
                time.sleep(LOOK_S)
        finally:
            kill_hard(*processes_of(self.process.pid))
        assert self.process.returncode == 0, self.said()
        times = self.row_times
        later = [at for at in times if at > times[0] + LOOK_S]  # without the rows of the first job, which come at once
        return {
            "worlds_per_s": round(len(later) / (times[-1] - times[0]), 2),
            "cpu_s": round(sum(used - before.get(pid, 0.0) for pid, used in cpu.items()), 1),
        }

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pq.read_table(self.out / "worlds-1.parquet").to_pylist()
        return found

    def said(self) -> str:
        return self._log.read_text()[-3_000:]


def _cpu_of(session: int) -> dict[int, float]:
    found = {}
    for pid in processes_of(session):
        with suppress(OSError):  # it has ended meanwhile
            found[pid] = cpu_seconds(pid)
    return found


class Killer:
    """Kills an executor or a Python worker, in turn, when so many more rows have arrived."""

    def __init__(self, cluster: Cluster, worlds: int, kills: int, rng: Random) -> None:
        self._cluster, self._rng = cluster, rng
        self._at = [round(worlds * (number + 0.5) / (kills + 1)) for number in range(kills)]
        self.killed: list[str] = []

    def look(self, rows: int) -> None:
        if not self._at or rows < self._at[0]:
            return
        what = ("executor", "Python worker")[len(self.killed) % 2]
        found = self._cluster.executors() if what == "executor" else self._python_workers()
        if found:
            del self._at[0]
            kill_hard(self._rng.choice(found))
            self.killed.append(what)
            print(f"kill -9 after {rows} rows: {what}", flush=True)

    def _python_workers(self) -> list[int]:
        """Return the workers that daemons have forked, which run the worlds: their parents are Python too."""
        lines = {pid: line for session in self._cluster.workers for pid, line in processes_of(session).items()}
        daemons = {pid for pid, line in lines.items() if PYTHON_WORKER in line}
        return sorted(pid for pid in daemons if _parent(pid) in daemons)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def soak(worlds: int, kills: int, seed: int, *, scaling: bool) -> dict[str, Any]:
    results: dict[str, Any] = {"worlds": worlds, "seed": seed, "load before": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        rows: dict[str, list[dict[str, Any]]] = {"without Spark": without_spark(worlds)}
        for cores in (1, 2) if scaling else ():
            title = f"local[{cores}]"
            run = Run(title, folder / title, worlds)
            results[title] = run.finish()
            rows[title] = run.rows()
            print(title, results[title], flush=True)
        cluster = Cluster(folder)
        try:
            for cores in (1, 2) if scaling else ():
                title = "cluster, 1 executor" if cores == 1 else f"cluster, {cores} executors"
                run = Run(cluster.master, folder / f"cluster-{cores}", worlds, cores)
                results[title] = run.finish(cluster.sessions)
                rows[title] = run.rows()
                print(title, results[title], flush=True)
            title, killer = "cluster, kill -9", Killer(cluster, worlds, kills, Random(seed))
            run = Run(cluster.master, folder / "cluster-kills", worlds, 2)
            results[title] = run.finish(cluster.sessions, killer.look) | {"killed": killer.killed}
            rows[title] = run.rows()
            print(title, results[title], flush=True)
        finally:
            cluster.end()
        assert len(killer.killed) == kills, f"{killer.killed}: fewer were killed than asked for"
        different = [title for title, found in rows.items() if found != rows["without Spark"]]
        assert not different, f"other rows than without Spark: {different}"
    results["same rows in all runs"] = True
    pairs = (("local[1]", "local[2]"), ("cluster, 1 executor", "cluster, 2 executors"))
    for one, two in pairs if scaling else ():
        speedup = results[two]["worlds_per_s"] / results[one]["worlds_per_s"]
        results[two]["efficiency"] = round(speedup / 2, 2)
    return results


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=120)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kills-only", action="store_true", help="leave out the runs that compare cores")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = soak(options.worlds, options.kills, options.seed, scaling=not options.kills_only)
    print(json.dumps(results, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
