"""Kill `coterie watch` again and again while groups commit and rebalance: its ledger has every record, once.

    make watch-soak                                                # both brokers, 30 kills each
    python tests/soak/watch_restarts.py --on apache --kills 30

Afterwards `__consumer_offsets` is read from its start and compared with the ledger, record by record: the records of
groups, and of each partition of each group the number of commits and the last one.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from apache_kafka import ApacheKafka
from coterie import Broker, Consumer
from coterie.client.admin import Admin, NewTopic
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.diagnosis.ledger_file import LedgerFile
from coterie.diagnosis.records import group_of, is_commit
from coterie.protocol.messages import OffsetRecord
from coterie.protocol.offsets_topic import OFFSETS_TOPIC, read_record

COTERIE = str(Path(sys.executable).with_name("coterie"))
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
PARTITIONS = 3
GROUPS = 4
PATIENCE_S = 90.0


class Traffic(threading.Thread):
    """Commits for some groups, and lets a member join and leave another one, until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._where = {"bootstrap.servers": bootstrap}
        self._stop_it = threading.Event()
        self.turns = 0

    def run(self) -> None:
        with Admin(self._where) as admin:
            while not self._stop_it.is_set():
                self.turns += 1
                offsets = {TopicPartition("t", one): OffsetAndMetadata(self.turns) for one in range(PARTITIONS)}
                admin.alter_group_offsets(f"commits-{self.turns % GROUPS}", offsets)
                if self.turns % 5 == 0:
                    self._rebalance()

    def _rebalance(self) -> None:
        with Consumer(self._where, group_id=f"rebalances-{self.turns % GROUPS}") as consumer:
            consumer.subscribe(["t"])
            until = time.monotonic() + PATIENCE_S
            while not consumer.assignment() and time.monotonic() < until:
                consumer.poll(0.05)

    def end(self) -> None:
        self._stop_it.set()
        self.join()


@dataclass
class Compared:
    """What is in the topic, and what the ledger has of it."""

    records: int = 0
    commits: int = 0
    differences: list[str] = field(default_factory=list)


def killed_again_and_again(bootstrap: str, ledger: Path, kills: int, rng: Random, longest_s: float = 1.5) -> Compared:
    """Run it, kill it so often, and let it end in order at last."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("t", PARTITIONS)])
    traffic = Traffic(bootstrap)
    traffic.start()
    try:
        for turn in range(kills + 1):
            begun = traffic.turns
            watch = start(bootstrap, ledger)
            time.sleep(rng.uniform(0, longest_s))
            watch.send_signal(signal.SIGKILL if turn < kills else signal.SIGTERM)
            watch.communicate(timeout=PATIENCE_S)
            wait_for_turns(traffic, begun + 10)  # something is written while it is away
    finally:
        traffic.end()
    watch = start(bootstrap, ledger)
    found = compared(bootstrap, ledger)
    until = time.monotonic() + PATIENCE_S
    while found.differences and time.monotonic() < until:
        time.sleep(0.2)
        found = compared(bootstrap, ledger)
    watch.send_signal(signal.SIGTERM)
    _, said = watch.communicate(timeout=PATIENCE_S)
    assert watch.returncode == 0, said
    return compared(bootstrap, ledger)


def start(bootstrap: str, ledger: Path) -> subprocess.Popen[bytes]:
    """Start a watch, and return when it reads."""
    command = [COTERIE, "watch", "--bootstrap", bootstrap, "--ledger", str(ledger), "--every", "0.5"]
    watch = subprocess.Popen(command, stderr=subprocess.PIPE)
    assert watch.stderr is not None
    line = watch.stderr.readline()
    assert b"Ctrl-C ends it" in line, line + watch.stderr.read()
    return watch


def wait_for_turns(traffic: Traffic, turns: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while traffic.turns < turns:
        assert traffic.is_alive() and time.monotonic() < until, "nothing is written any more"
        time.sleep(0.02)


def compared(bootstrap: str, ledger: Path) -> Compared:
    """Compare the topic with the ledger, record by record."""
    groups: dict[tuple[int, int], tuple[bytes | None, bytes | None]] = {}
    counts: Counter[tuple[str, str, int]] = Counter()
    last: dict[tuple[str, str, int], int | None] = {}
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as reader:
        places = [TopicPartition(OFFSETS_TOPIC, one) for one in range(int(SETTINGS["offsets.topic.num.partitions"]))]
        reader.assign(places)
        ends = reader.end_offsets(places)
        while any(reader.position(place) < end for place, end in ends.items()):
            for record in reader.poll(0.1):
                if is_commit(record.key):
                    found = read_record(record.key or b"", record.value)
                    assert isinstance(found, OffsetRecord)
                    place = found.group_id, found.topic, found.partition
                    counts[place] += 1
                    last[place] = found.value.offset if found.value else None
                elif group_of(record.key) is not None:
                    groups[record.partition, record.offset] = record.key, record.value
    with LedgerFile(ledger) as file:
        stored = {(one[0], one[1]): (one[4], one[5]) for one in file.records()}
        commits = {one[:3]: (one[3], one[5]) for one in file.commits()}
    differences = [f"record {at}: {stored.get(at)}" for at in sorted(groups) if stored.get(at) != groups[at]]
    differences += [f"record {at} is not in the topic" for at in sorted(stored.keys() - groups.keys())]
    for place in sorted(counts.keys() | commits.keys()):
        there, has = (last.get(place), counts[place]), commits.get(place, (None, 0))
        if there != has:
            differences.append(f"commits of {place}: last and number are {there}, in the ledger {has}")
    return Compared(len(groups), sum(counts.values()), differences)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=["apache", "coterie", "both"], default="both")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    is_wrong = False
    for name in ["coterie", "apache"] if options.on == "both" else [options.on]:
        with tempfile.TemporaryDirectory() as directory:
            ledger, rng = Path(directory, "ledger"), Random(options.seed)
            if name == "apache":
                with ApacheKafka(SETTINGS) as kafka:
                    found = killed_again_and_again(kafka.bootstrap, ledger, options.kills, rng)
            else:
                with Broker(settings=SETTINGS) as broker:
                    found = killed_again_and_again(broker.bootstrap_servers, ledger, options.kills, rng)
        print(
            f"{name}, seed {options.seed}: killed {options.kills} times; {found.records} records of groups and "
            f"{found.commits} commits, {len(found.differences)} differences",
            flush=True,
        )
        for line in found.differences[:20]:
            print(f"  {line}")
        is_wrong |= bool(found.differences)
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
