"""How long `coterie serve` takes from exec to its first answer, and the memory it has then.

    make bench-start                # or: .venv/bin/python bench/start.py [--json FILE] [--runs 10]

With an empty data directory; with one that was closed in order; and with one whose broker was killed. The latter two
have the 50 partitions of `__consumer_offsets`.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from measured import Process, coterie_serve, write_results

from coterie.protocol.apis import api_versions, find_coordinator
from coterie.protocol.frames import request_frame

AIM_S, AIM_MIB = 0.5, 100

VERSIONS = request_frame(18, 0, 1, "bench", api_versions.write_request(api_versions.Request(), 0), flexible=False)
FIND = request_frame(
    10, 1, 2, "bench", find_coordinator.write_request(find_coordinator.Request(keys=["g"]), 1), flexible=False
)


def ask(where: tuple[str, int], frame: bytes) -> None:
    with socket.create_connection(where, timeout=30) as connection:
        connection.sendall(frame)
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        answer = connection.recv(size, socket.MSG_WAITALL)
        if len(answer) < size:
            raise SystemExit("the broker closed the connection instead of answering")


def measure(data: Path, then: str) -> tuple[float, float, float]:
    """Seconds to the first answer, MiB and CPU seconds then. `then`: how this life ends."""
    began = time.perf_counter()
    with Process(coterie_serve("--data", str(data))) as broker:
        where = broker.ready()
        ask(where, VERSIONS)
        took = time.perf_counter() - began
        rss, cpu = broker.rss_mib(), broker.cpu_s()
        ask(where, FIND)
        if then == "kill":
            os.kill(broker.pid, signal.SIGKILL)
    return took, rss, cpu


def summary(runs: list[tuple[float, float, float]]) -> dict[str, Any]:
    seconds, rss, cpu = ([run[column] for run in runs] for column in range(3))
    return {
        "median_s": round(statistics.median(seconds), 3),
        "worst_s": round(max(seconds), 3),
        "median_rss_mib": round(statistics.median(rss), 1),
        "median_cpu_s": round(statistics.median(cpu), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    cases: dict[str, list[tuple[float, float, float]]] = {"empty": [], "closed": [], "killed": []}
    with tempfile.TemporaryDirectory() as directory:
        for run in range(options.runs + 1):
            data = Path(directory, str(run))
            rows = {"empty": measure(data, "close"), "closed": measure(data, "kill"), "killed": measure(data, "close")}
            for case, row in rows.items():
                cases[case] += [row] if run else []  # the first warms the caches of the system
    figures = {case: summary(rows) for case, rows in cases.items()}
    is_met = all(row["median_s"] <= AIM_S and row["median_rss_mib"] <= AIM_MIB for row in figures.values())
    write_results(options.json, {"aim": {"s": AIM_S, "rss_mib": AIM_MIB, "met": is_met}, **figures})


if __name__ == "__main__":
    main()
