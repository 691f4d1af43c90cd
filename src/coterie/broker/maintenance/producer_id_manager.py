"""Gives out producer ids. When a block is used up, the next one is written to the disk first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from coterie.broker.broker_effects import Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.maintenance.producer_ids import ProducerIds
from coterie.storage import LogError

__all__ = ["ProducerIdManager"]

Given = Callable[[int | None, int], Effects]
"""Called once, with the time: a producer id, or None if the disk has no room for the next block."""


@dataclass(frozen=True, slots=True, eq=False)
class ProducerIdManager:
    producer_ids: ProducerIds
    changes: Changes
    reporter: Reporter

    def generate(self, call: Call | None, done: Given, now_ms: int) -> Effects:
        """Give `done` a producer id that was never given out. `call` is the request it is for, if there is one."""
        producer_id = self.producer_ids.next()
        if producer_id is not None:
            return done(producer_id, now_ms)
        self.changes.ask(call, partial(self._another_block, done))
        return []

    def _another_block(self, done: Given, now_ms: int) -> Effects:
        def then(outcome: LogError | None, at_ms: int) -> Effects:
            if outcome is not None:
                return [self.reporter.trouble(str(outcome), at_ms), *done(None, at_ms)]
            producer_id = self.producer_ids.next()
            assert producer_id is not None, "a block has a thousand"
            return done(producer_id, at_ms)

        if self.producer_ids.is_empty:
            return [Work(self.producer_ids.another_block(), then)]
        return then(None, now_ms)  # an earlier request has asked for a block
