"""What the processes of bench/clients.py share: their arguments, and what they say of themselves."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Task", "main"]


@dataclass(frozen=True)
class Task:
    bootstrap: str
    topic: str
    records: int
    size: int
    settings: dict[str, Any]

    @property
    def value(self) -> bytes:
        return bytes(97 + at % 26 for at in range(self.size))


def main(tasks: dict[str, Callable[[Task], int]]) -> None:
    """Run the task that the first argument names: it returns how many records it has seen through."""
    name, bootstrap, topic, records, size, settings = sys.argv[1:]
    task = Task(bootstrap, topic, int(records), int(size), json.loads(settings))
    began, cpu = time.perf_counter(), _cpu_s()
    done = tasks[name](task)
    wall_s, cpu_s = time.perf_counter() - began, _cpu_s() - cpu
    if done != task.records:
        raise SystemExit(f"{done} records of {task.records}")
    print(json.dumps({"records": done, "cpu_s": round(cpu_s, 3), "wall_s": round(wall_s, 3)}))


def _cpu_s() -> float:
    """User and system, of all threads; imports happened before."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
