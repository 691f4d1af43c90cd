"""The effects of the cluster and its nodes, and the events of the cluster.

A driver performs effects: it sends, closes, emits facts, and runs what takes time on some thread. Work that takes time
carries the event it comes back as, `then`, which the driver hands to `Cluster.handle`. What else a driver reports to
the cluster, a timer that is due or a node that has to stop, is an event as well; it is at the end of this file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from coterie.coordinator.classic.effects import Reply
from coterie.facts import Emit
from coterie.protocol.messages import Token
from coterie.storage import (
    DiskChange,
    DurableEnds,
    FlushTarget,
    Journal,
    JournalTarget,
    LogError,
    PartitionLog,
    PreparedWrite,
)
from coterie.storage.durable_ends import TopicPartition
from coterie.storage.flush import JOURNAL_FILE, JournalEntry
from coterie.structs import DataStruct, field

if TYPE_CHECKING:
    from coterie.broker.calls import Connection

__all__ = [
    "Authenticated",
    "BackgroundTask",
    "BackgroundTaskEnded",
    "Close",
    "Computation",
    "DeleteFiles",
    "Effect",
    "Effects",
    "Flush",
    "FlushDue",
    "FlushEnded",
    "MoveGroups",
    "MovePartition",
    "Ready",
    "Send",
    "StartNode",
    "Starting",
    "StopNode",
    "Stopping",
    "TimersDue",
    "WallClockSet",
    "Work",
    "WorkEnded",
]


class Send(DataStruct):
    connection: Connection
    data: bytes | Sequence[bytes | memoryview]


class Close(DataStruct):
    connection: Connection
    why: str
    """The reason, for the log; empty if it was logged before."""


class Authenticated(DataStruct):
    """The connection's client is authenticated: it counts as authenticated now, and may send large requests."""

    connection: Connection


class Ready(DataStruct):
    """The connection's request is answered, and another waits. `BrokerNode.go_on` handles it after the answer."""

    connection: Connection


class FlushEnded(DataStruct):
    """The flush has ended. `results` has the error of each log, or None."""

    results: list[tuple[PartitionLog, FlushTarget | JournalTarget, Exception | None]] = field(default_factory=list)
    journal_is_empty: bool = False
    """All that it had is in the segments."""


class Flush(DataStruct):
    """Make these durable, away from the loop; then hand `then` back."""

    targets: list[tuple[PartitionLog, FlushTarget]]
    then: FlushEnded
    journal: Journal | None = None
    small: list[tuple[PartitionLog, JournalTarget]] = field(default_factory=list)
    """The logs whose batches are written to the journal, all at once."""
    empties_journal: bool = False
    """The journal is emptied when all of `targets` are synced."""
    ends: DurableEnds | None = None
    """The file that records how far each log is durable."""

    def run(self) -> FlushEnded:
        """Make the logs durable, on any thread. If one log fails, the others are made durable all the same."""
        results = self.then.results
        if self.small:
            error = self._write_journal()
            results += [(log, target, error) for log, target in self.small]
        for log, target in self.targets:
            results.append((log, target, _failure_of(target.run)))
        if self.empties_journal and self.journal is not None and not any(error for _, _, error in results):
            self.then.journal_is_empty = _failure_of(self.journal.drop) is None
        if self.ends is not None:
            self.ends.add(_ends_of((log, target) for log, target, error in results if error is None))
        return self.then

    def _write_journal(self) -> Exception | None:
        assert self.journal is not None, "small writes need a journal"
        journal = self.journal
        return _failure_of(lambda: journal.write(self._entries()))

    def _entries(self) -> list[JournalEntry]:
        return [(log.journal.key, target.batches) for log, target in self.small if log.journal is not None]

    def prepare(self) -> tuple[PreparedWrite, PreparedWrite | None] | None:
        """Return the writes of the journal and of the ends, for a `DiskWriter`; then call `ended`.

        None: it needs more than these, so `run` has to do it.
        """
        if self.targets or self.empties_journal or self.journal is None:
            return None
        if self.ends is not None and not self.ends.can_prepare:
            return None
        written = self.journal.prepare(self._entries())
        if written is None:
            return None
        return written, self.ends.prepare(_ends_of(self.small)) if self.ends is not None else None

    def ended(self, error_number: int, ends_error: int) -> FlushEnded:
        """Return what `run` returns, after the writes that were prepared."""
        assert self.journal is not None, "nothing was prepared"
        error = OSError(error_number, os.strerror(error_number), JOURNAL_FILE) if error_number else None
        self.journal.ended(error)
        if error is None and self.ends is not None:
            self.ends.ended(well=not ends_error)
        self.then.results += [(log, target, error) for log, target in self.small]
        return self.then


def _ends_of(
    flushed: Iterable[tuple[PartitionLog, FlushTarget | JournalTarget]],
) -> Iterator[tuple[TopicPartition, int]]:
    return ((log.key, target.end) for log, target in flushed if log.key is not None and log.believes_syncs)


def _failure_of(work: Callable[[], None]) -> Exception | None:
    try:
        work()
    except Exception as failure:  # noqa: BLE001  whatever it was, those who wait must hear of it
        return failure
    return None


class WorkEnded(DataStruct):
    """The change has ended; `error` is None if it succeeded."""

    error: Exception | None = None


class Work(DataStruct):
    """Make a change of the data directory, away from the loop and after what was asked for before.

    Flushes and changes are done by one thread in the order in which they were asked for.
    """

    change: DiskChange[Any]
    follow: Callable[[Any, int], Effects]
    """Takes what the change returned, or the `LogError` that prevented it, and the time; may ask for more work."""
    then: WorkEnded = field(default_factory=WorkEnded)

    def run(self) -> WorkEnded:
        self.then.error = _failure_of(self.change.run)
        return self.then

    def outcome(self) -> Any:
        """Put the change into effect and return what it gave, or its `LogError`."""
        error = self.then.error
        if error is None:
            return self.change.done()
        if isinstance(error, LogError):
            return error
        raise error


class BackgroundTaskEnded(DataStruct):
    """The task has ended; `error` is None if it succeeded."""

    error: Exception | None = None


class BackgroundTask(DataStruct):
    """Long work in small steps, away from the loop and from the thread that flushes; then `then` is handed back."""

    steps: Iterator[None]
    then: BackgroundTaskEnded
    is_wanted: bool = True
    """Cleared when the result is not needed any more."""

    def run(self, rest: Callable[[], None]) -> BackgroundTaskEnded:
        """Do all steps, and call `rest` between them; any thread may call this."""
        try:
            for _ in self.steps:
                if not self.is_wanted:
                    break
                rest()
        except Exception as failure:  # noqa: BLE001  whatever it was, those who wait must hear of it
            self.then.error = failure
        finally:
            self.steps = iter(())  # what it held is let go, here: to close files takes time
        return self.then


class Computation(DataStruct):
    """Run code of a user, or something long, on a thread of its own; what it returns is handed back as an event."""

    run: Callable[[], Any]
    timeout_ms: int
    """The result is dropped if it comes later than this."""


class DeleteFiles(DataStruct):
    """Delete files that are not needed any more, away from the loop; there is no result."""

    what: str
    work: Callable[[], None]


Effect = Send | Close | Authenticated | Ready | Flush | Work | BackgroundTask | Computation | DeleteFiles | Emit | Reply
Effects = list[Effect]


# --- what a driver reports --------------------------------------------------------------------------------------------


class Starting(DataStruct):
    """The data directory is open: read the groups back, and set the timers of maintenance."""


class Stopping(DataStruct):
    """Answer all waiting requests: groups look for another coordinator, fetches get the records that there are."""


class TimersDue(DataStruct):
    """The time that `Cluster.next_ms` named has come."""


class FlushDue(DataStruct):
    """A driver that gathers writes has gathered enough."""


class WallClockSet(DataStruct):
    by_ms: int


class StopNode(DataStruct):
    """Move the node's partitions to the others. It answers that it leads nothing until its connections are closed.

    This event and the three below are answered with a `Reply`: None, or the `CoterieError` that prevented it.
    """

    node_id: int
    token: Token


class StartNode(DataStruct):
    """Move the node's partitions back to it."""

    node_id: int
    token: Token


class MovePartition(DataStruct):
    topic: str
    partition: int
    node_id: int
    token: Token


class MoveGroups(DataStruct):
    """Move all groups of this group's partition of `__consumer_offsets`, which is created if need be."""

    group_id: str
    node_id: int
    token: Token
