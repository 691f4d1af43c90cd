"""Thousands of simulated worlds as a job of Spark: `coterie plan --spark`.

Each world is a task of its own, which computes from a question and a seed alone. So a task whose executor is lost runs
again elsewhere and gives the same row. The rows are written to Parquet as tasks end, and read from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from coterie.forecast.costs import WorldCost
from coterie.forecast.simulated_group import simulate_group
from coterie.forecast.variants import World
from coterie.spark.pipeline.submit import DEFAULT_MASTER, session, until_workers_start
from coterie.spark.task_jobs import with_retries
from coterie.structs import field_names

PROGRESS_S = 2.0
TASKS_PER_CORE = 8
"""A task has several worlds if there are many, so that the start of a task does not count."""

_KINDS: dict[str, DataType] = {
    "seed": LongType(),
    "rebalances": LongType(),
    "evictions": LongType(),
    "is_stable": BooleanType(),
    "lag_s": ArrayType(DoubleType()),
}
"""The types of columns; all others are numbers that may be missing."""
SCHEMA = StructType(
    [
        StructField("world", LongType(), nullable=False),
        StructField("variant", StringType(), nullable=False),
        *(StructField(name, _KINDS.get(name, DoubleType())) for name in field_names(WorldCost)),
    ]
)


def sweep(worlds: Sequence[World], out: str, master: str | None, say: Callable[[str], None]) -> list[WorldCost]:
    """Run worlds as tasks, write their costs to Parquet, and return them in the order of the worlds."""
    say("starting Spark")
    spark = session("coterie plan", with_retries(master or DEFAULT_MASTER))
    try:
        until_workers_start(lambda: _write(spark, worlds, out, say), say)
        rows = spark.read.parquet(out).orderBy("world").collect()
    finally:
        spark.stop()
    say(f"{len(rows)} worlds in {out}")
    names = field_names(WorldCost)
    return [WorldCost(**{name: row[name] for name in names}) for row in rows]


def _write(spark: SparkSession, worlds: Sequence[World], out: str, say: Callable[[str], None]) -> None:
    context = spark.sparkContext
    slices = min(len(worlds), max(TASKS_PER_CORE * context.defaultParallelism, 1))
    numbered = [(number, question, seed) for number, (question, seed) in enumerate(worlds)]
    rows = context.parallelize(numbered, slices).map(_row)
    frame = spark.createDataFrame(rows, SCHEMA)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(frame.write.mode("overwrite").parquet, out)
        while not job.done():
            try:
                job.result(PROGRESS_S)
            except NotYetError:
                say(f"{_done(spark)} of {slices} tasks, {len(worlds)} worlds")
            except KeyboardInterrupt:
                context.cancelAllJobs()
                raise
        job.result()


def _done(spark: SparkSession) -> int:
    """Return how many tasks have ended."""
    tracker = spark.sparkContext.statusTracker()
    stages = (tracker.getStageInfo(number) for number in tracker.getActiveStageIds())
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


def _row(about: tuple[int, Any, int]) -> tuple[Any, ...]:
    """Run one world: this is all that a task does."""
    number, question, seed = about
    cost = simulate_group(question, seed)
    return (number, question.name, *(_plain(name, getattr(cost, name)) for name in field_names(WorldCost)))


def _plain(name: str, value: Any) -> Any:
    return float(value) if value is not None and name not in _KINDS else value
