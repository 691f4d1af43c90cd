"""Facts go to listeners, which cannot stop the broker. A flood of facts is cut to some of them and a sum."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from traceback import format_exc

from coterie.broker.broker_facts import (
    AuthenticationFailed,
    AuthorizationDenied,
    ConnectionDropped,
    FactsLeftOut,
    Trouble,
)
from coterie.broker.io.clock import wall_ms
from coterie.facts import Fact, Mistake
from coterie.structs import field_names

__all__ = ["PERIOD_MS", "FactListeners", "LogRateLimit"]


# Facts of a kind that any client can cause are limited to some in a second, and then a sum.

MOST = 20
PERIOD_MS = 1_000
LOUD = (AuthenticationFailed, AuthorizationDenied, ConnectionDropped, Trouble, Mistake)
_LOUD = frozenset(LOUD)


class LogRateLimit:
    def __init__(self) -> None:
        self._since_ms = 0
        self._counts: dict[type[Fact], int] = {}
        self._last: dict[type[Fact], Fact] = {}
        """The last fact of each kind that was left out."""

    @property
    def owes(self) -> bool:
        """Return whether facts were left out that no sum has counted yet."""
        return bool(self._last)

    def hear(self, fact: Fact) -> list[Fact]:
        """Take a fact, and return the facts to pass on now."""
        if not isinstance(fact, LOUD):
            return [fact]
        sums = self.sums(fact.at_ms) if fact.at_ms - self._since_ms >= PERIOD_MS else []
        kind = type(fact)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= MOST:
            return [*sums, fact]
        self._last[kind] = fact
        return sums

    def sums(self, now_ms: int) -> list[Fact]:
        """Return the sums of what was left out, and start to count again."""
        left_out: list[Fact] = [
            FactsLeftOut(now_ms, "", kind.__name__, self._counts[kind] - MOST, PERIOD_MS, _said(last))
            for kind, last in self._last.items()
        ]
        self._since_ms = now_ms
        self._counts, self._last = {}, {}
        return left_out


def _said(fact: Fact) -> str:
    """Return the fact as text, without its time and its group, which is empty."""
    return ": ".join(str(getattr(fact, name)) for name in field_names(fact)[2:])


class FactListeners:
    def __init__(self, listener: Callable[[Fact], None]) -> None:
        self._listener = listener
        self._has_complained = False
        self._rate_limit = LogRateLimit()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def emit(self, fact: Fact) -> None:
        if type(fact) not in _LOUD:  # as nearly all
            try:
                self._listener(fact)
            except Exception:  # noqa: BLE001
                self._complain()
            return
        for each in self._rate_limit.hear(fact):
            self._emit(each)
        if self._rate_limit.owes and self._timer is None:
            self._timer = self._loop.call_later(PERIOD_MS / 1_000, self._emit_sums)

    def _emit_sums(self) -> None:
        self._timer = None
        for each in self._rate_limit.sums(wall_ms()):
            self._emit(each)

    def _emit(self, fact: Fact) -> None:
        try:
            self._listener(fact)
        except Exception:  # noqa: BLE001
            self._complain()

    def _complain(self) -> None:
        """Say once that the listener has failed."""
        if not self._has_complained:
            self._has_complained = True
            with suppress(Exception):
                sys.stderr.write(f"coterie: facts cannot be emitted any more, and are lost:\n{format_exc()}")

    def close(self) -> None:
        """Pass on the sums that are still missing."""
        if self._timer is not None:
            self._timer.cancel()
        self._emit_sums()
