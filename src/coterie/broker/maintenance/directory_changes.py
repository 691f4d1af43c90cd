"""Changes of the data directory, one after the other: topics made, altered and deleted, records deleted, checkpoints.

Each is judged when the one before has ended, so it sees things as they are: the second of two that create a topic
finds that it exists. What it needs of the disk is a `Work`, and what follows is done when that comes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from coterie.broker.broker_effects import Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Gather, Responses, close

__all__ = ["Changes", "Judge"]

Judge = Callable[[int], Effects]
"""Called with the time when its turn has come. If it needs the disk, one of its effects is a `Work`."""


class Changes:
    def __init__(self, reporter: Reporter, responses: Responses) -> None:
        self._reporter = reporter
        self._responses = responses
        self.waiting: deque[tuple[Call | None, Judge]] = deque()
        self._under_way: tuple[Call | None, Work] | None = None
        self.is_closing = False
        """The broker is being stopped: what takes long need not be begun any more."""

    def ask(self, call: Call | None, judge: Judge) -> None:
        """Queue a change. `call` is the request it is for, if there is one."""
        self.waiting.append((call, judge))

    def ask_each(
        self,
        call: Call,
        asked: Sequence[Any],
        change: Callable[[Any, Callable[[Any, int], Effects], int], Effects],
        finish: Callable[[list[Any], int], tuple[Any, Effects]],
        now_ms: int,
    ) -> Effects:
        """Queue a change for each that was asked for. `change` gives its part of the answer to a callable.

        `finish` makes the answer of all parts, in the order asked, and what else is to be done before it is sent.
        """

        def answer(parts: list[Any], at_ms: int) -> Effects:
            reply, effects = finish(parts, at_ms)
            return [*effects, *self._responses.answer(call, reply, at_ms)]

        if not asked:
            return answer([], now_ms)
        gather = Gather(call, len(asked), answer)
        for index, each in enumerate(asked):
            self.ask(call, partial(change, each, partial(gather.put, index)))
        return []

    @property
    def can_start(self) -> bool:
        return bool(self.waiting) and self._under_way is None

    def start(self, now_ms: int) -> Effects:
        """Decide the changes that wait, one after the other, until one needs the disk."""
        effects: Effects = []
        while self.waiting and self._under_way is None:
            call, judge = self.waiting.popleft()
            effects += self._go_on(call, partial(judge, now_ms), now_ms)
        return effects

    def ended(self, now_ms: int) -> Effects:
        """The work that was under way has ended; it may ask for more."""
        assert self._under_way is not None, "a change that nobody asked for"
        call, work = self._under_way
        self._under_way = None
        return self._go_on(call, lambda: work.follow(work.outcome(), now_ms), now_ms)

    def _go_on(self, call: Call | None, decide: Callable[[], Effects], now_ms: int) -> Effects:
        try:
            effects = decide()
        except Exception:  # noqa: BLE001
            mistake = self._reporter.mistake("a change of the data directory", now_ms)
            return [mistake] if call is None else [mistake, *close(call.connection, "a mistake of the broker's own")]
        for effect in effects:
            if type(effect) is Work:
                assert self._under_way is None, "one work at a time"
                self._under_way = call, effect
        return effects
