"""Virtual time and chance: the schedule of all events, the clocks of hosts, and the named streams of random numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random  # noqa: TID251  seeded; this is where a simulated world gets its rng
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from coterie.sim.world import World

__all__ = ["Act", "Host", "HostClock", "Random", "Rng", "Schedule", "fresh_ids"]

Act = Callable[[Any], None]


class Schedule:
    """The events to come, in the order of their time, and of the calls if the time is the same."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._heap: list[tuple[int, int, Act, Any]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def steps(self) -> int:
        """The number of events that have happened."""
        return self._count - len(self._heap)

    def at(self, at_ms: int, act: Act, about: Any) -> None:
        """Call `act(about)` at that time. It cannot be cancelled: `act` checks whether it is still needed."""
        self._count = count = self._count + 1
        heappush(self._heap, (at_ms, count, act, about))

    def after(self, ms: int, act: Act, about: Any) -> None:
        self.at(self.now_ms + ms, act, about)

    def run(self, until_ms: int) -> None:
        """Run all events until then."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            at_ms, _, act, about = heappop(heap)
            if at_ms > self.now_ms:  # noqa: PLR1730  the hot loop
                self.now_ms = at_ms
            act(about)
        self.now_ms = until_ms


class Rng:
    """`of(name)` is the same stream of random numbers for the same seed and name, in every process."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def of(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")  # noqa: S311  text is hashed with SHA-512: no hash seed comes in


class fresh_ids:  # noqa: N801  a function that remembers
    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def __call__(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128), version=4)


_MILLION = 1_000_000


class HostClock:
    """A clock that is ahead of others and runs a little faster or slower, but never back."""

    __slots__ = ("ahead_ms", "ppm")

    def __init__(self, ahead_ms: int, ppm: int = 0) -> None:
        self.ahead_ms = ahead_ms
        self.ppm = ppm

    def local(self, world_ms: int) -> int:
        return world_ms + self.ahead_ms + (world_ms * self.ppm // _MILLION if self.ppm else 0)

    def world(self, local_ms: int) -> int:
        """The first moment of the world at which this clock shows that time, or a later one."""
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
    """A name, a clock, and pauses in which nothing runs, as in a long garbage collection."""

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
        """Return the time by its own clock."""
        now_ms, clock = self._schedule.now_ms, self.clock
        if clock.ppm:
            return clock.local(now_ms)
        return now_ms + clock.ahead_ms  # asked for in every event

    def later(self, ms: int, act: Callable[[Any], None], about: Any) -> None:
        schedule = self._schedule
        schedule.at(schedule.now_ms + ms, act, about)

    def at(self, local_ms: int, act: Callable[[Any], None], about: Any) -> None:
        schedule, clock = self._schedule, self.clock
        at_ms = clock.world(local_ms) if clock.ppm else local_ms - clock.ahead_ms
        if at_ms < schedule.now_ms:  # every timer is set here  # noqa: PLR1730
            at_ms = schedule.now_ms
        schedule.at(at_ms, act, about)

    def misses(self, act: Callable[[Any], None], about: Any) -> None:
        """Do it when the pause is over."""
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
