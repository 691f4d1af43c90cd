"""How far a log is durable, and what must be synced for it to be more so.

After a sync that failed, the system may have dropped the pages and will not say so again. So nothing more is called
durable, until the log was cut back to what is.

Syncing is slow and done elsewhere: what there is to sync is captured in one step, synced on another thread while
appends go on, and reported back. So is what a segment needs when it takes no more batches.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from coterie.protocol.buffer import Buffer
from coterie.storage.files import Files, Sync, parent_of
from coterie.storage.log_errors import LogWriteError
from coterie.storage.segment import Segment

__all__ = ["FlushTarget", "Flushing", "JournalTarget", "Sealing"]

SMALL = 64 * 1024
"""A sync in place costs as much as writing about this much once more: a log with more to flush is not for the journal.
It also bounds what is kept in memory of a log that nobody flushes."""


class Sealing:
    """A segment that takes no more batches: its indexes are to be written, and the producers as of its end.

    They spare the next opening some reading and can be made again. So a disk that refuses them harms nobody: they stay
    in memory until the next flush.
    """

    def __init__(self, segment: Segment, write_snapshot: Callable[[], None]) -> None:
        self.segment = segment
        self._write_snapshot = write_snapshot
        self.is_done = False

    def run(self) -> None:
        """On any thread."""
        self._write_snapshot()
        self.segment.write_indexes()
        self.is_done = True


class FlushTarget:
    """What must be synced for the log to be durable up to `end`. `run` may be called on any thread, once."""

    __slots__ = ("_files", "_syncs", "directories", "end", "sealings")

    def __init__(
        self, files: Files, syncs: list[Sync], sealings: list[Sealing], directories: list[str], end: int
    ) -> None:
        self._files = files
        self._syncs = syncs
        self.sealings = sealings
        self.directories = directories
        self.end = end

    def run(self) -> None:
        """In order of the log, so that what is durable is always a beginning of it."""
        try:
            for sync in self._syncs:
                sync.run()
            for sealing in self.sealings:
                with suppress(OSError):
                    sealing.run()
            for path in self.directories:
                self._files.sync_directory(path)
        except OSError as error:
            raise LogWriteError.of("the disk did not take what was written", error) from error


class JournalTarget:
    """What the journal must have for the log to be durable up to `end`."""

    __slots__ = ("batches", "end")

    def __init__(self, batches: list[Buffer], end: int) -> None:
        self.batches = batches
        self.end = end


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
        self._sealings: list[Sealing] = []
        self._has_new_names = is_new
        self._under_way: FlushTarget | JournalTarget | None = None
        self._has_failed = False
        self._fresh: list[Buffer] = []
        self._fresh_size = 0
        self.durable_end = 0
        """How far the segments or the journal have it on disk."""
        self.synced_end = 0
        """How far the segments alone have it: from here on they are checked after a crash."""

    @property
    def is_sealing(self) -> bool:
        return bool(self._sealings)

    def rolled(self, sealing: Sealing) -> None:
        """A segment takes no more batches, and another was made."""
        self._sealings.append(sealing)
        self._has_new_names = True

    def appended(self, buffer: Buffer) -> None:
        """Remember it for the journal, as long as there is little to remember."""
        self._fresh_size += len(buffer)
        if self._fresh_size <= SMALL:
            self._fresh.append(buffer)
        else:
            self._fresh = []

    @property
    def is_small(self) -> bool:
        """Whether the journal can have it: what it cannot hold are names of files, and much data."""
        return 0 < self._fresh_size <= SMALL and not self._sealings and not self._has_new_names

    def _forget_fresh(self) -> list[Buffer]:
        fresh, self._fresh, self._fresh_size = self._fresh, [], 0
        return fresh

    def journal_target(self, log_end: int) -> JournalTarget:
        self._check_idle()
        self._under_way = JournalTarget(self._forget_fresh(), log_end)
        return self._under_way

    def _check_idle(self) -> None:
        if self._under_way is not None:
            raise RuntimeError("a flush of this log is under way: call flushed or flush_failed first")

    @property
    def believes_syncs(self) -> bool:
        return not self._has_failed

    def target(self, active: Segment) -> FlushTarget:
        """`active` is the segment that is being written."""
        self._check_idle()
        self._forget_fresh()
        sealings = list(self._sealings)
        unsynced = [*(sealing.segment for sealing in sealings if sealing.segment.is_open), active]
        try:
            syncs = [segment.later() for segment in unsynced]
        except OSError as error:  # no descriptor left to sync with: a flush that fails like any other
            syncs = [_Refused(error)]
        directories = [self._path, parent_of(self._path)] if self._has_new_names else []
        self._has_new_names = False
        self._under_way = FlushTarget(self._files, syncs, sealings, directories, active.next_offset)
        return self._under_way

    def is_done(self, log_end: int, *, in_place: bool) -> bool:
        return (self.synced_end if in_place else self.durable_end) == log_end and not self._sealings

    def ended(self, target: FlushTarget | JournalTarget, *, well: bool) -> None:
        assert target is self._under_way, "a flush that this log did not ask for"
        self._under_way = None
        # After a failure a later sync may end well and still not have what was lost: then nothing is believed any more.
        self._has_failed |= not well
        if not self._has_failed:
            self.durable_end = max(self.durable_end, target.end)
        if isinstance(target, JournalTarget):
            return
        if not self._has_failed:
            self.synced_end = max(self.synced_end, target.end)
        self._has_new_names |= not well and bool(target.directories)
        self._sealed()

    def seal(self) -> None:
        """What is left of it, for those who may wait."""
        for sealing in self._sealings:
            sealing.run()
        self._sealed()

    def _sealed(self) -> None:
        for sealing in self._sealings:
            if sealing.is_done:
                sealing.segment.let_go()
        self._sealings = [sealing for sealing in self._sealings if not sealing.is_done]

    def sync_new_names(self) -> None:
        """Of a log that was made and never flushed: who opens it after a clean stop takes them for durable."""
        if self._has_new_names:
            self.sync_names()

    def sync_names(self) -> None:
        """The names of the files, as their content, survive the next crash."""
        self._files.sync_directory(self._path)
        self._files.sync_directory(parent_of(self._path))
        self._has_new_names = False

    def start_over(self, durable_end: int, *, names_are_durable: bool = True) -> None:
        """The log was opened, or opened again, and all of it is on disk.

        After a crash the names of its files may not be: the last owner may not have come to it.
        """
        self.forget()
        self._has_new_names |= not names_are_durable
        self._has_failed = False
        self.durable_end = self.synced_end = durable_end

    def forget(self) -> None:
        """The log lets go of its files."""
        self._sealings = []
        self._under_way = None
        self._forget_fresh()
