"""CPU and memory of `coterie watch` while many groups commit: 1 000 groups of 50 partitions, 2 000 commits a second.

    .venv/bin/python bench/watch.py --seconds 60 --json bench/results/watch.json

The commits are those of groups without members, by an admin client. The watch is killed in the middle and started
again: it continues at the offset where it ended.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from coterie.client.admin import Admin, NewTopic
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.diagnosis.ledger_file import LedgerFile

COTERIE = str(Path(sys.executable).with_name("coterie"))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1_024


class Committer(threading.Thread):
    """Commits offsets of all partitions of one group after the other, at a rate."""

    def __init__(self, bootstrap: str, groups: int, partitions: int, rate: int) -> None:
        super().__init__(daemon=True)
        self._where, self._groups, self._partitions = bootstrap, groups, partitions
        self._pause = partitions / rate
        self.commits = 0
        self.stop = threading.Event()

    def run(self) -> None:
        with Admin(bootstrap_servers=self._where) as admin:
            due, turn = time.monotonic(), 0
            while not self.stop.is_set():
                offsets = {TopicPartition("t", one): OffsetAndMetadata(turn) for one in range(self._partitions)}
                admin.alter_group_offsets(f"group-{turn % self._groups}", offsets)
                self.commits += self._partitions
                turn += 1
                due += self._pause
                time.sleep(max(due - time.monotonic(), 0))


def measure(bootstrap: str, ledger: Path, seconds: float, committer: Committer) -> dict[str, float]:
    """Run the watch for a time, and kill it."""
    begun, commits = time.monotonic(), committer.commits
    watch = subprocess.Popen([COTERIE, "watch", "--bootstrap", bootstrap, "--ledger", str(ledger)])
    time.sleep(seconds)
    used, peak, wall = cpu_seconds(watch.pid), peak_mib(watch.pid), time.monotonic() - begun
    watch.send_signal(signal.SIGKILL)
    watch.wait()
    return {
        "seconds": round(wall, 1),
        "commits_per_second": round((committer.commits - commits) / wall),
        "cpu_share_of_a_core": round(used / wall, 3),
        "peak_mib": round(peak, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        command = [COTERIE, "serve", "--memory", "--port", "0"]
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert broker.stdout is not None
            bootstrap = broker.stdout.readline().removeprefix("ready ").strip()
            with Admin(bootstrap_servers=bootstrap) as admin:
                admin.create_topics([NewTopic("t", options.partitions)])
            committer = Committer(bootstrap, options.groups, options.partitions, options.rate)
            committer.start()
            ledger = Path(directory, "ledger")
            runs = [measure(bootstrap, ledger, options.seconds / 2, committer) for _ in range(2)]
            committer.stop.set()
            committer.join()
            with LedgerFile(ledger) as file:
                groups = len({one[0] for one in file.commits()})
                positions = sum(file.positions().values())
        finally:
            broker.terminate()
            broker.wait()
    found = {"runs": runs, "groups_in_the_ledger": groups, "records_read": positions}
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
