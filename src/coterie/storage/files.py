"""File access: the protocol `Files`, its implementation on disk, and `DiskChange`.

This is the only module of the package that touches the disk. `memory_files.py` implements the same protocol without
one, and both pass the same tests. Paths are relative to the root, with `/` between names. Every method raises `OSError`
when the disk refuses.

Only `sync` makes anything durable: that of a file its content, that of a directory the names of new, renamed or deleted
files in it. The rule for names: *before anything relies on a name, or on its absence, its directory is synced*; until
then each change of a name may survive a power failure or not, independent of the others. So a directory is synced
before records in a new file are acknowledged, before another file refers to its content, and before files that another
one replaces are deleted. What can be derived from the rest (indexes, snapshots, leader epochs, `partition.metadata`) is
not synced, and leftovers are deleted by the next opening.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from coterie.protocol.buffer import Buffer


class Sync(Protocol):
    """A sync that is prepared now and run later, once, on any thread."""

    def run(self) -> None: ...


class File(Protocol):
    """An open file that grows at its end and is read anywhere."""

    @property
    def size(self) -> int: ...

    def append(self, data: Buffer) -> None:
        """Append all of `data`. After `OSError` a part of it may be in the file, which `truncate` removes."""

    def pread(self, size: int, at: int) -> bytes:
        """Return `size` bytes from `at`, or fewer if the file ends before."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def later(self) -> Sync:
        """Return a sync of what was appended so far; it may run while appends go on, or after this file was closed."""

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Space(NamedTuple):
    """The bytes of a volume."""

    total: int
    usable: int


class Files(Protocol):
    """A tree of directories and files."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending. With `create` a missing file is made, in a directory that exists."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def names(self, path: str = "") -> list[str]:
        """Return the names in a directory, sorted."""

    def mkdir(self, path: str) -> None:
        """Make a directory, unless it exists."""

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory a new name, in one step; a file of that name is replaced."""

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    def rmdir(self, path: str) -> None:
        """Delete an empty directory."""

    def sync_directory(self, path: str = "") -> None: ...

    def space(self) -> Space | None:
        """Return the space of the volume; None if there is none."""

    def lock(self, path: str) -> Lock:
        """Lock the file; `BlockingIOError` if another owner has it. The lock ends with the process."""


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def read_file(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.pread(file.size, 0)
    finally:
        file.close()


def replace_file(files: Files, path: str, content: bytes, *, sync: bool = True) -> None:
    """Write a small file whole: even after a crash it has the old content or the new one.

    Without `sync` a crash of the machine (not of the process) may leave it empty; use that for derived content only.
    """
    temporary = path + ".tmp"
    files.delete(temporary)
    file = files.open(temporary, create=True)
    try:
        file.append(content)
        if sync:
            file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    if sync:
        files.sync_directory(parent_of(path))


T = TypeVar("T")
R = TypeVar("R")


class DiskChange(Generic[T]):
    """A change of what is on disk in two steps, so that serving clients need not wait for it.

        change = directory.create_topic(topic, now_ms)     # decided now
        change.run()                                       # slow, on any thread, one change at a time
        change.done()                                      # changes memory, on the thread that owns the logs

    If `run` raises, the disk refused and nothing has changed: `done` is not called then.
    """

    __slots__ = ("_found", "_take", "_work")

    def __init__(self, work: Callable[[], R], take: Callable[[R], T]) -> None:
        """`run` calls `work`, and `done` calls `take` with its result."""
        self._work = work
        self._take: Callable[[Any], T] = take
        self._found: Any = None

    def run(self) -> None:
        self._found = self._work()

    def done(self) -> T:
        return self._take(self._found)


DIRECTORY_MODE, FILE_MODE = 0o700, 0o600
"""Modes of new directories and files: only their owner may read records. What exists keeps its mode."""
MOST_UNWRITTEN = 64 * 1024
"""Bytes that a `BufferedFile` keeps in memory."""
MOST_OPEN = 1_024
"""The default limit of files that a `DiskFiles` has open at a time."""


class _Descriptor:
    """A file descriptor that is closed with its last reference, so never while a thread is using it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


_sync_content: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""Syncs what is needed to read a file again, its size too; not its times, which cost a write of their own."""


class PreparedWrite(NamedTuple):
    """An append that is made by another thread: `DiskWriter`."""

    descriptor: _Descriptor
    data: Buffer
    at: int


class _DiskSync:
    """A sync by a duplicate of the descriptor: if the file is closed meanwhile, no other file is synced instead."""

    def __init__(self, fd: int, file: DiskFile | None = None) -> None:
        self._fd = fd
        self._file = file
        self._writes = file.writes if file is not None else 0

    def run(self) -> None:
        fd, self._fd = self._fd, -1
        try:
            _sync_content(fd)
        finally:
            os.close(fd)
        if self._file is not None:
            self._file.synced(self._writes)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class DiskFile:
    """An open file. Its descriptor may be closed while the file is not in use, and is opened again when it is.

    With `reserve` it is written out beforehand: zeros follow its end, which appends overwrite. A sync is then quicker,
    because the file need not grow. The zeros are still there when the file is opened again.
    """

    __slots__ = ("_files", "_reserve", "_room_end", "_size", "_synced", "descriptor", "path", "was_used", "writes")

    def __init__(self, files: DiskFiles, path: str, descriptor: _Descriptor) -> None:
        self._files = files
        self.path = path
        self.descriptor: _Descriptor | None = descriptor
        self._size = os.fstat(descriptor.number).st_size
        self.was_used = True
        self.writes = self._synced = 0
        self._reserve = 0
        self._room_end = 0
        """The end of the zeros."""

    def reserve(self, size: int) -> None:
        """Write `size` zeros behind an append that goes beyond those of an earlier one."""
        self._reserve = size

    @property
    def size(self) -> int:
        return self._size

    @property
    def is_synced(self) -> bool:
        return self._synced == self.writes

    def synced(self, writes: int) -> None:
        """Note that the first `writes` writes are durable."""
        self._synced = max(self._synced, writes)

    def _opened(self) -> _Descriptor:
        self.was_used = True
        descriptor = self.descriptor
        return descriptor if descriptor is not None else self._files.reopen(self)

    def append(self, data: Buffer) -> None:
        # At a position of our own, not the file's: after a failed write the next one lands where it should.
        descriptor, content, at = self.prepare(data)
        written = os.pwrite(descriptor.number, content, at)
        if written < len(content):
            view = memoryview(content)
            while written < len(content):
                written += os.pwrite(descriptor.number, view[written:], at + written)
        self._size += len(data)

    def prepare(self, data: Buffer) -> PreparedWrite:
        """Return the write that appends `data`. When it was made and synced, call `appended`."""
        self.writes += 1
        end = self._size + len(data)
        if self._reserve and end > self._room_end:
            self._room_end = end + self._reserve
            data = b"".join((data, bytes(self._reserve)))
        return PreparedWrite(self._opened(), data, self._size)

    def appended(self, size: int) -> None:
        """Note that `size` bytes were appended and synced by a prepared write."""
        self._size += size
        self._synced = self.writes

    def pread(self, size: int, at: int) -> bytes:
        descriptor = self._opened()
        data = os.pread(descriptor.number, size, at)
        if len(data) < size and data:
            # Linux reads at most 2 GiB at once, and a signal may cut a read short.
            parts = [data]
            got = len(data)
            while got < size and (data := os.pread(descriptor.number, size - got, at + got)):
                parts.append(data)
                got += len(data)
            data = b"".join(parts)
        return data

    def truncate(self, size: int) -> None:
        self.writes += 1
        os.ftruncate(self._opened().number, size)
        self._size = self._room_end = size

    def sync(self) -> None:
        writes = self.writes
        _sync_content(self._opened().number)
        self.synced(writes)

    def later(self) -> Sync:
        return _DiskSync(os.dup(self._opened().number), self)

    def close(self) -> None:
        self._files.closed(self)


class BufferedFile:
    """A file that keeps what is appended in memory, and writes it in large pieces, at the latest before a sync.

    Use it for data that is durable elsewhere. To close it loses what it has not written, as the end of the process
    does. Any thread may read while another appends.
    """

    __slots__ = ("_file", "_guard", "_is_torn", "_unwritten", "_written")

    def __init__(self, file: File) -> None:
        self._file = file
        self._guard = RLock()
        self._unwritten = bytearray()
        self._written = file.size
        self._is_torn = False
        """A write has failed, so the file may have a part of it behind `_written`."""

    @property
    def size(self) -> int:
        return self._written + len(self._unwritten)

    def append(self, data: Buffer) -> None:
        with self._guard:
            if len(self._unwritten) + len(data) <= MOST_UNWRITTEN:
                self._unwritten += data
                return
            self.write_out()
            self._write(data)

    def write_out(self) -> None:
        """Write what is in memory to the file. After `OSError` it is still in memory."""
        if self._unwritten or self._is_torn:
            with self._guard:
                if self._is_torn:
                    self._file.truncate(self._written)
                    self._is_torn = False
                if self._unwritten:
                    self._write(self._unwritten)
                    self._unwritten = bytearray()

    def _write(self, data: Buffer) -> None:
        self._is_torn = True
        self._file.append(data)
        self._is_torn = False
        self._written += len(data)

    def pread(self, size: int, at: int) -> bytes:
        with self._guard:
            end, written = at + size, self._written
            if end <= written:
                return self._file.pread(size, at)
            head = self._file.pread(written - at, at) if at < written else b""
            return head + self._unwritten[max(at - written, 0) : end - written]

    def truncate(self, size: int) -> None:
        with self._guard:
            if size > self.size:
                self.write_out()
            del self._unwritten[max(size - self._written, 0) :]
            to = size if size < self._written or not self._unwritten else self._written
            self._file.truncate(to)
            self._written, self._is_torn = to, False

    def sync(self) -> None:
        self.write_out()
        self._file.sync()

    def later(self) -> Sync:
        self.write_out()
        return self._file.later()

    def close(self) -> None:
        with self._guard:
            self._unwritten = bytearray()
            self._file.close()


class _DiskLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class DiskFiles:
    """A directory of the real file system, made if it is missing.

    At most `most_open` of its files have a descriptor: beyond that, files that are synced and were not used for long
    are closed, and opened again when they are used. So a broker may have more logs than the system lets it open files.
    A file with unsynced writes is closed only if no other is left, because the system may then not report that a write
    failed.
    """

    def __init__(self, root: str | os.PathLike[str], most_open: int = MOST_OPEN) -> None:
        self.root = os.fspath(root)
        path = Path(self.root)
        new = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        for each in new:
            _sync_directory(str(each.parent))
        self.most_open = most_open
        self._guard = RLock()
        self._at: dict[str, dict[DiskFile, None]] = {}
        """Every file that is not closed, by directory."""
        self._open: dict[DiskFile, None] = {}
        """Files with an open descriptor."""

    def _path(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        file = DiskFile(self, path, _Descriptor(os.open(self._path(path), flags, FILE_MODE)))
        with self._guard:
            self._at.setdefault(parent_of(path), {})[file] = None
            self._open[file] = None
            self._make_room()
        return file

    def reopen(self, file: DiskFile) -> _Descriptor:
        with self._guard:
            if file.descriptor is not None:  # another thread has
                return file.descriptor
            if file not in self._at.get(parent_of(file.path), ()):
                raise OSError(errno.EBADF, "the file was closed", file.path)
            file.descriptor = descriptor = _Descriptor(os.open(self._path(file.path), os.O_RDWR | os.O_CLOEXEC))
            self._open[file] = None
            self._make_room()
            return descriptor

    def closed(self, file: DiskFile) -> None:
        """Forget `file`, which its owner has closed."""
        directory = parent_of(file.path)
        with self._guard:
            file.descriptor = None
            self._open.pop(file, None)
            beside = self._at.get(directory, {})
            beside.pop(file, None)
            if not beside:
                self._at.pop(directory, None)

    def _make_room(self) -> None:
        """Close an eighth of the files at once when too many are open, so that this is seldom needed."""
        if len(self._open) <= self.most_open:
            return
        others = list(self._open)[:-1]  # the last one is about to be used
        others.sort(key=lambda file: (not file.is_synced, file.was_used))
        for file in others[: len(others) - (self.most_open - 1) * 7 // 8]:
            del self._open[file]
            file.descriptor = None
        for file in self._open:
            file.was_used = False

    def _lose_name(self, path: str) -> None:
        """Keep files at `path` or in it open until their owners close them: their name is about to change."""
        beside = self._at.get(parent_of(path), {})
        for file in [*(one for one in beside if one.path == path), *self._at.get(path, ())]:
            with suppress(FileNotFoundError):
                self.reopen(file)
            self._open.pop(file, None)

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._path(path))

    def size(self, path: str) -> int:
        return Path(self._path(path)).stat().st_size

    def names(self, path: str = "") -> list[str]:
        return sorted(os.listdir(self._path(path)))  # noqa: PTH208  a Path costs as much as the call

    def mkdir(self, path: str) -> None:
        Path(self._path(path)).mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        with self._guard:
            self._lose_name(old)
            self._lose_name(new)
            os.rename(self._path(old), self._path(new))  # noqa: PTH104

    def delete(self, path: str) -> None:
        with self._guard:
            self._lose_name(path)
            with suppress(FileNotFoundError):
                os.unlink(self._path(path))  # noqa: PTH108

    def rmdir(self, path: str) -> None:
        Path(self._path(path)).rmdir()

    def sync_directory(self, path: str = "") -> None:
        _sync_directory(self._path(path))

    def space(self) -> Space | None:
        found = os.statvfs(self._path(""))
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> Lock:
        fd = os.open(self._path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in {errno.EACCES, errno.EAGAIN}:
                raise BlockingIOError(error.errno, "another process holds the lock", path) from None
            raise
        return _DiskLock(fd)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
