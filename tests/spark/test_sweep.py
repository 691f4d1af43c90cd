"""Worlds of `coterie plan` as tasks of Spark: the same figures as without Spark, also if a Python worker is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from clients.harness import wait_until
from coterie.forecast import Crashes, Question, parse_group, simulate_group
from coterie.spark.sweep import SCHEMA, _row
from coterie.spark.task_jobs import with_retries
from spark.conftest import in_the_soak

GROUP = {
    "members": 3,
    "topics": {"t": {"partitions": 6, "records_per_s": 60}},
    "settings": {"session.timeout.ms": 8_000},
}
SEEDS = 24


@pytest.mark.parametrize(
    ("master", "wanted"),
    [
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local", "local[1,4]"),
        ("local[2,8]", "local[2,8]"),
        ("spark://head:7077", "spark://head:7077"),
    ],
)
def test_a_local_master_tries_a_task_again(master: str, wanted: str) -> None:
    assert with_retries(master) == wanted


def test_a_row_has_the_columns_of_the_table() -> None:
    question = Question(parse_group(GROUP, "test"), Crashes())
    row = dict(zip(SCHEMA.fieldNames(), _row((7, question, 1)), strict=True))
    cost = simulate_group(question, 1)
    assert row["world"] == 7 and row["variant"] == "as it is" and row["unread_s"] == cost.unread_s
    kinds = {"bigint": int, "double": float, "boolean": bool, "string": str, "array<double>": list}
    for field in SCHEMA.fields:
        assert row[field.name] is None or type(row[field.name]) is kinds[field.dataType.simpleString()], field


_PROGRAM = f"""
import json, sys
from coterie.forecast import Crashes, Question, parse_group
from coterie.spark.sweep import sweep
from coterie.structs import asdict
question = Question(parse_group({GROUP!r}, "test"), Crashes())
worlds = [(question, seed) for seed in range({SEEDS})]
costs = sweep(worlds, sys.argv[1], "local[2]", lambda text: print(text, file=sys.stderr, flush=True))
print(json.dumps([[one.seed, one.unread_s, one.rebalances, one.duplicates] for one in costs]))
"""


@in_the_soak
@pytest.mark.real_time
def test_a_killed_worker_costs_time_and_nothing_else(tmp_path: Path) -> None:
    """The workers are killed as soon as there are tasks; Spark runs those tasks again."""
    out = tmp_path / "worlds.parquet"
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    killed = _kill_workers(program.pid, 240)
    told, errors = program.communicate(timeout=300)
    assert program.returncode == 0, errors
    assert killed, "no worker was killed: the test has shown nothing"
    question = Question(parse_group(GROUP, "test"), Crashes())
    for seed, unread_s, rebalances, duplicates in json.loads(told):
        cost = simulate_group(question, seed)
        assert (unread_s, rebalances, duplicates) == (cost.unread_s, cost.rebalances, cost.duplicates)
    assert pq.read_table(out).num_rows == SEEDS


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
