"""What compaction makes of many commits of few offsets: how large the log of the groups is, and how long a start takes.

    make bench-compaction           # or: .venv/bin/python bench/compaction.py [--json FILE] [--commits 10000]

A client commits 100 partitions at a time for four groups, again and again, to a broker that compacts and to one that
does not; a second client asks for a coordinator every few milliseconds, to see whether it waits for the cleaner. Then
the broker is killed and started again.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from measured import Process, coterie_serve, write_results

from coterie.protocol.apis import create_topics, find_coordinator, offset_commit
from coterie.protocol.frames import request_frame
from coterie.protocol.messages import CommitPartition, OffsetCommit

PARTITIONS = 100
GROUPS = 4
AHEAD = 20
"""Commits on the way at a time."""
TOPIC = create_topics.NewTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)


class Asking:
    def __init__(self, where: tuple[str, int]) -> None:
        self._socket = socket.create_connection(where, timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, api: Any, request: Any, version: int) -> None:
        body = api.write_request(request, version)
        flexible = version >= api.API.flexible
        self._socket.sendall(request_frame(api.API.key, version, 1, "bench", body, flexible=flexible))

    def answer(self) -> None:
        size = int.from_bytes(self._socket.recv(4, socket.MSG_WAITALL), "big")
        if len(self._socket.recv(size, socket.MSG_WAITALL)) < size:
            raise SystemExit("the broker closed the connection instead of answering")

    def ask(self, api: Any, request: Any, version: int) -> None:
        self.send(api, request, version)
        self.answer()


def find(asking: Asking) -> None:
    asking.ask(find_coordinator, find_coordinator.Request(keys=["g"]), 1)


def commit_all(asking: Asking, commits: int) -> None:
    for number in range(commits + AHEAD):
        if number < commits:
            offsets = [CommitPartition("t", partition, number) for partition in range(PARTITIONS)]
            asking.send(offset_commit, OffsetCommit(None, f"g{number % GROUPS}", "", None, -1, offsets), 8)
        if number >= AHEAD:
            asking.answer()


def size_of(data: Path) -> int:
    return sum(file.stat().st_size for file in data.glob("__consumer_offsets-*/*"))


def measure(data: Path, commits: int, *, compacts: bool) -> dict[str, float]:
    command = coterie_serve("--data", str(data), f"--set=log.cleaner.enable={str(compacts).lower()}")
    waits: list[float] = []
    is_done = threading.Event()
    with Process(command) as broker:
        where = broker.ready()

        def probe() -> None:
            asking = Asking(where)
            while not is_done.is_set():
                began = time.perf_counter()
                find(asking)
                waits.append(time.perf_counter() - began)
                time.sleep(0.005)

        asking = Asking(where)
        find(asking)
        asking.ask(create_topics, create_topics.Request(topics=[TOPIC]), 2)
        prober = threading.Thread(target=probe)
        prober.start()
        largest = [0]

        def watch() -> None:
            while not is_done.is_set():
                largest[0] = max(largest[0], size_of(data))
                time.sleep(0.5)

        watcher = threading.Thread(target=watch)
        watcher.start()
        commit_all(asking, commits)
        cpu = broker.cpu_s()
        time.sleep(20 if compacts else 1)  # longer than the cleaner rests
        cpu_later = broker.cpu_s() - cpu
        is_done.set()
        prober.join()
        watcher.join()
        size = size_of(data)
        os.kill(broker.pid, signal.SIGKILL)
    began = time.perf_counter()
    with Process(command) as broker:
        find(Asking(broker.ready()))
        start, start_cpu = time.perf_counter() - began, broker.cpu_s()
    waits.sort()
    return {
        "largest_mb": round(largest[0] / 1e6, 2),
        "at_the_end_mb": round(size / 1e6, 2),
        "start_s": round(start, 2),
        "start_cpu_s": round(start_cpu, 2),
        "cpu_per_offset_us": round(1e6 * cpu / commits / PARTITIONS, 2),
        "cpu_s_after_the_last_commit": round(cpu_later, 2),
        "wait_p50_ms": round(1e3 * waits[len(waits) // 2], 2),
        "wait_p99_ms": round(1e3 * waits[len(waits) * 99 // 100], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--commits", type=int, default=10_000)
    options = parser.parse_args()
    figures: dict[str, Any] = {"offsets": options.commits * PARTITIONS, "keys": GROUPS * PARTITIONS}
    for compacts in (True, False):
        with tempfile.TemporaryDirectory() as directory:
            case = "compacted" if compacts else "whole"
            figures[case] = measure(Path(directory, "data"), options.commits, compacts=compacts)
    write_results(options.json, figures)


if __name__ == "__main__":
    main()
