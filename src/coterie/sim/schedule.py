"""Everything that is going to happen, in order of time; at the same time, in the order in which it was asked for."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

__all__ = ["Schedule"]

Act = Callable[[Any], None]


class Schedule:
    def __init__(self) -> None:
        self.now_ms = 0
        self._heap: list[tuple[int, int, Act, Any]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def steps(self) -> int:
        """So much has happened."""
        return self._count - len(self._heap)

    def at(self, at_ms: int, act: Act, about: Any) -> None:
        """`act(about)` at that time. Nothing can be taken back: whoever acts looks whether it is still wanted."""
        self._count = count = self._count + 1
        heappush(self._heap, (at_ms, count, act, about))

    def after(self, ms: int, act: Act, about: Any) -> None:
        self.at(self.now_ms + ms, act, about)

    def run(self, until_ms: int) -> None:
        """All that happens until then."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            at_ms, _, act, about = heappop(heap)
            if at_ms > self.now_ms:  # noqa: PLR1730  the hot loop
                self.now_ms = at_ms
            act(about)
        self.now_ms = until_ms
