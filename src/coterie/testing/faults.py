"""A fault that a test scripts: it has a beginning and an end, and fails the test if it never fired.

`request_faults.py` has the faults of requests, `broker_faults.py` those of the broker, and what a test calls.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from coterie.errors import CoterieError
from coterie.testing.groups import TIMEOUT_S, Waited

if TYPE_CHECKING:
    from coterie.testing.controlled_server import ControlledServer
    from coterie.testing.kafka_broker import KafkaBroker


class FaultNotFiredError(AssertionError):
    """A fault has ended and never fired, so the test did not test what it says. The text says what came instead."""


class Fault:
    """A fault: in force within its `with` block, or from `begin` to `end`."""

    def __init__(self, broker: KafkaBroker, what: str) -> None:
        self._broker = broker
        self.what = what
        """What it does, as a text."""
        self.is_in_force = False
        """Whether it has begun and not ended."""

    def __repr__(self) -> str:
        return f"<fault {self.what}: {self.count} hits{', in force' if self.is_in_force else ''}>"

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of times it has fired."""

    def begin(self) -> Self:
        """Put the fault in force.

        Returns:
            The fault itself.

        Raises:
            CoterieError: It is in force already.
        """
        if self.is_in_force:
            raise CoterieError(f"this fault is in force already: {self.what}")
        self._begin()
        self.is_in_force = True
        self._broker.note_fault(self)
        return self

    def end(self) -> None:
        """End the fault.

        Raises:
            FaultNotFiredError: It never fired.
        """
        if self.is_in_force:
            self.is_in_force = False
            self._broker.forget_fault(self)
            self._end()
            if not self.count:
                raise FaultNotFiredError(self._broker.run_on_broker(self._why_not))

    def abandon(self) -> None:
        """End the fault, whether it fired or not."""
        with suppress(FaultNotFiredError, CoterieError):
            self.end()

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.end()
        else:
            self.abandon()  # the test has failed for another reason

    async def __aenter__(self) -> Self:
        return self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def wait_hit(self, count: int = 1, *, timeout: float = TIMEOUT_S) -> int:
        """Wait until the fault has fired.

        Args:
            count: How often it has to have fired.
            timeout: How many seconds to wait at most.

        Returns:
            How often it has fired.

        Raises:
            WaitTimeoutError: It did not fire as often in time.
        """
        return self._broker.wait(*self._hit(count), timeout)

    async def wait_hit_async(self, count: int = 1, *, timeout: float = TIMEOUT_S) -> int:  # noqa: ASYNC109
        """Do what `wait_hit` does, in a test with asyncio."""
        return await self._broker.wait_async(*self._hit(count), timeout)

    def _hit(self, count: int) -> Waited[int]:
        times = "" if count == 1 else f" {count} times"
        return f"the fault {self.what} to fire{times}", lambda _: self.count if self.count >= count else None, None

    def _begin(self) -> None:
        self._broker.await_on_broker(self._begin_on)

    def _end(self) -> None:
        self._broker.await_on_broker(self._end_on)

    # --- in the broker's thread ---------------------------------------------------------------------------------------

    async def _begin_on(self, server: ControlledServer) -> None:
        raise NotImplementedError

    async def _end_on(self, server: ControlledServer) -> None:
        raise NotImplementedError

    def _why_not(self, _server: ControlledServer) -> str:
        return f"this fault never fired: {self.what}"
