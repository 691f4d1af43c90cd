"""Making appends durable: by a sync of the log's own files, or by writing them to the journal.

**Flush of one log.** Syncing is slow and done on another thread: what there is to sync is captured in one step, synced
while appends go on, and reported back. So is what a segment needs when it takes no more batches. After a sync that
failed, the system may have dropped the pages and will not report it again. So nothing more is called durable until the
log was cut back to what is.

**The journal** is the head of the logs: it makes small writes durable by one write and one sync of one file. A sync
costs about the same whatever its size, so a flush of fifty logs would cost fifty times one. The segments keep these
batches in memory (`BufferedFile`), where readers find them, and write them to their files in large pieces. They are
synced when the journal is dropped: when it has grown, from time to time, and at shutdown.

    journal.write([(key, [batch, batch]), ...])    # one write, one sync; then they are durable
    journal.drop()                                 # when the segments have them, and were synced

After a crash `read_journal` returns what was written; `recovery.py` appends what continues a log. The last write may be
torn: it was not acknowledged, and is left out. An incomplete write with a whole one behind it is damage, since nothing
is written behind a write that failed. Zeros behind the last write are room that was written out beforehand, on a real
disk. Logs are identified by topic id and partition, so a new topic of the same name gets nothing of an old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from uuid import UUID

from coterie.protocol.buffer import Buffer
from coterie.protocol.checksums import crc32c
from coterie.storage.files import DiskFile, File, Files, PreparedWrite, Sync, parent_of, read_file
from coterie.storage.log_errors import DamagedFileError, LogWriteError
from coterie.storage.segment import Segment
from coterie.structs import DataStruct

SMALL = 64 * 1024
"""A log with more bytes to flush is synced in place: that costs no more than writing them to the journal.
It also bounds what is kept in memory of a log that is not flushed."""


class Sealing:
    """Writes the indexes of a segment that takes no more batches, and a snapshot of the producers as of its end.

    They save the next opening some reading, and can be derived from the log. So if the disk refuses them, they stay in
    memory until the next flush.
    """

    def __init__(self, segment: Segment, write_snapshot: Callable[[], None]) -> None:
        self.segment = segment
        self._write_snapshot = write_snapshot
        self.is_done = False

    def run(self) -> None:
        """Write both; on any thread."""
        self._write_snapshot()
        self.segment.write_indexes()
        self.is_done = True


class FlushTarget:
    """The syncs that make a log durable up to `end`. `run` may be called on any thread, once."""

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
        """Sync in order of the log, so that what is durable is always its beginning."""
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


class JournalTarget(DataStruct, eq=False):
    """The batches that the journal must have for a log to be durable up to `end`."""

    batches: list[Buffer]
    end: int


class _Refused:
    """A sync that could not even be prepared."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    def run(self) -> None:
        raise self._error


class FlushState:
    """The progress of flushing the log at `path`. If it `is_new`, the name of its directory is not durable."""

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
        """The end of what is on disk in segments or in the journal."""
        self.synced_end = 0
        """The end of what is on disk in segments: from here on they are checked after a crash."""

    @property
    def is_sealing(self) -> bool:
        return bool(self._sealings)

    def rolled(self, sealing: Sealing) -> None:
        """Note that a segment takes no more batches, and another was made."""
        self._sealings.append(sealing)
        self._has_new_names = True

    def appended(self, buffer: Buffer) -> None:
        """Remember appended batches for the journal, as long as they are small."""
        self._fresh_size += len(buffer)
        if self._fresh_size <= SMALL:
            self._fresh.append(buffer)
        else:
            self._fresh = []

    @property
    def is_small(self) -> bool:
        """Return whether the journal can take what is to be flushed: little data, and no names of files."""
        return 0 < self._fresh_size <= SMALL and not self._sealings and not self._has_new_names

    def _forget_fresh(self) -> list[Buffer]:
        fresh, self._fresh, self._fresh_size = self._fresh, [], 0
        return fresh

    def journal_target(self, log_end_offset: int) -> JournalTarget:
        self._check_idle()
        target = self._under_way = JournalTarget(self._fresh, log_end_offset)
        self._fresh, self._fresh_size = [], 0
        return target

    def _check_idle(self) -> None:
        if self._under_way is not None:
            raise RuntimeError("a flush of this log is under way: call flushed or flush_failed first")

    @property
    def believes_syncs(self) -> bool:
        return not self._has_failed

    def target(self, active: Segment) -> FlushTarget:
        """Return what to sync; `active` is the segment that is being written."""
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

    def is_done(self, log_end_offset: int, *, in_place: bool) -> bool:
        return (self.synced_end if in_place else self.durable_end) == log_end_offset and not self._sealings

    def ended(self, target: FlushTarget | JournalTarget, *, well: bool) -> None:
        assert target is self._under_way, "a flush that this log did not ask for"
        self._under_way = None
        # After a failure a later sync may succeed without what was lost: then no sync counts any more.
        self._has_failed |= not well
        if not self._has_failed:
            self.durable_end = max(self.durable_end, target.end)
        if type(target) is JournalTarget:
            return
        assert isinstance(target, FlushTarget)
        if not self._has_failed:
            self.synced_end = max(self.synced_end, target.end)
        self._has_new_names |= not well and bool(target.directories)
        self._sealed()

    def seal(self) -> None:
        """Run all sealings that are left, and wait for them."""
        for sealing in self._sealings:
            sealing.run()
        self._sealed()

    def _sealed(self) -> None:
        for sealing in self._sealings:
            if sealing.is_done:
                sealing.segment.let_go()
        self._sealings = [sealing for sealing in self._sealings if not sealing.is_done]

    def sync_new_names(self) -> None:
        """Sync the names of files that were never synced: an opening after a clean shutdown takes them for durable."""
        if self._has_new_names:
            self.sync_names()

    def sync_names(self) -> None:
        """Make the names of the files durable."""
        self._files.sync_directory(self._path)
        self._files.sync_directory(parent_of(self._path))
        self._has_new_names = False

    def start_over(self, durable_end: int, *, names_are_durable: bool = True) -> None:
        """Start again with a log that was opened, or opened again, and is all on disk.

        After a crash the names of its files may not be durable.
        """
        self.forget()
        self._has_new_names |= not names_are_durable
        self._has_failed = False
        self.durable_end = self.synced_end = durable_end

    def forget(self) -> None:
        """Forget what was to be done, because the log has closed its files."""
        self._sealings = []
        self._under_way = None
        self._forget_fresh()


JOURNAL_FILE = "coterie-journal"
_FORMAT = b"coterie-journal 2\n"
_MARK = b"\xf5cj\xf6"
"""Begins every write, so that one is found behind another that is damaged."""
_WRITE = Struct(">4sII")
"""The mark, the size of one write's content, and the checksum of the content, its size and its place in the file."""
_FORMAT_1 = b"coterie-journal 1\n"
_WRITE_1 = Struct(">II")
"""The head of a write in format 1, of an earlier release: size and checksum of the content."""
_KEY = Struct(">16si")
_SIZE = Struct(">I")
_AT = Struct(">QI")

RESERVED = 256 * 1024
"""Bytes that the file is written out beforehand, behind its end."""

JournalKey = bytes
JournalEntry = tuple[JournalKey, Sequence[Buffer]]


def journal_key(topic_id: UUID, partition: int) -> JournalKey:
    return _KEY.pack(topic_id.bytes, partition)


class Journal:
    """The journal of one data directory.

    It is used only by the thread that waits for the disk, and by the event loop while that thread has nothing to do.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._file: File | None = None
        self._prepared = 0
        self.size = 0
        self.is_sound = True
        """False after a write that failed: the file takes no more writes until it was dropped."""

    def write(self, entries: Iterable[JournalEntry]) -> None:
        """Write all entries and make them durable, or raise `OSError`."""
        self.is_sound = False
        file = self._file or self._create()
        try:
            file.append(_content_of(entries, file.size))
            file.sync()
        except OSError:
            self._cut_back(file)
            raise
        self._written(file)

    def prepare(self, entries: Iterable[JournalEntry]) -> PreparedWrite | None:
        """Return the write of all entries, for a `DiskWriter`, and then call `ended`; None: `write` has to do it."""
        if not isinstance(self._file, DiskFile):
            return None
        self.is_sound = False
        content = _content_of(entries, self._file.size)
        self._prepared = len(content)
        return self._file.prepare(content)

    def ended(self, error: OSError | None) -> None:
        """The write that was prepared has ended."""
        assert isinstance(self._file, DiskFile), "nothing was prepared"
        if error is not None:
            self._cut_back(self._file)
        else:
            self._file.appended(self._prepared)
            self._written(self._file)

    def _cut_back(self, file: File) -> None:
        with suppress(OSError):  # then the next opening may find it, though it was not acknowledged
            file.truncate(self.size)

    def _written(self, file: File) -> None:
        self.is_sound = True
        self.size = file.size

    def _create(self) -> File:
        file = self._files.open(JOURNAL_FILE, create=True)
        try:
            file.truncate(0)  # an earlier attempt may have failed
            file.append(_FORMAT)
            self._files.sync_directory()
        except OSError:
            file.close()
            raise
        if isinstance(file, DiskFile):
            file.reserve(RESERVED)
        self._file = file
        self.size = file.size
        return file

    def drop(self) -> None:
        """Empty the journal, because all segments are synced. If that fails the old entries stay, which is harmless."""
        if self._file is not None:
            self.is_sound = False
            self._file.truncate(len(_FORMAT))
            self.size = self._file.size
        self.is_sound = True

    def part(self, key: JournalKey) -> JournalPart:
        return JournalPart(self._files, key)

    def release(self) -> None:
        """Close the file as it is."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _content_of(entries: Iterable[JournalEntry], at: int) -> bytearray:
    """Return one write, as it stands in the file at `at`."""
    content = bytearray(_WRITE.size)
    for key, batches in entries:
        content += key
        content += _SIZE.pack(sum(map(len, batches)))
        for batch in batches:
            content += batch
    _WRITE.pack_into(content, 0, _MARK, len(content) - _WRITE.size, _checksum(at, memoryview(content)[_WRITE.size :]))
    return content


class JournalPart:
    """The entries of one log in a journal."""

    __slots__ = ("_files", "key")

    def __init__(self, files: Files, key: JournalKey) -> None:
        self._files = files
        self.key = key

    def entries(self) -> Sequence[bytes]:
        return read_journal(self._files).get(self.key, ())


def read_journal(files: Files) -> dict[JournalKey, list[bytes]]:
    """Return what was written for each log, in order; each entry is whole batches. May raise `DamagedFileError`."""
    found: dict[JournalKey, list[bytes]] = {}
    if files.exists(JOURNAL_FILE):
        data = read_file(files, JOURNAL_FILE)
        writes = _writes_of_format_1(data) if data.startswith(_FORMAT_1) else _whole_writes(data)
        for content in writes:
            for key, batches in _entries(content):
                found.setdefault(key, []).append(batches)
    return found


def _whole_writes(data: bytes) -> Iterator[memoryview]:
    """Yield writes up to the first that is not whole: it was interrupted by the crash, and nothing can follow it.

    If the file does not begin as it should, its creation was interrupted: it is synced with the first write.
    """
    at = len(_FORMAT)
    content = _write_at(data, at) if data.startswith(_FORMAT) else None
    while content is not None:
        yield content
        at += _WRITE.size + len(content)
        content = _write_at(data, at)
    behind = data.find(_MARK, at if data.startswith(_FORMAT) else 0)
    while behind >= 0:
        if _write_at(data, behind) is not None:
            raise DamagedFileError(
                JOURNAL_FILE,
                f"is damaged at byte {at}, and goes on at byte {behind}",
                "what was acknowledged since the segments were last synced; they have it too, unless the machine has "
                "lost its power since",
                "it takes what is whole in it, and sets the file aside",
            )
        behind = data.find(_MARK, behind + 1)


def _write_at(data: bytes, at: int) -> memoryview | None:
    if len(data) < at + _WRITE.size:
        return None
    mark, size, checksum = _WRITE.unpack_from(data, at)
    begin = at + _WRITE.size
    content = memoryview(data)[begin : begin + size]
    is_whole = mark == _MARK and size and len(content) == size and _checksum(at, content) == checksum
    return content if is_whole else None


def _checksum(at: int, content: memoryview) -> int:
    return crc32c(content, crc32c(_AT.pack(at, len(content))))


def _writes_of_format_1(data: bytes) -> Iterator[memoryview]:
    at = len(_FORMAT_1)
    while at + _WRITE_1.size <= len(data):
        size, checksum = _WRITE_1.unpack_from(data, at)
        at += _WRITE_1.size
        content = memoryview(data)[at : at + size]
        if not size or len(content) < size or crc32c(content) != checksum:
            return
        yield content
        at += size


def _entries(content: memoryview) -> Iterator[tuple[JournalKey, bytes]]:
    at = 0
    while at < len(content):
        key = bytes(content[at : at + _KEY.size])
        (size,) = _SIZE.unpack_from(content, at + _KEY.size)
        at += _KEY.size + _SIZE.size
        yield key, bytes(content[at : at + size])
        at += size


def remove_journal(files: Files) -> None:
    """Delete the journal, because all logs are durable without it."""
    if files.exists(JOURNAL_FILE):
        files.delete(JOURNAL_FILE)
        files.sync_directory()
