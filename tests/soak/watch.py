"""A member that behaves, while others do not: it is answered all the while, and how long it took at most is noted."""

from __future__ import annotations

import time
from threading import Event, Thread

from broker.peer import Peer
from coterie.errors import ErrorCode
from coterie.protocol.apis import api_versions

__all__ = ["LEAST_WATCHED", "VERSIONS", "Watch"]

LEAST_WATCHED = 20
"""Answers without which nothing is shown."""
VERSIONS = api_versions.Request(client_software_name="calm", client_software_version="1")


class Watch(Thread):
    """From `start` to `end`; what goes wrong in between is raised by `end`."""

    def __init__(self, bootstrap: str, pause_s: float = 0.02) -> None:
        super().__init__(name="a member that behaves", daemon=True)
        self._pause_s = pause_s
        self._stop_it = Event()
        self._problem: BaseException | None = None
        self.slowest_s = 0.0
        self.answers = 0
        self._peer = Peer(bootstrap, timeout_s=30)
        self._peer.find_coordinator("calm")
        self._member = self._peer.enter("calm")

    def run(self) -> None:
        try:
            while not self._stop_it.wait(self._pause_s):
                began = time.perf_counter()
                error = self._peer.heartbeat("calm", self._member.member_id, self._member.generation_id)
                assert error is ErrorCode.NONE, error
                assert not self._peer.ask(api_versions, VERSIONS).error
                self.slowest_s = max(self.slowest_s, time.perf_counter() - began)
                self.answers += 2
        except BaseException as problem:  # noqa: BLE001  raised again by who waits for the end
            self._problem = problem

    def wait_for_answers(self, count: int) -> None:
        """Return when it has had so many answers, or has failed: then `end` says why."""
        while self.is_alive() and self.answers < count:
            time.sleep(0.02)

    def end(self) -> None:
        self._stop_it.set()
        self.join()
        self._peer.close()
        if self._problem is not None:
            raise self._problem
