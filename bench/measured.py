"""What the benchmarks of a running broker share: the process, its CPU and memory, and where results are written."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Broker", "Process", "commit", "coterie_serve", "quartiles", "rss_mib", "write_results"]


def coterie_serve(*options: str) -> list[str]:
    """The command as it is installed beside this Python."""
    return [str(Path(sys.executable).with_name("coterie")), "serve", "--port", "0", *options]


class Process:
    """A server that says `ready HOST:PORT` on stdout when it listens."""

    def __init__(self, command: Sequence[str]) -> None:
        # As where it is installed: Python keeps what it has compiled, whatever the environment of a build says.
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
        )
        self.pid = self._process.pid

    def ready(self) -> tuple[str, int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            raise SystemExit(f"the server said {line!r} instead of ready HOST:PORT")
        host, _, port = line.removeprefix("ready ").strip().rpartition(":")
        return host, int(port)

    def cpu_s(self) -> float:
        """User and system, of all threads, to the nanosecond (`stat` has it in ticks of 10 ms)."""
        return (
            sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{self.pid}/task").glob("*/schedstat")) / 1e9
        )

    def rss_mib(self) -> float:
        return rss_mib(self.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def rss_mib(pid: int) -> float:
    (line,) = [row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


class Broker(Process):
    """A broker that runs already."""

    def __init__(self, pid: int, bootstrap: str) -> None:
        self.pid = pid
        self.bootstrap = bootstrap
        host, _, port = bootstrap.rpartition(":")
        self.where = (host, int(port))


def quartiles(values: Iterable[float], digits: int = 2) -> list[float]:
    ordered = sorted(values)
    return [round(ordered[len(ordered) * part // 4], digits) for part in (1, 2, 3)]


def commit() -> str:
    asked = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def write_results(path: str | None, figures: dict[str, Any]) -> None:
    """Print them, and keep them with the commit and the machine they are of."""
    models = [row for row in Path("/proc/cpuinfo").read_text().splitlines() if row.startswith("model name")]
    about = {
        "commit": commit(),
        "python": platform.python_version(),
        "cpu": models[0].partition(":")[2].strip() if models else platform.processor(),
        "cores": os.cpu_count(),
    }
    text = json.dumps({**figures, **about}, indent=2)
    print(text)
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text + "\n")
