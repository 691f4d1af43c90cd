"""What the cluster and its nodes want done: sent, closed, told, and everything that takes time.

What takes time carries the event it comes back as, `then`: a driver runs it on some thread, and hands that back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.broker.calls import Connection
from coterie.coordinator.classic.effects import Tell
from coterie.storage import Change, DurableEnds, FlushTarget, Journal, JournalTarget, PartitionLog

__all__ = [
    "BackgroundTask",
    "BackgroundTaskEnded",
    "Close",
    "Do",
    "Effect",
    "Flush",
    "FlushEnded",
    "Send",
    "Work",
    "WorkEnded",
]


@dataclass(slots=True)
class Send:
    connection: Connection
    data: bytes | Sequence[bytes | memoryview]


@dataclass(slots=True)
class Close:
    connection: Connection
    why: str


@dataclass(slots=True)
class FlushEnded:
    """How the flush of each log ended; None is well."""

    results: list[tuple[PartitionLog, FlushTarget | JournalTarget, Exception | None]] = field(default_factory=list)
    journal_is_empty: bool = False
    """All that it had is in the segments."""


@dataclass(slots=True)
class Flush:
    """Make these durable, away from the loop; then hand `then` back."""

    targets: list[tuple[PartitionLog, FlushTarget]]
    then: FlushEnded
    journal: Journal | None = None
    small: list[tuple[PartitionLog, JournalTarget]] = field(default_factory=list)
    """What is written to the journal, all at once."""
    empties_journal: bool = False
    """When all of `targets` are synced, nothing in the journal is needed any more."""
    ends: DurableEnds | None = None
    """The file that records how far each log is durable."""

    def run(self) -> FlushEnded:
        """On any thread. A log that fails does not keep the others from being made durable."""
        results = self.then.results
        if self.small:
            error = self._write_journal()
            results += [(log, target, error) for log, target in self.small]
        for log, target in self.targets:
            results.append((log, target, _failure_of(target.run)))
        if self.empties_journal and self.journal is not None and not any(error for _, _, error in results):
            self.then.journal_is_empty = _failure_of(self.journal.drop) is None
        if self.ends is not None:
            self.ends.add(
                (log.key, target.end)
                for log, target, error in results
                if error is None and log.key is not None and log.believes_syncs
            )
        return self.then

    def _write_journal(self) -> Exception | None:
        assert self.journal is not None, "small writes need a journal"
        journal = self.journal
        entries = [(log.journal.key, target.batches) for log, target in self.small if log.journal is not None]
        return _failure_of(lambda: journal.write(entries))


def _failure_of(work: Callable[[], None]) -> Exception | None:
    try:
        work()
    except Exception as failure:  # noqa: BLE001  whatever it was, whoever waits must hear of it
        return failure
    return None


@dataclass(slots=True)
class WorkEnded:
    """How it ended; None is well."""

    error: Exception | None = None


@dataclass(slots=True)
class Work:
    """Make a change of the data directory, away from the loop and after what was asked for before; `then` comes back.

    Flushes and changes are done by one thread in the order in which they were asked for.
    """

    change: Change[Any]
    then: WorkEnded

    def run(self) -> WorkEnded:
        self.then.error = _failure_of(self.change.run)
        return self.then


@dataclass(slots=True)
class BackgroundTaskEnded:
    """How it ended; None is well."""

    error: Exception | None = None


@dataclass(slots=True)
class BackgroundTask:
    """Long work in small steps, away from the loop and from the thread that flushes; then `then` is handed back."""

    steps: Iterator[None]
    then: BackgroundTaskEnded
    is_wanted: bool = True
    """Whoever asked for it may change its mind."""

    def run(self, rest: Callable[[], None]) -> BackgroundTaskEnded:
        """On any thread; `rest` is called between steps."""
        try:
            for _ in self.steps:
                if not self.is_wanted:
                    break
                rest()
        except Exception as failure:  # noqa: BLE001  whatever it was, whoever waits must hear of it
            self.then.error = failure
        finally:
            self.steps = iter(())  # what it held is let go, here: to close files takes time
        return self.then


@dataclass(slots=True)
class Do:
    """Work nobody waits for, such as freeing the space of deleted files: away from the loop."""

    what: str
    work: Callable[[], None]


Effect = Send | Close | Flush | Work | BackgroundTask | Do | Tell
