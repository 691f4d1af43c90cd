"""The event loop with a virtual clock: timers that were cancelled do not stay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from coterie.sim.event_loop import MOST_CANCELLED, VirtualEventLoop


class Clock(SimpleNamespace):
    """What a loop needs of a client: the time, and alarms."""

    now_ms = 0

    def at(self, at_ms: int, ring: Any, *about: Any) -> None:
        self.rings = (at_ms, ring, about)


def test_cancelled_timers_are_dropped_before_they_are_due() -> None:
    client = Clock(world=SimpleNamespace(broken=None), is_paused=False)
    loop = VirtualEventLoop(cast("Any", client))  # type: ignore[abstract]
    rung: list[int] = []
    timers = [loop.call_later(30, rung.append, number) for number in range(10 * MOST_CANCELLED)]
    for timer in timers[1:-1]:
        timer.cancel()
    assert len(loop) == 2
    assert len(loop._timers) <= 2 + 2 * MOST_CANCELLED
    client.now_ms = 30_000
    loop.run()
    assert rung == [0, len(timers) - 1]
    assert len(loop) == 0


def test_a_timer_that_is_cancelled_when_it_is_due_is_not_counted_twice() -> None:
    client = Clock(world=SimpleNamespace(broken=None), is_paused=False)
    loop = VirtualEventLoop(cast("Any", client))  # type: ignore[abstract]
    later = loop.call_later(1, lambda: None)
    loop.call_later(0, later.cancel)
    client.now_ms = 1_000
    loop.run()
    later.cancel()
    assert len(loop) == 0
