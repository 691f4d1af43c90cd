"""Long timers of many clients ring together, a little late, and each by itself."""

from __future__ import annotations

import asyncio
from typing import Any

from coterie.client.network.runtime import LONG_MS, TICK_MS, BackgroundTasks, SharedTicks, clock_ms, shared_ticks


def test_timers_of_a_tick_ring_together_unless_cancelled() -> None:
    heard: list[str] = []
    wrong: list[Any] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: wrong.append(context["exception"]))
        ticks, began = SharedTicks(), loop.time()
        due = (began * 1000 // TICK_MS + 2) * TICK_MS / 1000
        dropped = ticks.call_after(due - began - 0.02, heard.append, "never")

        def breaks() -> None:
            dropped_later.cancel()
            raise ZeroDivisionError

        ticks.call_after(due - began - 0.03, breaks)
        dropped_later = ticks.call_after(due - began - 0.025, heard.append, "never either")
        ticks.call_after(due - began - 0.01, lambda: heard.append(f"{loop.time() >= due - 0.002}"))
        dropped.cancel()
        await asyncio.sleep(due - loop.time() + 0.05)

    asyncio.run(work())
    assert heard == ["True"]
    assert [type(error) for error in wrong] == [ZeroDivisionError]


def test_only_long_timers_of_a_client_are_shared() -> None:
    async def work() -> None:
        ticks = shared_ticks()
        assert ticks is shared_ticks()
        tasks = BackgroundTasks(clock_ms, lambda _error: None, ticks)
        tasks.arm("short", clock_ms() + LONG_MS / 2, lambda: None)
        tasks.arm("long", clock_ms() + LONG_MS * 2, lambda: None)
        assert len(ticks._ticks) == 1
        await tasks.close()
        assert all(timer.then is None for timers in ticks._ticks.values() for timer in timers)

    asyncio.run(work())
