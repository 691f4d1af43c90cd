"""Run a function for each of some items, as tasks of one job of Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from typing import TYPE_CHECKING, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from coterie.errors import CoterieError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TaskJobError", "run_tasks", "with_retries"]

Item = TypeVar("Item")
Result = TypeVar("Result")

TRIES = 4
"""How often a task is tried. On a cluster this is the default; a local master tries a task once unless it is told."""
LOOK_S = 0.2


class TaskJobError(CoterieError):
    """A task has failed as often as Spark tries it, or the job was cancelled."""


def with_retries(master: str) -> str:
    """Return a local master that tries a task again, since local[2] does not."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    return master if match is None else f"local[{match[1] or 1},{TRIES}]"


def run_tasks(
    spark: SparkSession, function: Callable[[Item], Result], items: Sequence[Item], stopped: Callable[[], bool]
) -> list[Result]:
    """Return the results in the order of the items. The job is cancelled when `stopped` says so.

    Raises:
        TaskJobError: A task has failed, or the job was cancelled.
    """
    context = spark.sparkContext
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(lambda: context.parallelize(items, len(items)).map(function).collect())
        is_cancelled = False
        while True:
            try:
                return job.result(LOOK_S)
            except NotYetError:
                if stopped() and not is_cancelled:
                    is_cancelled = True
                    context.cancelAllJobs()
            except (PySparkException, Py4JError) as error:
                raise TaskJobError("the job was cancelled" if is_cancelled else reason_of(str(error))) from error


def reason_of(text: str) -> str:
    """Return the error that a task has raised, from what Spark says; or its first line."""
    raised = [line for line in text.splitlines() if re.match(r"[\w.]+(Error|Exception): ", line)]
    return (raised[-1:] or text.splitlines() or ["Spark said nothing"])[0]
