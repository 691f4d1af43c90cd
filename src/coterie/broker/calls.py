"""Connections and the requests that came by them, as the node knows them; and what it wants done with them.

A connection has one request under way at a time: what stands behind it is not looked at until it is answered (C6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from coterie.apis import Api
from coterie.group.effects import Tell
from coterie.log import Change, FlushTarget, Journal, JournalTarget, PartitionLog

__all__ = [
    "Call",
    "Close",
    "Connection",
    "Do",
    "Effect",
    "Flush",
    "FlushEnded",
    "Gather",
    "Route",
    "Send",
    "Toil",
    "ToilEnded",
    "Work",
    "WorkEnded",
]


class Connection:
    """One client's stream. `link` belongs to whoever carries the bytes; the node never looks at it."""

    __slots__ = ("call", "host", "is_closed", "is_full", "link", "waiting", "waiting_bytes")

    def __init__(self, host: str, link: Any = None) -> None:
        self.host = host
        self.link = link
        self.call: Call | None = None
        """The request under way."""
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.is_full = False
        """Its client does not read what we send: nothing more is answered until it does."""
        self.is_closed = False


class Route:
    """What there is to know about an API when a request of it arrives."""

    __slots__ = ("api", "first", "handle", "header_flexible", "last", "write")

    def __init__(self, api: Api, module: ModuleType, handle: Callable[..., None]) -> None:
        self.api = api
        self.first = api.versions[0] if not api.refused else api.refused[-1] + 1
        self.last = api.versions[-1]
        self.handle = handle
        self.write: Callable[..., bytes] = module.write_response
        self.header_flexible = [api.has_flexible_response_header(version) for version in range(self.last + 1)]


class Call:
    """One request, and the token its answer is addressed to."""

    __slots__ = ("connection", "correlation_id", "route", "version")

    def __init__(self, connection: Connection, route: Route, version: int, correlation_id: int) -> None:
        self.connection = connection
        self.route = route
        self.version = version
        self.correlation_id = correlation_id


class Gather:
    """Answers of several groups to one request: when the last has come, all go out in the order asked."""

    __slots__ = ("answers", "call", "finish", "missing")

    def __init__(self, call: Call, count: int, finish: Callable[[list[Any]], Any]) -> None:
        self.call = call
        self.answers: list[Any] = [None] * count
        self.missing = count
        self.finish = finish
        """From all answers to what is answered."""

    def part(self, index: int) -> tuple[Gather, int]:
        """The token of one of them."""
        return (self, index)


# --- effects ----------------------------------------------------------------------------------------------------------


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
        try:
            self.change.run()
        except Exception as failure:  # noqa: BLE001  whatever it was, whoever waits must hear of it
            self.then.error = failure
        return self.then


@dataclass(slots=True)
class ToilEnded:
    """How it ended; None is well."""

    error: Exception | None = None


@dataclass(slots=True)
class Toil:
    """Long work in small steps, away from the loop and from the thread that flushes; then `then` is handed back."""

    steps: Iterator[None]
    then: ToilEnded
    is_wanted: bool = True
    """Whoever asked for it may change its mind."""

    def run(self, rest: Callable[[], None]) -> ToilEnded:
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


Effect = Send | Close | Flush | Work | Toil | Do | Tell
