"""What the processes of bench/clients.py share: their arguments, and what they say of themselves."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Task", "cpu_s", "main"]


@dataclass(frozen=True)
class Task:
    bootstrap: str
    topic: str
    records: int
    size: int
    settings: dict[str, Any]
    told: dict[str, float] = field(default_factory=dict)

    @property
    def value(self) -> bytes:
        return bytes(97 + at % 26 for at in range(self.size))

    @property
    def group(self) -> str:
        """Of a consumer: everyone has its own."""
        return f"{self.topic}-{os.getpid()}"

    def tell(self, **figures: float) -> None:
        """Besides what is measured of the whole."""
        self.told.update(figures)

    def seen(self, done: int, size: int) -> int:
        """So many records with so many bytes in all came: every one, and each whole."""
        return done if size == done * self.size else -1


def main(tasks: dict[str, Callable[[Task], int]]) -> None:
    """Run the task that the first argument names: it returns how many records it has seen through."""
    name, bootstrap, topic, records, size, settings = sys.argv[1:]
    task = Task(bootstrap, topic, int(records), int(size), json.loads(settings))
    began, cpu = time.perf_counter(), cpu_s()
    done = tasks[name](task)
    wall_s, used_s = time.perf_counter() - began, cpu_s() - cpu
    if done != task.records:
        raise SystemExit(f"{done} records of {task.records}")
    print(json.dumps({"records": done, "cpu_s": round(used_s, 3), "wall_s": round(wall_s, 3), **task.told}))


def cpu_s() -> float:
    """User and system, of all threads; imports happened before."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
