"""The journal: small writes to many logs, made durable by one sync of one file.

A sync costs about the same whatever it is of, so a flush of fifty logs would cost fifty times one. Instead the batches
are written a second time, all together, to `coterie-journal`; the segments have them in the system's cache, where
readers find them, and are synced when the journal is dropped: when it has grown, from time to time, and at a stop.

    journal.write([(key, [batch, batch]), ...])    # one write, one sync; then they are durable
    journal.drop()                                 # when the segments themselves were synced

After a crash `read_journal` gives back what was written; `recovery.py` appends what continues a log. The last write may
be torn: it was acknowledged to nobody, and is left out. One that is not whole and has whole ones behind it is damage:
nothing is written behind a write that failed. Logs are known by the topic's id and the partition's number, so that
a topic of the same name made later gets nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from uuid import UUID

from crc32c import crc32c

from coterie.protocol.buffer import Buffer
from coterie.storage.files import File, Files, read_file
from coterie.storage.log_errors import DamagedFileError

__all__ = ["JOURNAL_FILE", "Journal", "JournalKey", "JournalPart", "journal_key", "read_journal", "remove_journal"]

JOURNAL_FILE = "coterie-journal"
_FORMAT = b"coterie-journal 2\n"
_MARK = b"\xf5cj\xf6"
"""Begins every write, so that one is found behind another that is damaged."""
_WRITE = Struct(">4sII")
"""The mark, the size of what one `write` wrote, and the checksum of that, of its size and of its place in the file."""
_FORMAT_1 = b"coterie-journal 1\n"
_WRITE_1 = Struct(">II")
"""Of an earlier release: the size, and the checksum of what was written."""
_KEY = Struct(">16si")
_SIZE = Struct(">I")
_AT = Struct(">QI")

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
        self.is_sound = False
        file = self._file or self._create()
        checksum = _checksum(file.size, memoryview(content)[_WRITE.size :])
        _WRITE.pack_into(content, 0, _MARK, len(content) - _WRITE.size, checksum)
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
        """The segments have it all: start again. If that fails the old entries stay, which does no harm."""
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
    """What was written for each log, in order; each entry is whole batches. `DamagedFileError` if some is not whole."""
    found: dict[JournalKey, list[bytes]] = {}
    if files.exists(JOURNAL_FILE):
        data = read_file(files, JOURNAL_FILE)
        writes = _writes_of_format_1(data) if data.startswith(_FORMAT_1) else _whole_writes(data)
        for content in writes:
            for key, batches in _entries(content):
                found.setdefault(key, []).append(batches)
    return found


def _whole_writes(data: bytes) -> Iterator[memoryview]:
    """Up to the first that is not whole: it was under way in the crash, and nothing can follow it.

    So was the file itself, if it does not begin as it should: it is synced with the first write.
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
    """All logs are durable without it."""
    if files.exists(JOURNAL_FILE):
        files.delete(JOURNAL_FILE)
        files.sync_directory()
