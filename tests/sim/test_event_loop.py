"""The event loop with a virtual clock: timers that were cancelled do not stay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

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


def test_what_fails_ends_the_turn_after_the_rest_of_it() -> None:
    client = Clock(world=SimpleNamespace(broken=None), is_paused=False)
    loop = VirtualEventLoop(cast("Any", client))  # type: ignore[abstract]
    done: list[str] = []
    loop.call_soon({}.__getitem__, "missing")
    loop.call_soon(done.append, "cancelled").cancel()
    loop.call_soon(done.append, "later")
    with pytest.raises(KeyError, match="missing"):
        loop.run()
    assert done == ["later"]


def test_the_time_stands_still_during_a_turn() -> None:
    client = Clock(world=SimpleNamespace(broken=None), is_paused=False)
    loop = VirtualEventLoop(cast("Any", client))  # type: ignore[abstract]
    times: list[int] = []

    def look() -> None:
        client.now_ms += 1
        times.append(loop.time_ms())

    loop.run(look)
    assert times == [0]
    assert loop.time_ms() == 1
    assert loop.time() == 0.001
