"""A host: a name, a clock that drifts, and pauses in which nothing is done, as in a long garbage collection."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.sim.world import World

__all__ = ["Host", "HostClock"]

_MILLION = 1_000_000


class HostClock:
    """Says another time than its neighbours' and runs a little faster or slower, but never back."""

    __slots__ = ("ahead_ms", "ppm")

    def __init__(self, ahead_ms: int, ppm: int = 0) -> None:
        self.ahead_ms = ahead_ms
        self.ppm = ppm

    def local(self, world_ms: int) -> int:
        return world_ms + self.ahead_ms + (world_ms * self.ppm // _MILLION if self.ppm else 0)

    def world(self, local_ms: int) -> int:
        """The first moment of the world at which this clock says so, or later."""
        elapsed = local_ms - self.ahead_ms
        if not self.ppm:
            return elapsed
        guess = elapsed * _MILLION // (_MILLION + self.ppm)
        while self.local(guess) >= local_ms:
            guess -= 1
        while self.local(guess) < local_ms:
            guess += 1
        return guess


class Host:
    __slots__ = (
        "_missed",
        "_schedule",
        "clock",
        "is_paused",
        "name",
        "world",
    )

    def __init__(self, world: World, name: str, clock: HostClock) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self._schedule = world.schedule
        self.is_paused = False
        self._missed: deque[tuple[Callable[[Any], None], Any]] = deque()

    @property
    def now_ms(self) -> int:
        """By its own clock."""
        clock = self.clock
        if clock.ppm:
            return clock.local(self._schedule.now_ms)
        return self._schedule.now_ms + clock.ahead_ms  # asked for in every event

    def later(self, ms: int, act: Callable[[Any], None], about: Any) -> None:
        schedule = self._schedule
        schedule.at(schedule.now_ms + ms, act, about)

    def at(self, local_ms: int, act: Callable[[Any], None], about: Any) -> None:
        schedule, clock = self._schedule, self.clock
        at_ms = clock.world(local_ms) if clock.ppm else local_ms - clock.ahead_ms
        schedule.at(max(at_ms, schedule.now_ms), act, about)

    def misses(self, act: Callable[[Any], None], about: Any) -> None:
        """What happens to it during a pause is noticed when the pause is over."""
        self._missed.append((act, about))

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        missed, self._missed = self._missed, deque()
        for act, about in missed:
            if self.is_paused:
                self._missed.append((act, about))
            else:
                act(about)

    def forget_missed(self) -> None:
        self._missed.clear()
