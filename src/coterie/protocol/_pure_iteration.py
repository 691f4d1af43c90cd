"""Records handed out one by one, in plain Python: the twin of `_fast_iteration.pxi`, which does the same compiled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Self

from coterie.protocol._pure_records import Record


class RecordBuffer:
    """Unpacked records that an iteration takes one by one, without a lock and without asking the consumer.

    `take` is for one thread, `stop` for any: a record is either taken, and counted, or not taken. Here that is so
    because a list's iterator is emptied in one step.
    """

    def __init__(self) -> None:
        self._left: Iterator[Record] = iter(())
        self._not_taken: list[list[Record]] = []
        self._size = 0
        self._clock_ms: Callable[[], int] = int
        self._until_ms = 0

    def start(
        self,
        records: Sequence[Record],
        first: int,
        for_ms: int,
        clock_ms: Callable[[], int],
        is_system: bool = False,  # noqa: ARG002  the twin asks the system then, which is quicker
    ) -> None:
        """Let the records from index `first` on be taken for so long. `is_system`: the clock is the system's."""
        left = records[first:]
        self._size, self._not_taken = len(left), []
        self._clock_ms = clock_ms
        self._until_ms = clock_ms() + for_ms
        self._left = iter(left)

    @property
    def count(self) -> int:
        """The records that were taken since `start`. To be read after `stop`."""
        return self._size - sum(map(len, self._not_taken))

    def stop(self) -> None:
        """Let no more be taken. Can be called from any thread."""
        self._not_taken.append(list(self._left))

    def take(self) -> Record | None:
        """Return the next record; None if there is none, it was stopped, or the time is over."""
        return next(self._left, None) if self._clock_ms() < self._until_ms else None


class RecordIterator:
    """Iterates over a buffer; `otherwise` returns the next record when nothing can be taken from it."""

    def __init__(self, buffer: RecordBuffer, otherwise: Callable[[], Record]) -> None:
        self._buffer, self._otherwise = buffer, otherwise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        record = self._buffer.take()
        return self._otherwise() if record is None else record


class AsyncRecordIterator:
    """The same for `async for`."""

    def __init__(self, buffer: RecordBuffer, otherwise: Callable[[], Awaitable[Record]]) -> None:
        self._buffer, self._otherwise = buffer, otherwise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        record = self._buffer.take()
        return await self._otherwise() if record is None else record
