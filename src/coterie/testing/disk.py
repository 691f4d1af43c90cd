"""The files of a broker under test: a disk that can be full or slow, and that knows what was synced.

It is between the broker and its files, in memory or in a directory. Names count as durable at once; of the content of a
file that was not synced, a crash may take all that came since its last sync.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

from coterie.protocol.buffer import Buffer
from coterie.storage.files import File, Files, Lock, Space, Sync


class ControlledFiles:
    """Files that do what the faults of a test say."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.on_refusal: Callable[[str], None] | None = None
        """The disk is full: called with the path of each file that cannot be written."""
        self.on_sync: Callable[[str], None] | None = None
        """The disk is slow: called before each sync, in the thread that waits for the disk. It returns late."""
        self._synced: dict[str, int] = {}
        """How much of the content of each file is durable."""
        self._lock = threading.Lock()

    # --- trouble ------------------------------------------------------------------------------------------------------

    def check_room(self, path: str) -> None:
        if self.on_refusal is not None:
            self.on_refusal(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def wait(self, path: str) -> None:
        slow = self.on_sync
        if slow is not None:
            slow(path)

    def synced(self, path: str, size: int) -> None:
        with self._lock:
            if path in self._synced:
                self._synced[path] = max(self._synced[path], size)

    def truncated(self, path: str, size: int) -> None:
        with self._lock:
            if path in self._synced:
                self._synced[path] = min(self._synced[path], size)

    def lose_unsynced(self) -> list[str]:
        """Take from each file what was not synced; return those that are shorter now."""
        lost = []
        for path, size in self._synced.items():
            if self._files.exists(path) and self._files.size(path) > size:
                file = self._files.open(path)
                file.truncate(size)
                file.close()
                lost.append(path)
        return lost

    # --- the port -----------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        is_new = not self._files.exists(path)
        if is_new and create:
            self.check_room(path)
        file = self._files.open(path, create=create)
        with self._lock:
            self._synced.setdefault(path, 0 if is_new else file.size)
        return _ControlledFile(self, path, file)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def size(self, path: str) -> int:
        return self._files.size(path)

    def names(self, path: str = "") -> list[str]:
        return self._files.names(path)

    def mkdir(self, path: str) -> None:
        if not self._files.exists(path):
            self.check_room(path)
        self._files.mkdir(path)

    def rename(self, old: str, new: str) -> None:
        self._files.rename(old, new)
        with self._lock:
            for path in [one for one in self._synced if one == old or one.startswith(f"{old}/")]:
                self._synced[new + path[len(old) :]] = self._synced.pop(path)

    def delete(self, path: str) -> None:
        self._files.delete(path)
        with self._lock:
            self._synced.pop(path, None)

    def rmdir(self, path: str) -> None:
        self._files.rmdir(path)

    def sync_directory(self, path: str = "") -> None:
        self._files.sync_directory(path)

    def space(self) -> Space | None:
        return self._files.space()

    def lock(self, path: str) -> Lock:
        return self._files.lock(path)


class _ControlledFile:
    def __init__(self, files: ControlledFiles, path: str, file: File) -> None:
        self._files = files
        self._path = path
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, data: Buffer) -> None:
        self._files.check_room(self._path)
        self._file.append(data)

    def pread(self, size: int, at: int) -> bytes:
        return self._file.pread(size, at)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)
        self._files.truncated(self._path, size)

    def sync(self) -> None:
        size = self._file.size
        self._files.wait(self._path)
        self._file.sync()
        self._files.synced(self._path, size)

    def later(self) -> Sync:
        return _ControlledSync(self._files, self._path, self._file.size, self._file.later())

    def close(self) -> None:
        self._file.close()


class _ControlledSync:
    def __init__(self, files: ControlledFiles, path: str, size: int, sync: Sync) -> None:
        self._files = files
        self._path = path
        self._size = size
        self._sync = sync

    def run(self) -> None:
        self._files.wait(self._path)
        self._sync.run()
        self._files.synced(self._path, self._size)
