"""How far a log is durable, and what must be synced for it to be more so.

After a sync that failed, the system may have dropped the pages and will not say so again. So nothing more is called
durable, until the log was cut back to what is.

Syncing is slow and done elsewhere: what there is to sync is captured in one step, synced on another thread while
appends go on, and reported back.
"""

from __future__ import annotations

from collections.abc import Callable

from coterie.log.errors import LogWriteError
from coterie.log.files import Files, Sync, parent_of

__all__ = ["FlushTarget", "Flushing"]

_MAX_WAITING = 32
"""Sealed files that wait for a flush at most: in a log that nobody flushes, they are synced when it rolls."""


class FlushTarget:
    """What must be synced for the log to be durable up to `end`. `run` may be called on any thread, once."""

    __slots__ = ("_syncs", "end")

    def __init__(self, syncs: list[Sync], end: int) -> None:
        self._syncs = syncs
        self.end = end

    def run(self) -> None:
        """In order of the log, so that what is durable is always a beginning of it."""
        try:
            for sync in self._syncs:
                sync.run()
        except OSError as error:
            raise LogWriteError.of("the disk did not take what was written", error) from error


class _Refused:
    """A sync that could not even be prepared."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    def run(self) -> None:
        raise self._error


class Flushing:
    """Of one log at `path`; `is_new` if its directory has just been made, and its name is not durable either."""

    def __init__(self, files: Files, path: str, *, is_new: bool) -> None:
        self._files = files
        self._path = path
        self._waiting: list[Sync] = []
        self._has_new_names = is_new
        self._under_way: FlushTarget | None = None
        self._has_failed = False
        self.durable_end = 0

    def rolled(self, sealed: list[Sync]) -> None:
        """A segment was sealed and another made."""
        self._waiting += sealed
        self._has_new_names = True
        if len(self._waiting) > _MAX_WAITING:
            waiting, self._waiting = self._waiting, []
            self._has_failed, had_failed = True, self._has_failed
            for sync in waiting:
                sync.run()
            self._has_failed = had_failed

    def target(self, active: Callable[[], Sync], log_end: int) -> FlushTarget:
        """`active` makes the sync of the segment that is being written."""
        if self._under_way is not None:
            raise RuntimeError("a flush of this log is under way: call flushed or flush_failed first")
        try:
            syncs = [*self._waiting, active()]
            if self._has_new_names:
                syncs += self._files.directory_later(self._path), self._files.directory_later(parent_of(self._path))
        except OSError as error:  # no descriptor left to sync with: a flush that fails like any other
            syncs = [_Refused(error)]
        self._waiting = []
        self._has_new_names = False
        self._under_way = FlushTarget(syncs, log_end)
        return self._under_way

    def is_done(self, log_end: int) -> bool:
        return self.durable_end == log_end and not self._waiting

    def ended(self, target: FlushTarget, *, well: bool) -> None:
        assert target is self._under_way, "a flush that this log did not ask for"
        self._under_way = None
        # After a failure a later sync may end well and still not have what was lost: then nothing is believed any more.
        self._has_failed |= not well
        if not self._has_failed:
            self.durable_end = max(self.durable_end, target.end)

    def sync_names(self) -> None:
        """The names of the files, as their content, survive the next crash."""
        self._files.sync_directory(self._path)
        self._files.sync_directory(parent_of(self._path))
        self._has_new_names = False

    def start_over(self, durable_end: int, *, names_are_durable: bool = True) -> None:
        """The log was opened, or opened anew, and all of it is on disk.

        After a crash the names of its files may not be: the last owner may not have come to it.
        """
        self.forget()
        self._has_new_names |= not names_are_durable
        self._has_failed = False
        self.durable_end = durable_end

    def forget(self) -> None:
        """The log lets go of its files."""
        self._waiting = []
        self._under_way = None
