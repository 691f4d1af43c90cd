"""Changes of the data directory, one after the other: topics made, altered and deleted, records deleted, checkpoints.

Each is judged when the one before has ended, so it sees things as they are: the second of two that create a topic
finds that it exists. What it wants of the disk is an effect, and what follows is done when that comes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from coterie.broker.broker_effects import Work, WorkEnded
from coterie.broker.calls import Call
from coterie.storage import Change, LogError

__all__ = ["Changes", "Judge", "Step"]


class Step(NamedTuple):
    change: Change[Any]
    then: Callable[[Any, int], Step | None]
    """Told what the change gave, or the `LogError` that kept it from happening, and the time; may ask for another."""


Judge = Callable[[int], Step | None]
"""Asked with the time when its turn has come; None if the disk is not needed."""


class Changes:
    def __init__(self, mistaken: Callable[[Call | None], None]) -> None:
        """`mistaken` is told of an exception of ours, from within, and who waits for what it kept from happening."""
        self._mistaken = mistaken
        self.waiting: deque[tuple[Call | None, Judge]] = deque()
        self._under_way: tuple[Call | None, Step] | None = None
        self.is_closing = False
        """The broker is being stopped: what takes long need not be begun any more."""

    def ask(self, call: Call | None, judge: Judge) -> None:
        """`call` is the request it is about, if there is one."""
        self.waiting.append((call, judge))

    @property
    def can_start(self) -> bool:
        return self._under_way is None

    def start(self, now_ms: int) -> Work | None:
        """The next one that needs the disk, unless one is under way."""
        while self.waiting and self._under_way is None:
            call, judge = self.waiting.popleft()
            work = self._go_on(call, partial(judge, now_ms))
            if work is not None:
                return work
        return None

    def ended(self, event: WorkEnded, now_ms: int) -> Work | None:
        """The next step of the change that was under way, if it has one."""
        assert self._under_way is not None, "a change that nobody asked for"
        call, step = self._under_way
        self._under_way = None
        return self._go_on(call, lambda: step.then(_outcome(step.change, event), now_ms))

    def _go_on(self, call: Call | None, decide: Callable[[], Step | None]) -> Work | None:
        try:
            step = decide()
        except Exception:  # noqa: BLE001
            self._mistaken(call)
            return None
        if step is None:
            return None
        self._under_way = call, step
        return Work(step.change, WorkEnded())


def _outcome(change: Change[Any], event: WorkEnded) -> Any:
    if event.error is None:
        return change.done()
    if isinstance(event.error, LogError):
        return event.error
    raise event.error
