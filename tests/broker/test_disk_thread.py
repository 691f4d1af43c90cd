"""The thread that waits for the disk: everything is done once, in order, and its end is heard of in the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from coterie.broker.io.disk_thread import DiskThread


def test_work_is_done_in_order_away_from_the_loop_and_its_end_is_heard_of_in_it() -> None:
    async def ask() -> list[tuple[int, bool]]:
        disk = DiskThread(asyncio.get_running_loop())
        heard: list[tuple[int, bool]] = []
        done = asyncio.Event()
        here = threading.get_ident()

        def ended(found: tuple[int, bool]) -> None:
            assert threading.get_ident() == here
            heard.append(found)
            if len(heard) == 100:
                done.set()

        for number in range(100):
            disk.run(lambda number=number: (number, threading.get_ident() != here), ended)  # type: ignore[misc]
        await asyncio.wait_for(done.wait(), 60)
        disk.shutdown()
        return heard

    assert asyncio.run(ask()) == [(number, True) for number in range(100)]


def test_a_mistake_is_reported_and_the_thread_goes_on() -> None:
    def fails() -> None:
        raise ValueError("a mistake")

    async def ask() -> tuple[list[Any], list[Any]]:
        loop = asyncio.get_running_loop()
        reported: list[Any] = []
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        disk = DiskThread(loop)
        heard: asyncio.Queue[Any] = asyncio.Queue()
        disk.run(fails, heard.put_nowait)
        disk.run(lambda: "next", heard.put_nowait)
        found = [await asyncio.wait_for(heard.get(), 60)]
        disk.shutdown()
        return found, reported

    found, reported = asyncio.run(ask())
    assert found == ["next"]
    assert [str(each) for each in reported] == ["a mistake"]


def test_the_last_work_comes_after_all_other_and_its_error_is_raised() -> None:
    async def ask() -> list[int]:
        disk = DiskThread(asyncio.get_running_loop())
        done: list[int] = []
        for number in range(10):
            disk.run(_noting(done, number), lambda _: None)
        await asyncio.wait_for(disk.finish(_noting(done, 10)), 60)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(disk.finish(_fails), 60)
        disk.shutdown()
        return done

    assert asyncio.run(ask()) == list(range(11))


@pytest.mark.parametrize("times", [1, 2])
def test_a_shutdown_waits_for_what_was_asked_for(times: int) -> None:
    async def ask() -> list[int]:
        disk = DiskThread(asyncio.get_running_loop())
        done: list[int] = []
        for number in range(10):
            disk.run(_noting(done, number), lambda _: None)
        for _ in range(times):
            disk.shutdown()
        disk.run(_noting(done, 10), lambda _: None)
        return done

    assert asyncio.run(ask()) == list(range(10))


def test_a_shutdown_of_a_thread_that_never_worked_ends_at_once() -> None:
    async def ask() -> None:
        DiskThread(asyncio.get_running_loop()).shutdown()

    asyncio.run(ask())


def test_work_that_ends_after_the_loop_was_closed_disturbs_nobody() -> None:
    held = threading.Event()

    async def ask() -> DiskThread:
        disk = DiskThread(asyncio.get_running_loop())
        disk.run(held.wait, lambda _: None)
        return disk

    disk = asyncio.run(ask())
    held.set()
    disk.shutdown()


def _noting(done: list[int], number: int) -> Callable[[], None]:
    return lambda: done.append(number)


def _fails() -> None:
    raise ZeroDivisionError
