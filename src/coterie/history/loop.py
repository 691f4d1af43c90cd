"""Machines on real time: one thread handles the events of all of them, one after the other.

Whoever has an event posts it, from any thread. What a machine wants done is done by its `Station`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

from coterie.history.design_types import Arm, Machine, Rang
from coterie.history.journal import now_ms
from coterie.history.kazoo_registry import KazooRegistry
from coterie.history.registry import Ask

__all__ = ["Loop", "Station"]

Perform = Callable[[Any], None]


class Station:
    """A machine in a loop, with its own session; `performs` says who does what else it wants."""

    def __init__(
        self,
        loop: Loop,
        machine: Machine,
        zookeeper: str,
        *,
        session_timeout_ms: int,
        performs: Mapping[type, Perform] | None = None,
    ) -> None:
        self.machine = machine
        self.registry = KazooRegistry(zookeeper, self.post, session_timeout_ms=session_timeout_ms)
        self._loop = loop
        self._armed: dict[str, int] = {}
        self._performs: dict[type, Perform] = {Ask: self.registry.ask, Arm: self._arm, **(performs or {})}

    def post(self, event: Any) -> None:
        self._loop.post(self, event)

    def handle(self, event: Any) -> None:
        if isinstance(event, _Due):
            if self._armed.get(event.key) != event.at_ms:
                return
            del self._armed[event.key]
            event = Rang(event.key)
        for effect in self.machine.handle(event, now_ms()):
            self._performs[type(effect)](effect)

    def _arm(self, effect: Arm) -> None:
        self._armed[effect.key] = effect.at_ms
        self._loop.at(effect.at_ms, self, _Due(effect.key, effect.at_ms))


class _Due:
    def __init__(self, key: str, at_ms: int) -> None:
        self.key = key
        self.at_ms = at_ms


class Loop:
    def __init__(self) -> None:
        self._events: SimpleQueue[tuple[Station, Any]] = SimpleQueue()
        self._timers: list[tuple[int, int, Station, Any]] = []
        self._count = count()

    def post(self, station: Station, event: Any) -> None:
        self._events.put((station, event))

    def at(self, at_ms: int, station: Station, event: Any) -> None:
        """To be called from the loop's own thread."""
        heappush(self._timers, (at_ms, next(self._count), station, event))

    def run(self, for_ms: int) -> None:
        """What happens until then; at least once what has happened already."""
        until_ms = now_ms() + for_ms
        while True:
            while self._timers and self._timers[0][0] <= now_ms():
                _, _, station, event = heappop(self._timers)
                station.handle(event)
            next_ms = min(until_ms, self._timers[0][0]) if self._timers else until_ms
            try:
                station, event = self._events.get(timeout=max(next_ms - now_ms(), 0) / 1_000)
            except Empty:
                if now_ms() >= until_ms:
                    return
                continue
            station.handle(event)

    def run_until(self, it_is_so: Callable[[], bool], within_ms: int, what: str) -> None:
        give_up = now_ms() + within_ms
        while not it_is_so():
            if now_ms() > give_up:
                raise TimeoutError(f"waited {within_ms} ms in vain for {what}")
            self.run(5)
