"""Thousands of simulated worlds as a job of Spark: `coterie plan --spark`.

A task runs a few worlds, and each computes from a question and a seed alone. So a task whose executor is lost runs
again elsewhere and gives the same rows. The worlds are many small jobs, a few of them under way at a time: their rows
reach the driver as they end. The driver writes them to Parquet, so executors need no disk that they share with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from coterie.errors import CoterieError
from coterie.forecast.costs import WorldCost
from coterie.forecast.variants import Outcome, World, outcome_of
from coterie.spark.pipeline.submit import DEFAULT_MASTER, MOST_STARTS, WORKER_LATE, session
from coterie.spark.task_jobs import TRIES, with_retries
from coterie.structs import field_names

TASKS_PER_CORE, MOST_WORLDS = 2, 4
"""The size of a job: tasks for each core, and worlds in a task. A small job loses little at Ctrl-C."""
JOBS_UNDER_WAY = 2
"""While the last tasks of a job run, those of the next one keep the other cores busy."""
PART_ROWS = 256
"""A file of the table has so many rows, or fewer at the end and at Ctrl-C."""

_KINDS: dict[str, pa.DataType] = {
    "seed": pa.int64(),
    "rebalances": pa.int64(),
    "evictions": pa.int64(),
    "is_stable": pa.bool_(),
    "lag_s": pa.list_(pa.float64()),
}
"""The types of columns; all others are numbers that may be missing."""
COSTS = tuple(field_names(WorldCost))
SCHEMA = pa.schema(
    [
        pa.field("world", pa.int64(), nullable=False),
        pa.field("variant", pa.string(), nullable=False),
        *(pa.field(name, _KINDS.get(name, pa.float64())) for name in COSTS),
    ]
)


class Sweep:
    """Runs worlds on Spark. Each call writes a table: `worlds-1.parquet`, `worlds-2.parquet`, ..."""

    def __init__(self, out: Path, master: str | None, say: Callable[[str], None]) -> None:
        self._out, self._say = out, say
        self._tables = 0
        master = with_retries(master or DEFAULT_MASTER)
        say(f"starting Spark on {master}")
        try:
            self._spark: SparkSession = session("coterie plan", master, {"spark.task.maxFailures": str(TRIES)})
        except (PySparkException, Py4JError) as error:
            raise CoterieError(f"Spark does not start on {master}: {_why(error)}") from None

    @property
    def cores(self) -> int:
        return max(self._spark.sparkContext.defaultParallelism, 1)

    def close(self) -> None:
        self._spark.sparkContext.cancelAllJobs()
        self._spark.stop()

    def __call__(self, worlds: Sequence[World]) -> Iterator[WorldCost]:
        """Run worlds, and return their costs in the same order, as they end."""
        self._tables += 1
        table = Table(self._out / f"worlds-{self._tables}.parquet")
        pool = ThreadPoolExecutor(JOBS_UNDER_WAY)
        under_way: deque[Future[list[Outcome]]] = deque()
        asked = number = 0
        try:
            while asked < len(worlds) or under_way:
                while asked < len(worlds) and len(under_way) < JOBS_UNDER_WAY:
                    per_task, per_job = sizes(len(worlds), self.cores)  # executors of a cluster register one by one
                    under_way.append(pool.submit(self._run, worlds[asked : asked + per_job], per_task))
                    asked += per_job
                for outcome in under_way.popleft().result():
                    if isinstance(outcome, str):
                        raise CoterieError(outcome)
                    table.add(number, worlds[number][0].name, outcome)
                    number += 1
                    yield outcome
        except (PySparkException, Py4JError) as error:
            raise CoterieError(f"Spark has ended the job: {_why(error)}") from None
        finally:
            table.write()
            self._spark.sparkContext.cancelAllJobs()
            pool.shutdown(cancel_futures=True)

    def _run(self, worlds: Sequence[World], per_task: int) -> list[Outcome]:
        """Run a job, and again if Spark gave up waiting for a Python worker, which it does after ten seconds."""
        slices = -(-len(worlds) // per_task)
        for start in range(1, MOST_STARTS + 1):
            try:
                return self._spark.sparkContext.parallelize(worlds, slices).map(outcome_of).collect()
            except (PySparkException, Py4JError) as error:
                if WORKER_LATE not in str(error) or start == MOST_STARTS:
                    raise
                self._say(f"Spark waited 10 s for a Python worker; the job starts again ({start + 1} of {MOST_STARTS})")
        raise AssertionError("the last start returns or raises")


class Table:
    """A directory of Parquet files. An earlier table of that name is replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: list[dict[str, Any]] = []
        self._parts = 0
        folder.mkdir(parents=True, exist_ok=True)
        for old in (*folder.glob("part-*.parquet"), *folder.glob(".part-*.crc"), *folder.glob("*_SUCCESS*")):
            old.unlink()

    def add(self, number: int, variant: str, cost: WorldCost) -> None:
        self._rows.append({"world": number, "variant": variant} | {name: getattr(cost, name) for name in COSTS})
        if len(self._rows) == PART_ROWS:
            self.write()

    def write(self) -> None:
        """Write the rows that are not yet in a file."""
        if self._rows:
            part = self._folder / f"part-{self._parts:05}.parquet"
            pq.write_table(pa.Table.from_pylist(self._rows, SCHEMA), part)
            self._parts += 1
            self._rows.clear()


def sizes(worlds: int, cores: int) -> tuple[int, int]:
    """Return the worlds of a task, and of a job: few if there are few, so that all cores have work to the end."""
    per_task = min(max(worlds // (cores * TASKS_PER_CORE * MOST_WORLDS), 1), MOST_WORLDS)
    return per_task, per_task * TASKS_PER_CORE * cores


_ADVICE = (
    (
        "No module named 'coterie",
        "the Python of the executors has no Coterie: install the same version there, and set PYSPARK_PYTHON to it",
    ),
    (
        "PYTHON_VERSION_MISMATCH",
        "the executors run another version of Python: set PYSPARK_PYTHON to a Python of this version there",
    ),
    ("JAVA_GATEWAY_EXITED", "Java ended before Spark was up; what it said is above"),
)


def _why(error: BaseException) -> str:
    """Return what to do about an error of Spark, or the line of it that has the reason."""
    text = str(error)
    for sign, advice in _ADVICE:
        if sign in text:
            return advice
    lines = [line.strip(" :\t") for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line for line in lines if line.startswith("Caused by: ") or "Exception: " in line]
    return (causes or lines or [type(error).__name__])[-1]
