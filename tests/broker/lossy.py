"""A disk that keeps, when the machine dies, what was synced and of the rest as much as it likes.

`crash` gives the disk as the next owner finds it. Of a file that was not synced, a part of what was written since, at
times with a tail of zeros, as file systems leave that had given the blocks but not written them. Of names (files made,
renamed, deleted) those whose directory was synced since, and of the others the first few.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coterie.protocol.buffer import Buffer
from coterie.storage import File, MemoryFiles, Sync
from coterie.storage.files import parent_of

__all__ = ["LossyFiles", "PowerCut"]

Rng = Callable[[int], int]
"""A number from 0 up to and including the one given."""


class _Inode:
    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = content


@dataclass(slots=True)
class _Named:
    """A change of names: `inode` appears under `path`; without one, whatever was there is gone."""

    directory: str
    path: str
    kind: str
    old: str = ""
    inode: _Inode | None = None
    is_durable: bool = False


class PowerCut(BaseException):
    """The machine dies in the middle of what it does; no handler of errors is to get hold of it."""


class LossyFiles(MemoryFiles):
    def __init__(self) -> None:
        super().__init__()
        self.steps_left: int | None = None
        """How often names or durability change until the power is cut; None is never."""
        self._inodes: dict[str, _Inode] = {}
        self._changes: list[_Named] = []

    def step(self) -> None:
        if self.steps_left is not None:
            if not self.steps_left:
                raise PowerCut
            self.steps_left -= 1

    # --- what is done to it -------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        is_new = not self.exists(path)
        file = super().open(path, create=create)
        if is_new:
            self.step()
            self._inodes[path] = _Inode()
            self._changes.append(_Named(parent_of(path), path, "create", inode=self._inodes[path]))
        return _LossyFile(self, file, self._inodes[path])

    def mkdir(self, path: str) -> None:
        if not self.exists(path):
            self.step()
            super().mkdir(path)
            self._changes.append(_Named(parent_of(path), path, "mkdir"))

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)
        for path in [path for path in self._inodes if path == old or path.startswith(old + "/")]:
            self._inodes[new + path.removeprefix(old)] = self._inodes.pop(path)
        self._changes.append(_Named(parent_of(new), new, "rename", old=old))

    def delete(self, path: str) -> None:
        if self.exists(path):
            self.step()
            super().delete(path)
            del self._inodes[path]
            self._changes.append(_Named(parent_of(path), path, "delete"))

    def rmdir(self, path: str) -> None:
        self.step()
        super().rmdir(path)
        self._changes.append(_Named(parent_of(path), path, "rmdir"))

    def sync_directory(self, path: str = "") -> None:
        self.step()
        super().sync_directory(path)
        for change in self._changes:
            change.is_durable |= change.directory == path

    # --- what is left of it -------------------------------------------------------------------------------------------

    def crash(self, rng: Rng, *, in_order: bool = True) -> LossyFiles:
        """As the next owner finds it; what is found then is durable. Not `in_order`: of names the last few are kept."""
        unsure = [change for change in self._changes if not change.is_durable]
        unsure = unsure if in_order else unsure[::-1]
        kept_of_unsure = {id(change) for change in unsure[: rng(len(unsure))]}
        after = LossyFiles()
        for change in self._changes:
            if change.is_durable or id(change) in kept_of_unsure:
                _apply(after, change)
        found: dict[int, bytes] = {}
        for path, inode in after._inodes.items():
            if id(inode) not in found:
                found[id(inode)] = _left_of(inode, rng)
            after._contents[path][:] = found[id(inode)]
        after._inodes = {path: _Inode(bytes(content)) for path, content in after._contents.items()}
        after._changes = [
            _Named(parent_of(path), path, "mkdir", is_durable=True) for path in sorted(after._directories) if path
        ]
        for path, inode in after._inodes.items():
            after._changes.append(_Named(parent_of(path), path, "create", inode=inode, is_durable=True))
        return after


def _apply(disk: LossyFiles, change: _Named) -> None:
    """Under the names as far as they are there: a change whose directory was lost is lost with it."""
    if change.directory not in disk._directories:
        return
    if change.kind == "create":
        assert change.inode is not None
        if not disk.exists(change.path):
            MemoryFiles.open(disk, change.path, create=True)
        disk._inodes[change.path] = change.inode
    elif change.kind == "mkdir":
        MemoryFiles.mkdir(disk, change.path)
    elif change.kind == "rename":
        if disk.exists(change.old):
            LossyFiles.rename(disk, change.old, change.path)
    elif change.kind == "delete":
        if disk.exists(change.path):
            LossyFiles.delete(disk, change.path)
    elif change.path in disk._directories and not disk._directories[change.path]:
        MemoryFiles.rmdir(disk, change.path)


def _left_of(inode: _Inode, rng: Rng) -> bytes:
    durable, content = inode.durable, bytes(inode.content)
    if durable == content or not rng(2):
        return durable
    if not content.startswith(durable):
        return content if rng(1) else durable
    kept = len(durable) + rng(len(content) - len(durable))
    zeros = rng(len(content) - kept) if not rng(3) else 0
    return content[:kept] + bytes(zeros)


class _ContentSync:
    def __init__(self, disk: LossyFiles, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._content = bytes(inode.content)

    def run(self) -> None:
        self._disk.step()
        self._inode.durable = self._content


class _LossyFile:
    def __init__(self, disk: LossyFiles, file: File, inode: _Inode) -> None:
        self._disk = disk
        self._file = file
        self._inode = inode

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, data: Buffer) -> None:
        self._file.append(data)
        self._inode.content += data

    def pread(self, size: int, at: int) -> bytes:
        return self._file.pread(size, at)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)
        del self._inode.content[size:]
        self._inode.content += bytes(size - len(self._inode.content))

    def sync(self) -> None:
        self.later().run()

    def later(self) -> Sync:
        return _ContentSync(self._disk, self._inode)

    def close(self) -> None:
        self._file.close()
