"""The only file of this room that touches the disk: the port `Files`, what it promises, and the real thing.

`memory.py` keeps the same promises without a disk, and both pass the same tests. Paths are relative to the root, with
`/` between names. Every method raises `OSError` when the disk refuses.

A promise of durability is made by `sync` alone: a file's content by its own, the names of new, renamed or deleted files
by that of their directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Protocol

from coterie.wire.buffer import Buffer

__all__ = ["DiskFiles", "File", "Files", "Lock", "Sync", "parent_of", "read_file", "replace_file"]


class Sync(Protocol):
    """Something to be made durable, captured now and synced later, on any thread; good for one `run`."""

    def run(self) -> None: ...


class File(Protocol):
    """An open file that grows at its end and is read anywhere."""

    @property
    def size(self) -> int: ...

    def append(self, data: Buffer) -> None:
        """All of `data`, or `OSError`; then a part of it may be there, and `truncate` takes it away."""

    def pread(self, size: int, at: int) -> bytes:
        """`size` bytes from `at`; fewer where the file ends."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def later(self) -> Sync:
        """What `sync` would do, to be done elsewhere while appends go on, even if this file is closed meanwhile."""

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    """A tree of directories and files."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending. With `create` a missing file is made, in a directory that exists."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def names(self, path: str = "") -> list[str]:
        """What is in a directory, sorted."""

    def mkdir(self, path: str) -> None:
        """Make a directory; one that exists is fine."""

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory a new name, in one step; a file of that name is replaced."""

    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is fine."""

    def rmdir(self, path: str) -> None:
        """Delete an empty directory."""

    def sync_directory(self, path: str = "") -> None: ...

    def lock(self, path: str) -> Lock:
        """Hold the file for this owner alone; `BlockingIOError` if another one has it. A process that dies lets go."""


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def read_file(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.pread(file.size, 0)
    finally:
        file.close()


def replace_file(files: Files, path: str, content: bytes, *, sync: bool = True) -> None:
    """Write a small file whole: whoever opens it, even after a crash, finds the old content or the new one.

    Without `sync` a crash of the machine (not of the process) may leave it empty: only for what can be made again.
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


# --- the disk ---------------------------------------------------------------------------------------------------------


class _DiskSync:
    """An own descriptor of the same open file, so that closing the file elsewhere cannot make us sync a stranger."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def run(self) -> None:
        fd, self._fd = self._fd, -1
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class _DiskFile:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._size = os.fstat(fd).st_size

    @property
    def size(self) -> int:
        return self._size

    def append(self, data: Buffer) -> None:
        # At a position of our own, not the file's: after a failed write the next one lands where it should.
        written = os.pwrite(self._fd, data, self._size)
        if written < len(data):
            view = memoryview(data)
            while written < len(data):
                written += os.pwrite(self._fd, view[written:], self._size + written)
        self._size += len(data)

    def pread(self, size: int, at: int) -> bytes:
        data = os.pread(self._fd, size, at)
        if len(data) < size and data:
            # Linux reads at most 2 GiB at once, and a signal may cut a read short.
            parts = [data]
            got = len(data)
            while got < size and (data := os.pread(self._fd, size - got, at + got)):
                parts.append(data)
                got += len(data)
            data = b"".join(parts)
        return data

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        os.fsync(self._fd)

    def later(self) -> Sync:
        return _DiskSync(os.dup(self._fd))

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _DiskLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class DiskFiles:
    """A directory of the real file system, made if it is missing."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.fspath(root)
        Path(self.root).mkdir(parents=True, exist_ok=True)

    def _path(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return _DiskFile(os.open(self._path(path), flags, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._path(path))

    def size(self, path: str) -> int:
        return Path(self._path(path)).stat().st_size

    def names(self, path: str = "") -> list[str]:
        return sorted(entry.name for entry in Path(self._path(path)).iterdir())

    def mkdir(self, path: str) -> None:
        Path(self._path(path)).mkdir(parents=True, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        Path(self._path(old)).rename(self._path(new))

    def delete(self, path: str) -> None:
        Path(self._path(path)).unlink(missing_ok=True)

    def rmdir(self, path: str) -> None:
        Path(self._path(path)).rmdir()

    def sync_directory(self, path: str = "") -> None:
        _DiskSync(os.open(self._path(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)).run()

    def lock(self, path: str) -> Lock:
        fd = os.open(self._path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in {errno.EACCES, errno.EAGAIN}:
                raise BlockingIOError(error.errno, "another process holds the lock", path) from None
            raise
        return _DiskLock(fd)
