"""A worker process of Spark does not search its modules for garbage after each task."""

from __future__ import annotations

import gc

import pytest
from pyspark import TaskContext

from coterie.spark.worker_garbage import spare_modules


@pytest.mark.parametrize(("is_task", "times"), [(True, 1), (False, 0)])
def test_a_process_that_runs_tasks_does_it_once_and_no_other_does(
    monkeypatch: pytest.MonkeyPatch, is_task: bool, times: int
) -> None:
    frozen = list[int]()
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    monkeypatch.setattr(TaskContext, "get", lambda: object() if is_task else None)
    spare_modules.cache_clear()
    spare_modules()
    spare_modules()
    spare_modules.cache_clear()
    assert len(frozen) == times
