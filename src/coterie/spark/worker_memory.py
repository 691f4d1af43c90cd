"""The memory of a worker process of Spark: what is known to stay is not handled again with each task.

After each task Spark's worker calls `gc.collect()`, which visits all objects of the process. Those of the modules, with
pandas and pyarrow, took 50 CPU ms: more than all else of a task that reads little.

Fetches and columns are blocks of some megabytes. By default the C library gives each back to the system and asks for it
again, and the system clears its pages: a fifth of the CPU of the reader.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from itertools import count

from pyspark import TaskContext

__all__ = ["settle"]

FIRST_TASKS = 2
"""The first task imports what all later ones need, some of it only when it has begun to read."""
KEPT_BYTES = 64 * 1024 * 1024
LARGEST_BYTES = 32 * 1024 * 1024
"""How much freed memory stays with the process, and of which size a block is that always goes back."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_tasks = count()


def settle() -> None:
    """Called when a task begins: let `gc` pass over what is there now, and keep freed memory.

    Only the first tasks of a process do so, and only in a process that runs tasks. The objects are still freed when
    nothing refers to them; cycles among them, if they became garbage, would stay.
    """
    if TaskContext.get() is not None and next(_tasks) < FIRST_TASKS:
        gc.freeze()
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Set it in glibc. Other C libraries do not have it."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, LARGEST_BYTES)
