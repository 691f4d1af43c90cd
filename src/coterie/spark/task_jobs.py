"""Jobs of Spark that call a function for each of some items: a task for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from typing import Self, TypeVar

from coterie.errors import CoterieError
from coterie.spark.pipeline.submit import DEFAULT_MASTER, session

__all__ = ["TaskJobError", "TaskJobs", "with_retries"]

Item = TypeVar("Item")
Result = TypeVar("Result")

TRIES = 8
"""How often a task is tried. A local master tries a task once unless it is told; a lost executor may cost a try."""
LOOK_S = 0.2
CONF = {
    "spark.speculation": "false",
    "spark.task.maxFailures": str(TRIES),
    "spark.ui.showConsoleProgress": "false",
}
"""A task that writes is fenced by another one that does the same: right, but no faster."""


class TaskJobError(CoterieError):
    """A task has failed as often as Spark tries it, or the job was cancelled."""


def with_retries(master: str) -> str:
    """Return a local master that tries a task again, since local[2] does not."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    return master if match is None else f"local[{match[1] or 1},{TRIES}]"


class TaskJobs:
    """A session of Spark that runs jobs, from `with` to its end."""

    def __init__(self, name: str, master: str | None) -> None:
        """Start Spark, by default on all cores of this machine."""
        self._spark = session(name, with_retries(master or DEFAULT_MASTER), CONF)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.stop()

    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item], stopped: Callable[[], bool] = lambda: False
    ) -> list[Result]:
        """Return the results in the order of the items. The job is cancelled when `stopped` says so.

        Raises:
            TaskJobError: A task has failed as often as Spark tries it, or the job was cancelled.
        """
        context = self._spark.sparkContext
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
                except Exception as error:  # whatever Spark or a task of its raises
                    raise TaskJobError("the job was cancelled" if is_cancelled else reason_of(str(error))) from error


def reason_of(text: str) -> str:
    """Return the error that a task has raised, from what Spark says; or its first line."""
    raised = [line for line in text.splitlines() if re.match(r"[\w.]+(Error|Exception): ", line)]
    return (raised[-1:] or text.splitlines() or ["Spark said nothing"])[0]
