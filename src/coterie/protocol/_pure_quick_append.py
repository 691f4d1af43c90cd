"""A record appended without the producer's lock: the twin of `_fast_quick_append.pxi`.

Compiled, an append is one step that no other thread can interrupt, and so needs no lock. In Python it is not one step:
here `QuickAppend` is never open, and every record is appended under the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coterie.protocol._pure_records import RecordWriter


class SentRecord:
    """A record in a batch of a producer: the batch, its index there, its timestamp, and the producer's lock."""

    def __init__(self, batch: Any, index: int, timestamp: int, lock: Any) -> None:
        self._batch, self._index, self._timestamp, self._lock = batch, index, timestamp, lock


class QuickAppend:
    """The batch that records without a key go to at the moment, while nothing but an append may happen to it."""

    weight = 0
    """The bytes that were appended since `start`, as `buffer.memory` counts them. To be read after `stop`."""

    def __init__(
        self, kind: type[SentRecord], lock: Any, overhead: int, wall_ms: Callable[[], int] | None = None
    ) -> None:
        """`kind` is what `append` returns; `overhead` is what a record counts besides its value.

        Records get the time of `wall_ms`, or of the system.
        """

    def start(self, topic: str, batch: object, writer: RecordWriter, room: int) -> None:
        """Let records of the topic be appended to the batch, as long as their weight stays below `room`."""

    def stop(self) -> None:
        """Let no more be appended. Can be called from any thread."""

    def append(self, topic: object, value: object) -> Any:
        """Append a record of that value, and return it; None if the caller must do it, under the lock."""
