"""What a worker process of Spark keeps for good, left out of its search for garbage.

After each task Spark's worker calls `gc.collect()`, which visits all objects of the process. Those of the modules alone,
with pandas and pyarrow, took 50 CPU ms: more than all else of a task that reads little.
"""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext

__all__ = ["spare_modules"]


@cache
def spare_modules() -> None:
    """Let `gc` pass over the objects that are there now, once in a process and only in one that runs tasks.

    They are still freed when nothing refers to them. Only cycles among them, if they became garbage, would stay.
    """
    if TaskContext.get() is not None:
        gc.freeze()
