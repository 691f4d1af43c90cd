"""Ten thousand connections at once, most of them up to no good: a member that behaves is answered all the while.

    PYTHONPATH=tests python tests/soak/crowd.py --connections 10000

A quarter each: says nothing at all; announces 100 MB, sends a little of it and then a byte now and then; asks for
megabytes and never reads; behaves. Then most of them vanish without a word.
"""

from __future__ import annotations

import argparse
import re
import resource
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from broker.peer import Peer, Serving
from broker.speaker import fetch_request
from coterie.protocol.apis import api_versions, fetch
from soak.processes import cpu_seconds, rss_bytes
from soak.watch import LEAST_WATCHED, VERSIONS, Watch

__all__ = ["CrowdOutcome", "crowd", "raise_file_limit"]

ANNOUNCED = 100 << 20
LITTLE = 2_000
HELD = 200 << 20
"""queued.max.request.bytes: so much less than a crowd could make a broker hold that it has to choose."""
PER_CONNECTION = 20 << 10
"""Bytes a connection may cost, beside what is held for it."""
SPARE = 100 << 20
SLOWEST_S = 10.0
RECORD = 500_000
LINES_A_SECOND = 30


@dataclass(slots=True)
class CrowdOutcome:
    connections: int = 0
    dropped: int = 0
    """By the broker, since all together made it hold too much."""
    open_s: float = 0.0
    answered: int = 0
    watched: int = 0
    slowest_s: float = 0.0
    grown: int = 0
    cpu_s: float = 0.0


def raise_file_limit(wanted: int) -> int:
    """As far as the system allows; how far that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Crowd:
    def __init__(self, bootstrap: str, count: int) -> None:
        self.peers = [Peer(bootstrap, timeout_s=60) for _ in range(count)]
        quarter = count // 4
        self.silent = self.peers[:quarter]
        self.slow = self.peers[quarter : 2 * quarter]
        self.deaf = self.peers[2 * quarter : 3 * quarter]
        self.good = self.peers[3 * quarter :]

    def begin(self) -> None:
        for peer in self.slow:
            peer.socket.sendall(struct.pack(">i", ANNOUNCED) + bytes(LITTLE))
        ask = fetch_request({"large": {0: 0}}, max_bytes=50 << 20, partition_max_bytes=50 << 20)
        for peer in self.deaf:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.send(fetch, ask, 12)

    def trickle(self) -> None:
        for peer in self.slow:
            try:
                peer.socket.sendall(b"\0")
            except ConnectionError:
                continue  # sent away, as may be

    def ask(self) -> int:
        """Everybody who behaves is answered; how many that are."""
        for peer in self.good:
            peer.send(api_versions, VERSIONS)
        return sum(not peer.answer().error for peer in self.good)

    def vanish(self) -> None:
        for number, peer in enumerate(self.peers):
            if number % 2:
                peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()


def crowd(count: int, log: Path) -> CrowdOutcome:
    """Raises `AssertionError` for whatever goes wrong."""
    outcome = CrowdOutcome(connections=count)
    settings = ["group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=3"]
    settings += [f"queued.max.request.bytes={HELD}"]
    with Serving(None, *[f"--set={one}" for one in settings], log=log) as broker:
        pid = broker.process.pid
        bootstrap = broker.ready()
        with Peer(bootstrap) as peer:
            peer.find_coordinator()
            peer.create("large")
            for _ in range(20):
                assert not peer.produce("large", bytes(RECORD)).error
        watch = Watch(bootstrap)
        watch.start()
        before, cpu_before, began = rss_bytes(pid), cpu_seconds(pid), time.perf_counter()
        people = Crowd(bootstrap, count)
        outcome.open_s = time.perf_counter() - began
        people.begin()
        for _ in range(3):
            people.trickle()
            outcome.answered += people.ask()
        watch.wait_for_answers(LEAST_WATCHED)  # with all of them there
        outcome.grown, outcome.cpu_s = rss_bytes(pid) - before, cpu_seconds(pid) - cpu_before
        people.vanish()
        with Peer(bootstrap) as peer:
            assert not peer.ask(api_versions, VERSIONS).error
        watch.end()
        broker.signal()
        status, _ = broker.ended()
    said = log.read_text()
    outcome.watched, outcome.slowest_s = watch.answers, watch.slowest_s
    assert status == 0 and "Traceback" not in said and "Mistake" not in said, said[-4_000:]
    lasted_s = time.perf_counter() - began
    lines = said.splitlines()
    assert len(lines) < 100 + LINES_A_SECOND * lasted_s, f"{len(lines)} lines in {lasted_s:.0f} s: the log was flooded"
    outcome.dropped = sum(int(found) for found in re.findall(r"kind=ConnectionDropped count=(\d+)", said))
    outcome.dropped += sum(" ConnectionDropped " in line for line in lines)
    assert outcome.answered == 3 * len(people.good)
    assert outcome.slowest_s < SLOWEST_S, f"the member that behaves waited {outcome.slowest_s:.1f} s"
    most = HELD + count * PER_CONNECTION + SPARE
    assert outcome.grown < most, f"the broker has {outcome.grown >> 20} MiB more, {most >> 20} are allowed"
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    options = parser.parse_args()
    allowed = raise_file_limit(options.connections + 200)
    count = min(options.connections, allowed - 200)
    if count < options.connections:
        print(f"the system allows {allowed} open files (ulimit -n): {count} connections then")
    with TemporaryDirectory() as directory:
        found = crowd(count, Path(directory, "log"))
    print(
        f"{found.connections} connections, opened in {found.open_s:.1f} s, {found.dropped} sent away since all "
        f"together made the broker hold more than {HELD >> 20} MiB; {found.answered} answers to those that "
        f"behave; a member had {found.watched}, the slowest after {found.slowest_s:.2f} s; "
        f"the broker had {found.grown / 2**20:+.1f} MiB and used {found.cpu_s:.1f} s of a processor"
    )


if __name__ == "__main__":
    main()
