"""Group commit: everything written while one flush is under way is made durable by the next, together.

With `sync` a waiter is called after the disk has it; otherwise at once, and the system writes when it likes.

The journal is the head of the logs: logs with little data in a flush, as commits of many groups are, go to it with one
write and one sync for all. Their segments get the data later, in large pieces. A log with much data is synced in its
segments. When the journal is long, all logs that it has are synced in their segments, and it is emptied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from coterie.broker.broker_effects import Effects, Flush, FlushEnded
from coterie.broker.broker_facts import Reporter
from coterie.coordinator.runtime import Timers
from coterie.errors import ErrorCode
from coterie.storage import DurableEnds, FlushTarget, Journal, JournalTarget, PartitionLog
from coterie.structs import DataStruct

__all__ = ["Flusher", "Waiter", "WriteOutDue"]

WRITE_OUT_AFTER_MS = 1_000
"""Then segments have what only the journal has: programs that read the data directory see it."""
WRITTEN_OUT_AT_ONCE = 256
"""Logs in one turn of the event loop."""
LONG_JOURNAL = 32 << 20
"""Bytes: then the segments are synced. With it the syncs are few, and reading it after a crash takes well below 1 s."""

Waiter = Callable[[ErrorCode, int], Effects]
"""Called once, with the time: NONE when it is durable, or why it is lost."""


class WriteOutDue(DataStruct):
    """Segments are to get what only the journal has."""


class Flusher:
    def __init__(
        self,
        *,
        sync: bool,
        reporter: Reporter,
        timers: Timers[object],
        journal: Journal | None = None,
        ends: DurableEnds | None = None,
    ) -> None:
        self.sync = sync
        self._ends = ends
        self._journal = journal
        self._journaled: dict[PartitionLog, None] = {}
        """The logs whose last batches the journal has and the segments may not have."""
        self._unwritten: dict[PartitionLog, None] = {}
        """The logs that may have data that is in the journal and not in a segment's file."""
        self._timers = timers
        self.most_journaled = 4_096
        """The number of journaled logs above which they are synced in place and a new journal is started."""
        self._journal_is_due = False
        self._reporter = reporter
        self._writes: list[Callable[[int], Effects]] = []
        self.waiting: dict[PartitionLog, list[Waiter]] = {}
        self._under_way: dict[PartitionLog, list[Waiter]] = {}
        self._is_busy = False
        """A flush is under way; also if all its logs were deleted meanwhile."""
        self.settled: deque[Callable[[int], Effects]] = deque()
        """Waiters that need not wait: called at the end of the event, by `settle`."""
        self.grown: dict[PartitionLog, None] = {}
        """Logs whose high watermark has risen since `fetches` looked at them."""

    def high_watermark(self, log: PartitionLog) -> int:
        """Return the high watermark: what consumers may read cannot be lost any more."""
        return log.durable_end if self.sync else log.log_end_offset

    def written(self, log: PartitionLog, waiter: Waiter | None) -> None:
        """Have what was appended to `log` flushed, and call `waiter` when it is durable."""
        if self.sync:
            waiters = self.waiting.setdefault(log, [])
            if waiter is not None:
                waiters.append(waiter)
            return
        self._rose(log)
        if waiter is not None:
            self.settled.append(partial(self._call, log, waiter, ErrorCode.NONE))
        if log.is_sealing:  # as in Kafka a segment is flushed when the next one begins
            self.waiting.setdefault(log, [])

    def _rose(self, log: PartitionLog) -> None:
        """The high watermark of a log has risen."""
        log.note_high_watermark(self.high_watermark(log))
        self.grown[log] = None

    def before_next(self, write: Callable[[int], Effects]) -> None:
        """Call `write` when the next flush begins, which makes durable what it writes."""
        self._writes.append(write)

    def settle(self, now_ms: int) -> Effects:
        effects: Effects = []
        while self.settled:  # what is called may write more
            effects += self.settled.popleft()(now_ms)
        return effects

    def _write(self, write: Callable[[int], Effects], now_ms: int) -> Effects:
        try:
            return write(now_ms)
        except Exception:  # noqa: BLE001
            return [self._reporter.mistake("what was to be written before a flush", now_ms)]

    def _call(self, log: PartitionLog, waiter: Waiter, error: ErrorCode, now_ms: int) -> Effects:
        """One waiter's exception must not cost the others their answers."""
        try:
            return waiter(error, now_ms)
        except Exception:  # noqa: BLE001
            return [self._reporter.mistake(f"what follows a flush of {log.path}", now_ms)]

    def forget(self, log: PartitionLog, now_ms: int) -> Effects:
        """The log is deleted: all that waits for it fails."""
        self._journaled.pop(log, None)
        self._unwritten.pop(log, None)
        effects: Effects = []
        for waiters in (self.waiting.pop(log, []), self._under_way.pop(log, [])):
            for waiter in waiters:
                effects += self._call(log, waiter, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now_ms)
        return effects

    def empty_journal(self) -> None:
        """Sync what the journal has with the next flush, if it has anything."""
        if self._journaled:
            self._journal_is_due = True

    def write_out(self, now_ms: int) -> Effects:
        """Write what only the journal has to the segments' files, without a sync."""
        for log in list(self._unwritten)[:WRITTEN_OUT_AT_ONCE]:
            del self._unwritten[log]
            with suppress(OSError):  # it is durable in the journal, and written before the journal is emptied
                log.write_out()
        if self._unwritten:
            self._timers.arm("write out", now_ms + 1, WriteOutDue())
        return []

    @property
    def can_start(self) -> bool:
        """Return whether there is something to write, or to flush while nothing is being flushed.

        Without `sync`, writes do not wait for a flush that is under way.
        """
        if self._is_busy:
            return bool(self._writes) and not self.sync
        return bool(self._writes or self.waiting or self._journal_is_due)

    def start(self, now_ms: int) -> tuple[Effects, Flush | None]:
        """Return the next flush, unless one is under way or there is nothing to flush, and what happened before it."""
        effects: Effects = []
        targets: list[tuple[PartitionLog, FlushTarget]] = []
        small: list[tuple[PartitionLog, JournalTarget]] = []
        empties = False
        while self.can_start:
            effects += self._write_all(now_ms)
            if self._is_busy:
                break
            waiting, self.waiting = self.waiting, {}
            empties = self._is_busy = self._empties_journal()
            if empties:
                for log in self._journaled:
                    waiting.setdefault(log, [])
            journals = not empties and self._journal is not None and self._journal.is_sound
            for log, waiters in waiting.items():
                if not log.is_in_order:  # repairing it may end before this flush, and leaves nothing to flush
                    for waiter in waiters:
                        effects += self._call(log, waiter, ErrorCode.KAFKA_STORAGE_ERROR, now_ms)
                    continue
                if journals and log.is_small_flush:
                    small.append((log, log.journal_target()))
                    self._journaled[log] = None
                    if not self._unwritten:
                        self._timers.arm("write out", now_ms + WRITE_OUT_AFTER_MS, WriteOutDue())
                    self._unwritten[log] = None
                elif (target := log.flush_target(in_place=log in self._journaled and empties)) is not None:
                    targets.append((log, target))
                else:
                    for waiter in waiters:  # of a duplicate: what it repeats is durable already
                        effects += self._call(log, waiter, ErrorCode.NONE, now_ms)
                    continue
                self._under_way[log] = waiters
                self._is_busy = True
        if not (targets or small or empties):
            return effects, None
        return effects, Flush(targets, FlushEnded(), self._journal, small, empties, self._ends)

    def _write_all(self, now_ms: int) -> Effects:
        writes, self._writes = self._writes, []
        return [effect for write in writes for effect in self._write(write, now_ms)]

    def _empties_journal(self) -> bool:
        journal, is_due = self._journal, self._journal_is_due
        self._journal_is_due = False
        if journal is None:
            return False
        is_full = journal.size > LONG_JOURNAL or len(self._journaled) > self.most_journaled
        wanted = is_due or is_full or not journal.is_sound
        # A log that is to be repaired is repaired with what the journal has.
        return wanted and all(log.is_in_order for log in self._journaled)

    def ended(self, event: FlushEnded, now_ms: int) -> tuple[Effects, list[tuple[PartitionLog, Exception]]]:
        """Call the waiters. Return what follows, and the logs that failed.

        A log that failed is cut back, so what was appended to it meanwhile is lost as well.
        """
        self._is_busy = False
        if event.journal_is_empty:
            self._journaled.clear()
        effects: Effects = []
        failed: list[tuple[PartitionLog, Exception]] = []
        for log, target, error in event.results:
            waiters = self._under_way.pop(log, None)
            if waiters is None:
                continue  # deleted meanwhile
            if error is None:
                log.flushed(target)  # advances the high watermark
                self._rose(log)
            elif self.sync:
                waiters += self.waiting.pop(log, [])
                log.flush_failed(target)
            else:
                log.flush_refused(target)
            if error is not None:
                failed.append((log, error))
            code = ErrorCode.NONE if error is None else ErrorCode.KAFKA_STORAGE_ERROR
            for waiter in waiters:
                effects += self._call(log, waiter, code, now_ms)
        return effects, failed
