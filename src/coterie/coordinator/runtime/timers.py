"""Keyed timers. Arming a key again replaces what it had, and costs an assignment, not a heap operation.

The heap holds one entry per key, which may ring early: what counts is the time in `_armed`, looked at when it rings.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

__all__ = ["Timers"]

E = TypeVar("E")


class Timers(Generic[E]):
    def __init__(self) -> None:
        self._armed: dict[Hashable, tuple[int, E]] = {}
        self._queued: dict[Hashable, int] = {}  # key -> when its entry in the heap rings
        self._heap: list[tuple[int, int, Hashable]] = []
        self._count = 0  # keeps equal times in the order in which they were armed

    def __len__(self) -> int:
        return len(self._armed)

    def arm(self, key: Hashable, at_ms: int, event: E) -> None:
        self._armed[key] = (at_ms, event)
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def disarm(self, key: Hashable) -> None:
        """The entry in the heap stays and rings for nobody."""
        if self._armed.pop(key, None) is not None:
            self._tidy()

    def next_ms(self) -> int | None:
        """When to look again. May be early, never late."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[E]:
        """Everything whose time has come, in order of time. What is armed while it is consumed counts too."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, key = heappop(self._heap)
            if self._queued.get(key) != at_ms:
                continue  # an earlier entry has taken its place
            del self._queued[key]
            armed = self._armed.get(key)
            if armed is None:
                continue
            deadline_ms, event = armed
            if deadline_ms > now_ms:
                self._push(key, deadline_ms)
                continue
            del self._armed[key]
            yield event

    def _push(self, key: Hashable, at_ms: int) -> None:
        self._count += 1
        self._queued[key] = at_ms
        heappush(self._heap, (at_ms, self._count, key))
        self._tidy()

    def _tidy(self) -> None:
        """When most entries ring for nobody, or too early, the heap is built again."""
        if len(self._heap) <= 2 * len(self._armed) + 64:
            return
        self._queued = {key: at_ms for key, (at_ms, _) in self._armed.items()}
        self._heap = [(at_ms, index, key) for index, (key, at_ms) in enumerate(self._queued.items())]
        heapify(self._heap)
