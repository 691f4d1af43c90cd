"""Worlds of `coterie plan` as tasks of Spark: the same figures as without Spark, also if a Python worker is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from clients.harness import wait_until
from coterie.forecast import Crashes, Question, parse_group, simulate_group
from coterie.spark.sweep import PART_ROWS, SCHEMA, Table, sizes
from coterie.spark.task_jobs import with_retries
from coterie.structs import asdict
from spark.conftest import in_the_soak

GROUP = {
    "members": 3,
    "topics": {"t": {"partitions": 6, "records_per_s": 60}},
    "settings": {"session.timeout.ms": 8_000},
}
SEEDS = 60


@pytest.mark.parametrize(
    ("master", "wanted"),
    [
        ("local[2]", "local[2,8]"),
        ("local[*]", "local[*,8]"),
        ("local", "local[1,8]"),
        ("local[2,3]", "local[2,3]"),
        ("spark://head:7077", "spark://head:7077"),
    ],
)
def test_a_local_master_tries_a_task_again(master: str, wanted: str) -> None:
    assert with_retries(master) == wanted


def test_a_table_has_the_rows_in_files_and_replaces_an_earlier_one(tmp_path: Path) -> None:
    cost = simulate_group(Question(parse_group(GROUP, "test"), Crashes()), 1)
    for rows in (PART_ROWS + 1, 1):
        table = Table(tmp_path)
        for number in range(rows):
            table.add(number, "as it is", cost)
        assert pq.read_table(tmp_path).num_rows == rows // PART_ROWS * PART_ROWS, "full files are written at once"
        table.write()
        read = pq.read_table(tmp_path)
        assert read.schema.equals(SCHEMA) and read["world"].to_pylist() == list(range(rows))
    assert read.to_pylist() == [{"world": 0, "variant": "as it is"} | asdict(cost)]


@pytest.mark.parametrize(
    ("worlds", "cores", "wanted"), [(1, 2, (1, 4)), (60, 2, (3, 12)), (2_000, 2, (4, 16)), (2_000, 100, (2, 400))]
)
def test_tasks_are_small_if_there_are_few_worlds(worlds: int, cores: int, wanted: tuple[int, int]) -> None:
    assert sizes(worlds, cores) == wanted


_PROGRAM = f"""
import sys
from pathlib import Path
from coterie.forecast import Crashes, Question, parse_group
from coterie.spark.sweep import Sweep
question = Question(parse_group({GROUP!r}, "test"), Crashes())
worlds = [(question, seed) for seed in range({SEEDS})]
sweep = Sweep(Path(sys.argv[1]), "local[2]", lambda text: print(text, file=sys.stderr, flush=True))
try:
    for cost in sweep(worlds):
        print(cost.seed, cost.unread_s, cost.rebalances, cost.duplicates, flush=True)
finally:
    sweep.close()
"""


@in_the_soak
@pytest.mark.real_time
def test_a_killed_worker_costs_time_and_nothing_else(tmp_path: Path) -> None:
    """The workers are killed as soon as there are tasks; Spark runs those tasks again."""
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    killed = _kill_workers(program.pid, 240)
    told, errors = program.communicate(timeout=300)
    assert program.returncode == 0, errors
    assert killed, "no worker was killed: the test has shown nothing"
    question = Question(parse_group(GROUP, "test"), Crashes())
    wanted = [simulate_group(question, seed) for seed in range(SEEDS)]
    assert told.splitlines() == [f"{one.seed} {one.unread_s} {one.rebalances} {one.duplicates}" for one in wanted]
    assert pq.read_table(tmp_path / "worlds-1.parquet").num_rows == SEEDS


@in_the_soak
@pytest.mark.real_time
def test_ctrl_c_keeps_the_rows_that_have_arrived(tmp_path: Path) -> None:
    """It is pressed at the fifth row; what is written are the rows up to it, or a few more."""
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    told = [program.stdout.readline() for _ in range(5)]
    program.send_signal(signal.SIGINT)
    rest, errors = program.communicate(timeout=120)
    assert program.returncode not in (0, None) and "KeyboardInterrupt" in errors, errors
    kept = pq.read_table(tmp_path / "worlds-1.parquet")
    assert len(told) + len(rest.splitlines()) <= kept.num_rows < SEEDS
    assert kept["world"].to_pylist() == list(range(kept.num_rows))


def _kill_workers(root: int, within_s: float) -> int:
    """Kill the Python workers among the descendants of a process, once; return how many."""

    def workers() -> list[int]:
        """The first is the daemon, the others are its workers."""
        return [pid for pid, command in _descendants(root) if "pyspark" in command and "daemon" in command][1:]

    wait_until(lambda: bool(workers()), "Spark has Python workers", lambda: str(_descendants(root)), within_s)
    found = workers()
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


def _descendants(root: int) -> list[tuple[int, str]]:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    found, wanted = [], {root}
    for _ in range(10):  # a child may be listed before its parent
        for pid, parent, command in (row for row in rows if len(row) == 3):
            if int(parent) in wanted and int(pid) not in wanted:
                wanted.add(int(pid))
                found.append((int(pid), command))
    return sorted(found)
