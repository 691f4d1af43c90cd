"""The journal: small writes to many logs, made durable by one sync of one file.

A sync costs about the same whatever it is of, so a flush of fifty logs would cost fifty times one. Instead the batches
are written a second time, all together, to `coterie-journal`; the segments have them in the system's cache, where
readers find them, and are synced when the journal is dropped: when it has grown, from time to time, and at a stop.

    journal.write([(key, [batch, batch]), ...])    # one write, one sync; then they are durable
    journal.drop()                                 # when the segments themselves were synced

After a crash `read_journal` gives back what was written; `recovery.py` appends what continues a log. A write that was
torn was acknowledged to nobody, and is left out. Logs are known by the topic's id and the partition's number, so that
a topic of the same name made later gets nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from uuid import UUID

from crc32c import crc32c

from coterie.log.files import File, Files, read_file
from coterie.wire.buffer import Buffer

__all__ = ["JOURNAL_FILE", "Journal", "JournalKey", "JournalPart", "journal_key", "read_journal", "remove_journal"]

JOURNAL_FILE = "coterie-journal"
_FORMAT = b"coterie-journal 1\n"
_WRITE = Struct(">II")
"""Size and checksum of what one `write` wrote."""
_KEY = Struct(">16si")
_SIZE = Struct(">I")

JournalKey = bytes


def journal_key(topic_id: UUID, partition: int) -> JournalKey:
    return _KEY.pack(topic_id.bytes, partition)


class Journal:
    """Of one data directory. After `open` it is used by the thread that waits for the disk, and by that one alone."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._file: File | None = None
        self.size = 0
        self.is_sound = True
        """False after a write that failed: what the file has then is not known, and it takes no more until dropped."""

    def write(self, entries: Iterable[tuple[JournalKey, Sequence[Buffer]]]) -> None:
        """All of it is durable, or `OSError`."""
        content = bytearray(_WRITE.size)
        for key, batches in entries:
            content += key
            content += _SIZE.pack(sum(map(len, batches)))
            for batch in batches:
                content += batch
        _WRITE.pack_into(content, 0, len(content) - _WRITE.size, crc32c(memoryview(content)[_WRITE.size :]))
        self.is_sound = False
        file = self._file or self._create()
        try:
            file.append(content)
            file.sync()
        except OSError:
            with suppress(OSError):  # then the next opening may find it: written, though nobody was told so
                file.truncate(self.size)
            raise
        self.is_sound = True
        self.size = file.size

    def _create(self) -> File:
        file = self._files.open(JOURNAL_FILE, create=True)
        try:
            file.truncate(0)  # of an attempt that failed
            file.append(_FORMAT)
            self._files.sync_directory()
        except OSError:
            file.close()
            raise
        self._file = file
        self.size = file.size
        return file

    def drop(self) -> None:
        """The segments have it all: begin anew. If that fails the old entries stay, which does no harm."""
        if self._file is not None:
            self.is_sound = False
            self._file.truncate(len(_FORMAT))
            self.size = self._file.size
        self.is_sound = True

    def part(self, key: JournalKey) -> JournalPart:
        return JournalPart(self._files, key)

    def release(self) -> None:
        """Let go of the file as it is."""
        if self._file is not None:
            self._file.close()
            self._file = None


class JournalPart:
    """What a journal has of one log."""

    __slots__ = ("_files", "key")

    def __init__(self, files: Files, key: JournalKey) -> None:
        self._files = files
        self.key = key

    def entries(self) -> Sequence[bytes]:
        return read_journal(self._files).get(self.key, ())


def read_journal(files: Files) -> dict[JournalKey, list[bytes]]:
    """What was written for each log, in order; each entry is whole batches."""
    found: dict[JournalKey, list[bytes]] = {}
    if files.exists(JOURNAL_FILE):
        data = read_file(files, JOURNAL_FILE)
        if data.startswith(_FORMAT):
            for content in _whole_writes(data):
                for key, batches in _entries(content):
                    found.setdefault(key, []).append(batches)
    return found


def _whole_writes(data: bytes) -> Iterator[memoryview]:
    """Up to the first that is not whole: it was under way in the crash, and nothing can follow it."""
    view = memoryview(data)
    at = len(_FORMAT)
    while at + _WRITE.size <= len(data):
        size, checksum = _WRITE.unpack_from(data, at)
        at += _WRITE.size
        content = view[at : at + size]
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
    """All logs are durable without it."""
    if files.exists(JOURNAL_FILE):
        files.delete(JOURNAL_FILE)
        files.sync_directory()
