"""A log that a flood does not flood: of each kind of fact that strangers can cause, some in a second, then a sum."""

from __future__ import annotations

from dataclasses import fields

from coterie.broker.broker_facts import ConnectionDropped, FactsLeftOut, TransactionRefused, Trouble
from coterie.facts import Fact, Mistake

__all__ = ["PERIOD_MS", "Quiet"]

MOST = 20
PERIOD_MS = 1_000
LOUD = (ConnectionDropped, Trouble, TransactionRefused, Mistake)


class Quiet:
    def __init__(self) -> None:
        self._since_ms = 0
        self._told: dict[type[Fact], int] = {}
        self._last: dict[type[Fact], Fact] = {}
        """Of what was not told, the last of each kind."""

    @property
    def owes(self) -> bool:
        """Something was left out, and not yet said to be."""
        return bool(self._last)

    def hear(self, fact: Fact) -> list[Fact]:
        """What is to be told now."""
        if not isinstance(fact, LOUD):
            return [fact]
        sums = self.sums(fact.at_ms) if fact.at_ms - self._since_ms >= PERIOD_MS else []
        kind = type(fact)
        self._told[kind] = self._told.get(kind, 0) + 1
        if self._told[kind] <= MOST:
            return [*sums, fact]
        self._last[kind] = fact
        return sums

    def sums(self, now_ms: int) -> list[Fact]:
        """What was left out until now; from here on it is counted again."""
        left_out: list[Fact] = [
            FactsLeftOut(now_ms, "", kind.__name__, self._told[kind] - MOST, PERIOD_MS, _said(last))
            for kind, last in self._last.items()
        ]
        self._since_ms = now_ms
        self._told, self._last = {}, {}
        return left_out


def _said(fact: Fact) -> str:
    """Without its time and its group, which is nobody's."""
    return ": ".join(str(getattr(fact, field.name)) for field in fields(fact)[2:])
