"""`Files` without a disk: for brokers that keep nothing, and for tests."""

from __future__ import annotations

import errno
from errno import errorcode

from coterie.protocol.buffer import Buffer
from coterie.storage.files import File, Lock, Space, Sync, parent_of


def _error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, f"{errorcode[number]} in memory", path)


class _Nothing:
    """A sync that does nothing."""

    def run(self) -> None:
        pass


_NOTHING = _Nothing()


class _MemoryFile:
    """An open file; its content outlives it, as on a disk, and is shared with other handles of the same file."""

    def __init__(self, content: bytearray) -> None:
        self._content = content

    @property
    def size(self) -> int:
        return len(self._content)

    def append(self, data: Buffer) -> None:
        self._content += data

    def pread(self, size: int, at: int) -> bytes:
        return bytes(memoryview(self._content)[at : at + size])

    def truncate(self, size: int) -> None:
        del self._content[size:]
        self._content += bytes(size - len(self._content))

    def sync(self) -> None:
        pass

    def later(self) -> Sync:
        return _NOTHING

    def close(self) -> None:
        pass


class _MemoryLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryFiles:
    """Directories and files as dicts by path, so that every operation costs a dict lookup."""

    def __init__(self) -> None:
        self._directories: dict[str, set[str]] = {"": set()}
        self._contents: dict[str, bytearray] = {}
        self._locks: set[str] = set()

    def open(self, path: str, *, create: bool = False) -> File:
        content = self._contents.get(path)
        if content is None:
            if not create:
                raise _error(FileNotFoundError, errno.ENOENT, path)
            content = bytearray()
            self._enter(path)
            self._contents[path] = content
        return _MemoryFile(content)

    def exists(self, path: str) -> bool:
        return path in self._contents or path in self._directories

    def size(self, path: str) -> int:
        try:
            return len(self._contents[path])
        except KeyError:
            raise _error(FileNotFoundError, errno.ENOENT, path) from None

    def names(self, path: str = "") -> list[str]:
        return sorted(self._directory(path))

    def mkdir(self, path: str) -> None:
        if path not in self._directories:
            if parent_of(path):
                self.mkdir(parent_of(path))
            self._enter(path)
            self._directories[path] = set()

    def rename(self, old: str, new: str) -> None:
        if old in self._contents:
            if old == new:
                return
            self._enter(new)
            self._contents[new] = self._contents.pop(old)
        elif old in self._directories:
            if self._directories.get(new):
                raise _error(OSError, errno.ENOTEMPTY, new)
            self._enter(new)
            self._move_tree(old, new)
        else:
            raise _error(FileNotFoundError, errno.ENOENT, old)
        self._leave(old)

    def _move_tree(self, old: str, new: str) -> None:
        names = self._directories[new] = self._directories.pop(old)
        for name in names:
            source, target = f"{old}/{name}", f"{new}/{name}"
            if source in self._contents:
                self._contents[target] = self._contents.pop(source)
            else:
                self._move_tree(source, target)

    def delete(self, path: str) -> None:
        if path in self._directories:
            raise _error(IsADirectoryError, errno.EISDIR, path)
        if self._contents.pop(path, None) is not None:
            self._leave(path)

    def rmdir(self, path: str) -> None:
        if self._directory(path):
            raise _error(OSError, errno.ENOTEMPTY, path)
        del self._directories[path]
        self._leave(path)

    def sync_directory(self, path: str = "") -> None:
        self._directory(path)

    def space(self) -> Space | None:
        return None

    def lock(self, path: str) -> Lock:
        if path in self._locks:
            raise _error(BlockingIOError, errno.EAGAIN, path)
        self.open(path, create=True)
        self._locks.add(path)
        return _MemoryLock(self._locks, path)

    def _directory(self, path: str) -> set[str]:
        try:
            return self._directories[path]
        except KeyError:
            raise _error(FileNotFoundError, errno.ENOENT, path) from None

    def _enter(self, path: str) -> None:
        self._directory(parent_of(path)).add(path.rpartition("/")[2])

    def _leave(self, path: str) -> None:
        self._directory(parent_of(path)).discard(path.rpartition("/")[2])
