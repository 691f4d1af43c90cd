"""Waits with names: a condition is looked at in the broker's thread after each event, never by the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class WaitTimeoutError(AssertionError):
    """A wait of a test has timed out. The text says what happened instead."""


class _Waiting(NamedTuple):
    check: Callable[[], Any]
    """Returns None as long as the condition does not hold."""
    future: Future[Any]
    timer: asyncio.TimerHandle


class Waits:
    """The conditions that tests wait for. All of it runs in the broker's thread."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._is_due = False

    def add(self, check: Callable[[], T | None], timeout: float, why: Callable[[], str], future: Future[T]) -> None:
        """Set the result of `future` when `check` returns something else than None; `why` says why it did not."""
        loop = asyncio.get_running_loop()

        def late() -> None:
            self._waiting = [one for one in self._waiting if one.future is not future]
            _fail(future, WaitTimeoutError(_text(why)))

        timer = loop.call_later(timeout, late)
        self._waiting.append(_Waiting(check, future, timer))
        self.look()

    def soon(self) -> None:
        """Look at the conditions at the end of this turn of the loop: something has happened."""
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.look)

    def look(self) -> None:
        self._is_due = False
        still: list[_Waiting] = []
        for one in self._waiting:
            if one.future.cancelled():
                one.timer.cancel()
                continue
            try:
                found = one.check()
            except Exception as error:  # noqa: BLE001  it is raised in the test
                one.timer.cancel()
                _fail(one.future, error)
                continue
            if found is None:
                still.append(one)
            else:
                one.timer.cancel()
                if one.future.set_running_or_notify_cancel():
                    one.future.set_result(found)
        self._waiting = still

    def give_up(self, error: Exception) -> None:
        """The broker stops: nothing of this will happen."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.timer.cancel()
            _fail(one.future, error)


def _fail(future: Future[Any], error: Exception) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)


def _text(why: Callable[[], str]) -> str:
    try:
        return why()
    except Exception as error:  # noqa: BLE001  the wait has failed all the same
        return f"it did not happen in time, and what did cannot be shown: {error!r}"
