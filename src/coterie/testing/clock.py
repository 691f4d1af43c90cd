"""The clock of a broker under test: its own time goes on as usual, stands still, or jumps when the test says.

An advance is one jump. Every timer that is due then rings, in the order of its time, and what follows (a join phase,
a session, a retention) begins at the new time. A member that is connected does not expire by that: it would have sent
its heartbeats. Only time of the broker is moved; clients go by their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from coterie.broker.io.clock import Clock, wall_ms
from coterie.errors import CoterieError

if TYPE_CHECKING:
    from coterie.testing.kafka_broker import KafkaBroker

_NS = 1_000_000
_LONG_S = 3_600.0
"""While the clock stands still no timer rings. The loop is woken when the clock moves."""
_monotonic_ns = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)


class MovableClock(Clock):
    """The two times of a broker. Both are moved together, so that neither looks as if it had been set."""

    __slots__ = ("_base_ms", "_skew_ns", "_stands_at_ns", "_true_ns")

    def __init__(self, true_ns: Callable[[], int] = _monotonic_ns) -> None:
        self._true_ns = true_ns
        self._skew_ns = 0
        self._stands_at_ns: int | None = None
        self._base_ms = wall_ms() - true_ns() // _NS
        super().__init__(self._own_ns, self._own_wall_ms)

    def _own_ns(self) -> int:
        return self._true_ns() + self._skew_ns if self._stands_at_ns is None else self._stands_at_ns

    def _own_wall_ms(self) -> int:
        return self._own_ns() // _NS + self._base_ms

    @property
    def stands_still(self) -> bool:
        return self._stands_at_ns is not None

    def seconds_until(self, at_ms: int) -> float:
        seconds = super().seconds_until(at_ms)
        return _LONG_S if seconds and self._stands_at_ns is not None else seconds

    def advance(self, ms: int) -> None:
        self.now_ms()  # if the loop was away until now, that is not part of the jump
        if self._stands_at_ns is None:
            self._skew_ns += ms * _NS
        else:
            self._stands_at_ns += ms * _NS
        self._last_ms += ms

    def freeze(self) -> None:
        if self._stands_at_ns is None:
            self.now_ms()
            self._stands_at_ns = self._own_ns()

    def go_on(self) -> None:
        if self._stands_at_ns is not None:
            self._skew_ns = self._stands_at_ns - self._true_ns()
            self._stands_at_ns = None


class BrokerClock:
    """The clock of a broker under test, `broker.clock`."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker

    def __repr__(self) -> str:
        return f"<clock of {self._broker!r}: {self.now_ms} ms{', frozen' if self.is_frozen else ''}>"

    @property
    def now_ms(self) -> int:
        """The broker's time in milliseconds since 1970, which records and commits are stamped with."""
        return self._broker.run_on_broker(lambda server: server.wall_now_ms())

    @property
    def is_frozen(self) -> bool:
        """True while the clock stands still."""
        return self._broker.run_on_broker(lambda server: server.clock.stands_still)

    def advance(self, seconds: float) -> None:
        """Move the broker's time forward, and return when all that follows in the broker has happened.

        Timers that are due ring: rebalance timeouts, delayed joins, the expiry of offsets, retention, long polls. A
        member does not expire by this if its connection is open, since it would have sent heartbeats.

        Args:
            seconds: By how much; more than 0.

        Raises:
            CoterieError: The number is not more than 0.
        """
        ms = _milliseconds(seconds)
        self._broker.await_on_broker(lambda server: server.advance(ms))

    async def advance_async(self, seconds: float) -> None:
        """Do what `advance` does, in a test with asyncio.

        Args:
            seconds: By how much; more than 0.

        Raises:
            CoterieError: The number is not more than 0.
        """
        ms = _milliseconds(seconds)
        await self._broker.await_on_broker_async(lambda server: server.advance(ms))

    def silence(self, member: str, seconds: float | None = None, *, group: str | None = None) -> None:
        """Move the broker's time forward as if nothing had been heard of a member: its session expires now.

        All other members that are connected are heard of. What the member sends afterwards is answered as usual: that
        it is not a member any more.

        Args:
            member: The client id, member id or group instance id of the member.
            seconds: By how much the time is moved; without it, by the session timeout of the member.
            group: The id of its group, if members of several groups have the same client id.

        Raises:
            CoterieError: There is no such member, there are several, or it cannot expire since its join is waiting.
        """
        ms = None if seconds is None else _milliseconds(seconds)
        self._broker.await_on_broker(lambda server: server.silence(member, ms, group))

    async def silence_async(self, member: str, seconds: float | None = None, *, group: str | None = None) -> None:
        """Do what `silence` does, in a test with asyncio.

        Args:
            member: The client id, member id or group instance id of the member.
            seconds: By how much the time is moved; without it, by the session timeout of the member.
            group: The id of its group, if members of several groups have the same client id.

        Raises:
            CoterieError: There is no such member, there are several, or it cannot expire since its join is waiting.
        """
        ms = None if seconds is None else _milliseconds(seconds)
        await self._broker.await_on_broker_async(lambda server: server.silence(member, ms, group))

    def freeze(self) -> None:
        """Let the broker's time stand still, until `resume`: it moves by `advance` alone.

        Long polls of fetches are answered all the same, since clients wait for them by their own clocks.
        """
        self._broker.run_on_broker(lambda server: server.freeze())

    def resume(self) -> None:
        """Let the broker's time go on from where it stands."""
        self._broker.run_on_broker(lambda server: server.go_on())

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let the broker's time stand still within a `with` block."""
        self.freeze()
        try:
            yield
        finally:
            self.resume()


def _milliseconds(seconds: float) -> int:
    ms = round(seconds * 1_000)
    if ms <= 0:
        raise CoterieError(f"{seconds!r} seconds: the clock of a broker goes forward only, so give more than 0")
    return ms
