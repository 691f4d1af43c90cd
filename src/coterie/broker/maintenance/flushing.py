"""Group commit: everything written while one flush is under way is made durable by the next, together.

With `sync` whoever waits is told after the disk has it; otherwise at once, and the system writes when it likes.

A flush of more than a few logs with little to flush in each goes to the journal, with one sync for all: that is what
commits of many groups are. One with much data is synced in place, and so is what the journal had, before it grows too
long. Then it starts again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable

from coterie.broker.broker_effects import Flush, FlushEnded
from coterie.errors import ErrorCode
from coterie.storage import DurableEnds, FlushTarget, Journal, JournalTarget, PartitionLog

__all__ = ["Flusher", "Waiter"]

FEW = 2
"""Logs that are synced in place, each for itself: that spares writing them twice, and costs about the same."""
LONG_JOURNAL = 32 << 20
"""Bytes: then the segments are synced. With it the syncs are few, and reading it after a crash takes well below 1 s."""

Waiter = Callable[[ErrorCode, int], None]
"""Told once, with the time: NONE when it is durable, or why it is lost."""


class Flusher:
    def __init__(
        self,
        *,
        sync: bool,
        mistaken: Callable[[str], None],
        journal: Journal | None = None,
        ends: DurableEnds | None = None,
    ) -> None:
        """`mistaken` is told of an exception of ours, from within: one who waited must not cost the others."""
        self.sync = sync
        self._ends = ends
        self._journal = journal
        self._journaled: dict[PartitionLog, None] = {}
        """Whose last batches the journal has and the segments may not have."""
        self.most_journaled = 4_096
        """With more of them than this, they are synced in place and a new journal is started."""
        self._journal_is_due = False
        self._mistaken = mistaken
        self._writes: list[Callable[[int], None]] = []
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

    def before_next(self, write: Callable[[int], None], now_ms: int) -> None:
        """`write` is called when the next flush begins, which makes durable what it writes; without `sync`, now."""
        if self.sync:
            self._writes.append(write)
        else:
            write(now_ms)

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
        self._journaled.pop(log, None)
        for waiters in (self.waiting.pop(log, []), self._under_way.pop(log, [])):
            for waiter in waiters:
                self._tell(log, waiter, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now_ms)

    def empty_journal(self) -> None:
        """With the next flush, if there is anything in it."""
        if self._journaled:
            self._journal_is_due = True

    @property
    def can_start(self) -> bool:
        """There is something to flush, and nothing is being flushed."""
        return not self._is_busy and bool(self._writes or self.waiting or self._journal_is_due)

    def start(self, now_ms: int) -> Flush | None:
        """The next flush, unless one is under way or there is nothing to flush."""
        targets: list[tuple[PartitionLog, FlushTarget]] = []
        small: list[tuple[PartitionLog, JournalTarget]] = []
        empties = False
        while self.can_start:
            self._write_all(now_ms)
            waiting, self.waiting = self.waiting, {}
            empties = self._is_busy = self._empties_journal()
            if empties:
                for log in self._journaled:
                    waiting.setdefault(log, [])
            to_journal = () if empties else self._for_journal(waiting)
            for log, waiters in waiting.items():
                if not log.is_in_order:  # repairing it may end before this flush, and leaves nothing to flush
                    for waiter in waiters:
                        self._tell(log, waiter, ErrorCode.KAFKA_STORAGE_ERROR, now_ms)
                    continue
                if log in to_journal:
                    small.append((log, log.journal_target()))
                    self._journaled[log] = None
                elif (target := log.flush_target(in_place=log in self._journaled and empties)) is not None:
                    targets.append((log, target))
                else:
                    for waiter in waiters:  # of a duplicate: what it repeats is durable already
                        self._tell(log, waiter, ErrorCode.NONE, now_ms)
                    continue
                self._under_way[log] = waiters
                self._is_busy = True
        if not (targets or small or empties):
            return None
        return Flush(targets, FlushEnded(), self._journal, small, empties, self._ends)

    def _write_all(self, now_ms: int) -> None:
        writes, self._writes = self._writes, []
        for write in writes:
            try:
                write(now_ms)
            except Exception:  # noqa: BLE001
                self._mistaken("what was to be written before a flush")

    def _empties_journal(self) -> bool:
        journal, is_due = self._journal, self._journal_is_due
        self._journal_is_due = False
        if journal is None:
            return False
        is_full = journal.size > LONG_JOURNAL or len(self._journaled) > self.most_journaled
        wanted = is_due or is_full or not journal.is_sound
        # A log that is to be repaired is repaired with what the journal has.
        return wanted and all(log.is_in_order for log in self._journaled)

    def _for_journal(self, waiting: Iterable[PartitionLog]) -> Collection[PartitionLog]:
        if self._journal is None or not self._journal.is_sound:
            return ()
        small = {log for log in waiting if log.is_small_flush}
        return small if len(small) > FEW else ()

    def ended(self, event: FlushEnded, now_ms: int) -> list[tuple[PartitionLog, Exception | None]]:
        """Tell whoever waited. A log that failed is cut back, so what was appended to it meanwhile is lost as well."""
        self._is_busy = False
        if event.journal_is_empty:
            self._journaled.clear()
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
