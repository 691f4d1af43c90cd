"""A worker process of Spark does not handle memory that stays, task after task."""

from __future__ import annotations

import gc
import subprocess
import sys
from itertools import count

import pytest
from pyspark import TaskContext

from coterie.spark import worker_memory

FREED_AND_TAKEN_AGAIN = """
from resource import RUSAGE_SELF, getrusage
from coterie.spark.worker_memory import keep_freed_memory

def faults():
    before = getrusage(RUSAGE_SELF).ru_minflt
    for _ in range(20):
        blocks = [bytes([1]) * 4_000_000 for _ in range(5)]
        del blocks
    return getrusage(RUSAGE_SELF).ru_minflt - before

faults()
before = faults()
keep_freed_memory()
faults()
print(before, faults())
"""


@pytest.mark.parametrize(("is_task", "times"), [(True, 2), (False, 0)])
def test_a_process_that_runs_tasks_settles_in_the_first_two_and_no_other_does(
    monkeypatch: pytest.MonkeyPatch, is_task: bool, times: int
) -> None:
    done = list[str]()
    monkeypatch.setattr(gc, "freeze", lambda: done.append("spared"))
    monkeypatch.setattr(worker_memory, "keep_freed_memory", lambda: done.append("kept"))
    monkeypatch.setattr(TaskContext, "get", lambda: object() if is_task else None)
    monkeypatch.setattr(worker_memory, "_tasks", count())
    for _ in range(5):
        worker_memory.settle()
    assert done == ["spared", "kept"] * times


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_blocks_that_are_freed_and_taken_again_are_not_cleared_again() -> None:
    ran = subprocess.run([sys.executable, "-c", FREED_AND_TAKEN_AGAIN], capture_output=True, text=True, check=True)
    before, after = map(int, ran.stdout.split())
    assert after < before / 10 and before > 10_000, (before, after)
