"""Group commit: everything written while one flush is under way is made durable by the next, together.

With `sync` whoever waits is told after the disk has it; otherwise at once, and the system writes when it likes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from coterie.broker.calls import Flush, FlushEnded
from coterie.errors import ErrorCode
from coterie.log import PartitionLog

__all__ = ["Flusher", "Waiter"]

Waiter = Callable[[ErrorCode, int], None]
"""Told once, with the time: NONE when it is durable, or why it is lost."""


class Flusher:
    def __init__(self, *, sync: bool, mistaken: Callable[[str], None]) -> None:
        """`mistaken` is told of an exception of ours, from within: one who waited must not cost the others."""
        self.sync = sync
        self._mistaken = mistaken
        self.waiting: dict[PartitionLog, list[Waiter]] = {}
        self._under_way: dict[PartitionLog, list[Waiter]] = {}
        self._is_busy = False
        """A flush is under way; also if all its logs were deleted meanwhile."""
        self.settled: deque[tuple[PartitionLog, Waiter]] = deque()
        """Who need not wait, and is told when what is being done has been done: not from within, which may be deep."""

    def end_of(self, log: PartitionLog) -> int:
        """The high watermark: what may be shown to consumers cannot be lost any more."""
        return log.durable_end if self.sync else log.log_end

    def written(self, log: PartitionLog, waiter: Waiter | None) -> None:
        """Something was appended to `log`; `waiter` wants to know when it is safe."""
        if self.sync:
            waiters = self.waiting.setdefault(log, [])
            if waiter is not None:
                waiters.append(waiter)
            return
        if waiter is not None:
            self.settled.append((log, waiter))
        if log.is_sealing:  # as in Kafka a segment is flushed when the next one begins
            self.waiting.setdefault(log, [])

    def settle(self, now_ms: int) -> None:
        while self.settled:  # who is told may write more
            log, waiter = self.settled.popleft()
            self._tell(log, waiter, ErrorCode.NONE, now_ms)

    def _tell(self, log: PartitionLog, waiter: Waiter, error: ErrorCode, now_ms: int) -> None:
        try:
            waiter(error, now_ms)
        except Exception:  # noqa: BLE001
            self._mistaken(f"what follows a flush of {log.path}")

    def forget(self, log: PartitionLog, now_ms: int) -> None:
        """The log is deleted: nobody is told that anything in it is safe."""
        for waiters in (self.waiting.pop(log, []), self._under_way.pop(log, [])):
            for waiter in waiters:
                self._tell(log, waiter, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now_ms)

    def start(self, now_ms: int) -> Flush | None:
        """The next flush, unless one is under way or there is nothing to flush."""
        targets = []
        while self.waiting and not self._is_busy:
            waiting, self.waiting = self.waiting, {}
            for log, waiters in waiting.items():
                target = log.flush_target()
                if target is not None:
                    targets.append((log, target))
                    self._under_way[log] = waiters
                    self._is_busy = True
                    continue
                for waiter in waiters:  # of a duplicate: what it repeats is durable already
                    self._tell(log, waiter, ErrorCode.NONE, now_ms)
        return Flush(targets, FlushEnded()) if targets else None

    def ended(self, event: FlushEnded, now_ms: int) -> list[tuple[PartitionLog, Exception | None]]:
        """Tell whoever waited. A log that failed is cut back, so what was appended to it meanwhile is lost as well."""
        self._is_busy = False
        outcome: list[tuple[PartitionLog, Exception | None]] = []
        for log, target, error in event.results:
            waiters = self._under_way.pop(log, None)
            if waiters is None:
                continue  # deleted meanwhile
            if error is None:
                log.flushed(target)
            elif self.sync:
                waiters += self.waiting.pop(log, [])
                log.flush_failed(target)
            else:
                log.flush_refused(target)
            outcome.append((log, error))
            for waiter in waiters:
                self._tell(log, waiter, ErrorCode.NONE if error is None else ErrorCode.KAFKA_STORAGE_ERROR, now_ms)
        return outcome
