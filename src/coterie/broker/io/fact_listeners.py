"""Facts go to listeners, which cannot stop the broker; of a flood, some and a sum (`log_rate_limit.py`)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from traceback import format_exc

from coterie.broker.io.clock import wall_ms
from coterie.broker.io.log_rate_limit import PERIOD_MS, Quiet
from coterie.facts import Fact

__all__ = ["Telling"]


class Telling:
    def __init__(self, listener: Callable[[Fact], None]) -> None:
        self._listener = listener
        self._has_complained = False
        self._quiet = Quiet()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, fact: Fact) -> None:
        for each in self._quiet.hear(fact):
            self._tell(each)
        if self._quiet.owes and self._timer is None:
            self._timer = self._loop.call_later(PERIOD_MS / 1_000, self._tell_sums)

    def _tell_sums(self) -> None:
        self._timer = None
        for each in self._quiet.sums(wall_ms()):
            self._tell(each)

    def _tell(self, fact: Fact) -> None:
        try:
            self._listener(fact)
        except Exception:  # noqa: BLE001
            if not self._has_complained:
                self._has_complained = True
                with suppress(Exception):
                    sys.stderr.write(f"coterie: facts cannot be told any more, and are lost:\n{format_exc()}")

    def close(self) -> None:
        """What is still owed is told now."""
        if self._timer is not None:
            self._timer.cancel()
        self._tell_sums()
