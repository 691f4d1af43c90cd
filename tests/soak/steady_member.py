"""A member that sends heartbeats at a fixed rate, and measures how long each answer takes."""

from __future__ import annotations

import time
from threading import Event, Thread

from broker.peer import Peer
from coterie.errors import ErrorCode
from coterie.protocol.apis import heartbeat
from coterie.protocol.frames import request_frame
from coterie.protocol.messages import Heartbeat

__all__ = ["SteadyMember"]

GROUP = "steady"
SESSION_MS = 10_000
ANSWER_SIZE = 16
ERROR_AT = slice(13, 15)
VERSION = 4


class SteadyMember(Thread):
    """Runs from `start` to `end`. `mark` begins a new measurement.

    A latency counts from the time at which the heartbeat was due. So a stall of a second counts for every heartbeat
    that it held up, not only for the one that was under way.
    """

    def __init__(self, peer: Peer, pid: int, pause_s: float = 0.005, *, joins: bool = True) -> None:
        """`pid` is the broker's. `joins`: False for a server without groups that answers every frame as a heartbeat."""
        super().__init__(name="steady member", daemon=True)
        self._pause_s = pause_s
        self._stopped = Event()
        self._broker_cpu = (~pid << 3) | 2  # Linux's clock of another process's CPU time
        self._latencies: list[float] = []
        self._work: list[float] = []
        self.problem: str | None = None
        """Why it stopped: expired, fenced, or its connection was closed."""
        member_id, generation_id = "nobody", 1
        self._peer = peer
        if joins:
            self._peer.find_coordinator(GROUP)
            joined = self._peer.enter(GROUP, session_timeout_ms=SESSION_MS)
            member_id, generation_id = joined.member_id, joined.generation_id
        body = heartbeat.write_request(Heartbeat(None, GROUP, member_id, None, generation_id), VERSION)
        self._beat = request_frame(heartbeat.API.key, VERSION, 0, "steady", body, flexible=True)

    def run(self) -> None:
        try:
            due = time.perf_counter()
            while not self._stopped.is_set() and self.problem is None:
                due += self._pause_s
                time.sleep(max(0.0, due - time.perf_counter()))
                self._ask(due)
        except OSError as error:
            self.problem = f"{type(error).__name__}: {error}"

    def _ask(self, due: float) -> None:
        worked = time.clock_gettime(self._broker_cpu)
        self._peer.socket.sendall(self._beat)
        answer = self._peer.read(ANSWER_SIZE)
        self._work.append(time.clock_gettime(self._broker_cpu) - worked)
        self._latencies.append(time.perf_counter() - due)
        error = ErrorCode(int.from_bytes(answer[ERROR_AT], "big", signed=True))
        if error is not ErrorCode.NONE:
            self.problem = error.name

    def mark(self) -> tuple[list[float], list[float]]:
        """Return what was measured since the last mark, each in seconds, sorted.

        First the latencies; then, for each heartbeat, how long the broker's process worked until it was answered:
        that does not count the time in which other processes had the machine.
        """
        found = sorted(self._latencies), sorted(self._work)
        self._latencies, self._work = [], []
        return found

    def end(self) -> None:
        self._stopped.set()
        self.join()
        self._peer.close()
