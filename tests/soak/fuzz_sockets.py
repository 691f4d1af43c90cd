"""The frames of `fuzz.py` over real sockets: in pieces, with wrong sizes, by clients that go in between or never read.

A member that behaves is answered all the while.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from random import Random

from broker.peer import Peer, Serving
from soak.mutations import hostile
from soak.processes import rss_bytes
from soak.requests import Requests
from soak.watch import LEAST_WATCHED, Watch

__all__ = ["SocketOutcome", "fuzz_sockets"]

SOCKETS = 20
DEAF = 4
"""So many of them never read."""
GROWTH = 128 << 20
"""Bytes the broker may have more at the end: topics and groups that were made are there, and may be."""
SLOWEST_S = 5.0
SETTINGS = [
    "--set=group.initial.rebalance.delay.ms=0",
    "--set=offsets.topic.num.partitions=3",
    "--set=num.partitions=2",
    "--flush=os",
]
RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class SocketOutcome:
    frames: int = 0
    connections: int = 0
    watched: int = 0
    """Answers to the member that behaves."""
    slowest_s: float = 0.0
    grown: int = 0


class Stranger:
    """One socket after the other in the same slot."""

    def __init__(self, address: tuple[str, int], rng: Random, *, is_deaf: bool) -> None:
        self._address = address
        self._rng = rng
        self._is_deaf = is_deaf
        self.connections = 0
        self._connect()

    def _connect(self) -> None:
        self.connections += 1
        self.socket = socket.create_connection(self._address, timeout=20)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, frame: bytes) -> None:
        try:
            self._write(self._wrapped(frame))
            self._listen()
        except OSError:  # it does not read any more, as we do not; or has had enough of us
            self.leave()
            self._connect()

    def _wrapped(self, frame: bytes) -> bytes:
        rng = self._rng
        size = len(frame)
        if rng.random() < 0.02:
            size = rng.choice((-1, 0, size - 1, size + 1, 104_857_600, 104_857_601, 2**31 - 1, -(2**31)))
        return struct.pack(">i", size) + frame

    def _write(self, data: bytes) -> None:
        rng = self._rng
        chance = rng.random()
        if chance < 0.9:
            self.socket.sendall(data)
        elif chance < 0.97:
            for at in range(min(len(data), 200)):
                self.socket.sendall(data[at : at + 1])
            self.socket.sendall(data[200:])
        else:
            self.socket.sendall(data[: rng.randrange(len(data))])
            if chance < 0.98:
                self.socket.shutdown(socket.SHUT_WR)
            elif chance < 0.99:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                raise ConnectionError

    def _listen(self) -> None:
        if not self._is_deaf:
            with contextlib.suppress(BlockingIOError):
                while self.socket.recv(1 << 16):
                    pass
                raise ConnectionError

    def leave(self) -> None:
        self.socket.close()


def fuzz_sockets(frames: int, seed: int, data: Path, log: Path) -> SocketOutcome:
    """Send `frames`, and more until many strangers were cut off, which a busy broker does later.

    Raises `AssertionError` for whatever goes wrong.
    """
    rng = Random(seed)
    outcome = SocketOutcome()
    with Serving(data, *SETTINGS, log=log) as broker:
        bootstrap = broker.ready()
        host, _, port = bootstrap.rpartition(":")
        with Peer(bootstrap) as peer:
            peer.find_coordinator()
            topic_ids = [peer.create(name, 3) for name in ("t", "u")]
        watch = Watch(bootstrap)
        watch.start()
        before = rss_bytes(broker.process.pid)
        requests = Requests(rng)
        requests.known.topic_ids = topic_ids
        strangers = [Stranger((host, int(port)), rng, is_deaf=slot < DEAF) for slot in range(SOCKETS)]
        while outcome.frames < frames or (outcome.connections < frames // 9 and outcome.frames < 20 * frames):
            rng.choice(strangers).send(hostile(requests.frame(), rng))
            outcome.frames += 1
            outcome.connections = sum(stranger.connections for stranger in strangers)
        watch.wait_for_answers(LEAST_WATCHED)  # with the strangers still there
        for stranger in strangers:
            stranger.leave()
        watch.end()
        outcome.grown = rss_bytes(broker.process.pid) - before
        broker.signal()
        status, _ = broker.ended()
    said = log.read_text()
    assert status == 0 and "Traceback" not in said and "Mistake" not in said, said[-4_000:]
    outcome.watched, outcome.slowest_s = watch.answers, watch.slowest_s
    assert outcome.slowest_s < SLOWEST_S, f"the member that behaves waited {outcome.slowest_s:.1f} s"
    assert outcome.grown < GROWTH, f"the broker has {outcome.grown >> 20} MiB more"
    return outcome
