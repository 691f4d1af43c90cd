"""CPU time and resident memory of the process under test, from /proc, and what a measurement reports."""

from __future__ import annotations

import array
import os
import time
from contextlib import suppress
from pathlib import Path

from coordbench.types import MisbehavedError, Row, clock

PAGE = os.sysconf("SC_PAGE_SIZE")


class Target:
    """CPU time and resident memory of processes and their descendants; blank without a pid."""

    def __init__(self, pids: list[int]) -> None:
        self._roots = pids

    def cpu_seconds(self) -> float | None:
        """User and system time of all threads that live, to the nanosecond (`stat` has it in ticks of 10 ms)."""
        if not self._roots:
            return None
        return sum(map(_cpu_ns, self._stats())) / 1e9

    def rss_mib(self) -> float | None:
        if not self._roots:
            return None
        return sum(int(stat[21]) for stat in self._stats().values()) * PAGE / 2**20

    def _stats(self) -> dict[int, list[str]]:
        """The fields of /proc/pid/stat from the state on, of the roots and all below them, by pid."""
        stats, parents = {}, {}
        for name in filter(str.isdigit, (entry.name for entry in Path("/proc").iterdir())):
            try:
                stat = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            stats[int(name)], parents[int(name)] = stat, int(stat[1])
        for pid in self._roots:
            if pid not in stats:
                raise MisbehavedError(f"process {pid} is gone")

        def below(pid: int) -> bool:
            while pid > 1:
                if pid in self._roots:
                    return True
                pid = parents.get(pid, 0)
            return False

        return {pid: stat for pid, stat in stats.items() if below(pid)}


def _cpu_ns(pid: int) -> int:
    spent = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            spent += int((task / "schedstat").read_text().split()[0])
    return spent


class Meter:
    """Wall time and the CPU time of target and generator between two moments."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._cpu = target.cpu_seconds()  # reading it takes time: outside of the wall time
        self._own, self._wall = time.process_time(), clock()

    def stop(self) -> None:
        self.seconds = clock() - self._wall
        self.own = time.process_time() - self._own
        cpu = self._target.cpu_seconds()
        self.cpu = None if cpu is None or self._cpu is None else cpu - self._cpu

    def per(self, count: int, scale: float, what: str = "") -> Row:
        """CPU per one of `count` things, in microseconds (scale 1e6) or milliseconds (1e3)."""
        unit = {1e6: "us", 1e3: "ms"}[scale]
        return {
            f"broker_cpu_{unit}{what}": None if self.cpu is None else self.cpu / count * scale,
            f"generator_cpu_{unit}{what}": self.own / count * scale,
        }


def spread(latencies: array.array[float]) -> Row:
    ordered = sorted(latencies)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999), "max_ms": ordered[-1] * 1e3}


def load_row(meter: Meter, latencies: array.array[float]) -> Row:
    """What every request-per-second scenario reports."""
    count = len(latencies)
    if not count:
        raise MisbehavedError("not one request was answered")
    return {
        "requests": count,
        "req_per_s": count / meter.seconds,
        **meter.per(count, 1e6),
        "broker_cores": None if meter.cpu is None else meter.cpu / meter.seconds,
        "generator_cores": meter.own / meter.seconds,
        **spread(latencies),
    }
