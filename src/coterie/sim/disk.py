"""A disk that keeps, when the power goes, what was synced and of the rest as much as it likes; full, slow and failing.

The port is `storage/files.py`. Content is made durable by the sync of a file, names by that of their directory. Of a
file that was not synced any pages written since may be there, in any order, with zeros where one was given and not
written. Of a directory that was not synced each change of a name may have happened or not, whatever became of the
others: only what concerns the same name stays in order. A rename is whole or has not happened.

What was durable can be damaged: a bit is wrong, a page was never written though the disk said so, or it was written to
another file. No software can undo that, but it must not go unnoticed; after the report the old content is restored.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from random import Random  # noqa: TID251  the type alone: the rng come in
from typing import NamedTuple

from coterie.protocol.buffer import Buffer
from coterie.storage.files import File, Lock, Space, Sync, parent_of
from coterie.storage.segment_files import LOG, SWAP

DAMAGES = ("a wrong bit", "a lost write", "a misdirected write")

_STEPS_OF_A_SWAP = 8
_PAGE = 256
"""The size of a page; smaller than a real one, like the batches here."""


class PowerCut(BaseException):
    """The machine dies in the middle of what it does; no handler of errors is to get hold of it."""


class _Inode:
    __slots__ = ("content", "durable", "safe")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.safe = len(content)
        """The number of bytes at the beginning of the content that are durable..."""
        self.durable: bytes | None = None
        """... unless it was cut to less than was: then this is."""


class _Damage(NamedTuple):
    path: str
    inode: _Inode
    at: int
    was: bytes
    now: bytes


class _Directory:
    __slots__ = ("changes", "durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        self.changes: list[_Names] = []
        """The changes of names since the last sync, in order; each happens whole. None: the name is gone."""

    def change(self, names: _Names) -> None:
        self.changes.append(names)
        _apply(self.entries, names)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.changes.clear()


_Names = dict[str, _Inode | _Directory | None]
"""One change, of one name or, a rename, of two."""


def _apply(entries: dict[str, _Inode | _Directory], names: _Names) -> None:
    for name, entry in names.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry


class Disk:
    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._root = _Directory()
        self._locks: set[str] = set()
        self.is_full = False
        self.is_failing = False
        self.refused = 0
        """The number of operations that it refused."""
        self.steps_left: int | None = None
        """The number of changes of names or durability until the power is cut; None: it stays."""
        self._damages: list[_Damage] = []
        self.waits_for_swap = False
        """The power is cut soon after a compacted segment begins to replace others."""

    # --- trouble ------------------------------------------------------------------------------------------------------

    def check(self, path: str, *, writes: bool) -> None:
        if self.steps_left is not None and writes:
            if not self.steps_left:
                raise PowerCut
            self.steps_left -= 1
        if self.is_failing:
            self._refuse(errno.EIO, path)

    def check_room(self, path: str) -> None:
        if self.is_full:
            self._refuse(errno.ENOSPC, path)

    def _refuse(self, number: int, path: str) -> None:
        self.refused += 1
        raise OSError(number, f"{errno.errorcode[number]} of a simulated disk", path)

    def share(self) -> float:
        """The part of a failed write that is on the disk."""
        return self._rng.random()

    def crash(self) -> None:
        """Cut the power: the disk then has what was durable, and some of the rest."""
        self.steps_left = None
        self.is_full = self.is_failing = False
        self._locks.clear()
        found: dict[int, _Inode] = {}
        self._root = self._left_of(self._root, found)
        self._damages = [one._replace(inode=found[id(one.inode)]) for one in self._damages if id(one.inode) in found]

    def killed(self) -> None:
        """The process dies and the system continues: all writes are there."""
        self.steps_left = None
        self._locks.clear()

    def damage(self, how: str) -> list[str]:
        """Change what was durable, one of `DAMAGES`, and return the paths of the files.

        Of the wrong bits in a last segment, a third is in a base offset: no checksum covers it. In a compacted segment
        it could pass for a gap, which Kafka's format cannot tell.
        """
        durable = [(path, inode) for path, inode in _walk(self._root, "") if inode.safe and not inode.durable]
        logs = [(path, inode) for path, inode in durable if path.endswith(LOG)]
        path, inode = self._rng.choice(logs if logs and self._rng.random() < 0.5 else durable)
        at = self._rng.randrange(inode.safe)
        if path.endswith(LOG) and how == "a wrong bit":
            while _is_leader_epoch(inode.content, at):
                at = self._rng.randrange(inode.safe)
            beside = [other for other, _ in _walk(self._root, "") if parent_of(other) == parent_of(path)]
            if at % 3 == 0 and path == max(other for other in beside if other.endswith(LOG)):
                at = _batch_around(inode.content, at)[0] + at % 8
        if how == "a wrong bit":
            self._damage(path, inode, at, bytes([inode.content[at] ^ 1 << self._rng.randrange(8)]))
            return [path]
        at -= at % _PAGE
        page = bytes(inode.content[at : min(at + _PAGE, inode.safe)])
        others = [(other, victim) for other, victim in durable if victim is not inode and victim.safe >= len(page)]
        self._damage(path, inode, at, bytes(len(page)))
        if how == "a lost write" or not others:
            return [path]
        other, victim = self._rng.choice(others)
        there = self._rng.randrange(victim.safe - len(page) + 1)
        there -= there % _PAGE
        if path.endswith(LOG) and other.endswith(LOG) and there == at:
            return [path]  # whole batches with the right offsets: nothing in Kafka's format says whose they are
        self._damage(other, victim, there, page)
        return [path, other]

    def _damage(self, path: str, inode: _Inode, at: int, now: bytes) -> None:
        self._damages.append(_Damage(path, inode, at, bytes(inode.content[at : at + len(now)]), now))
        inode.content[at : at + len(now)] = now

    @property
    def damaged(self) -> list[str]:
        """The files that are damaged."""
        return [damage.path for damage in self._damages]

    def restore(self) -> None:
        """Restore the damaged bytes, except those that the broker has truncated or replaced since."""
        for damage in reversed(self._damages):
            content, end = damage.inode.content, damage.at + len(damage.now)
            if content[damage.at : end] == damage.now:
                content[damage.at : end] = damage.was
        self._damages = []

    def _left_of(self, directory: _Directory, found: dict[int, _Inode]) -> _Directory:
        entries = dict(directory.durable)
        for names in self._changes_left(directory.changes):
            _apply(entries, names)
        after = _Directory()
        for name, entry in entries.items():
            if isinstance(entry, _Directory):
                after.entries[name] = self._left_of(entry, found)
            else:
                if id(entry) not in found:
                    found[id(entry)] = _Inode(self._content_left(entry))
                after.entries[name] = found[id(entry)]
        after.durable = dict(after.entries)
        return after

    def _changes_left(self, changes: Sequence[_Names]) -> Sequence[_Names]:
        """Some, each by itself, as with a file system that promises no order; or the first few, as with most."""
        if not changes or self._rng.random() < 0.3:
            return changes[: self._rng.randint(0, len(changes))]
        likely = self._rng.random()
        left: list[_Names] = []
        lost: set[str] = set()
        for names in changes:
            if lost.isdisjoint(names) and self._rng.random() < likely:
                left.append(names)
            else:
                lost.update(names)
        return left

    def _content_left(self, inode: _Inode) -> bytes:
        content = bytes(inode.content)
        if inode.durable is not None:
            return self._rng.choice((content, inode.durable))
        unsure = len(content) - inode.safe
        if not unsure:
            return content
        how = self._rng.random()
        if how < 0.3:
            return self._pages_left(content, inode.safe)
        kept = inode.safe + self._rng.choice((0, self._rng.randint(0, unsure), unsure))
        zeros = self._rng.randint(0, len(content) - kept) if how < 0.5 else 0
        return content[:kept] + bytes(zeros)

    def _pages_left(self, content: bytes, safe: int) -> bytes:
        left = bytearray(content[:safe])
        while len(left) < len(content):
            end = min((len(left) // _PAGE + 1) * _PAGE, len(content))
            left += content[len(left) : end] if self._rng.random() < 0.5 else bytes(end - len(left))
        return bytes(left)

    # --- the port -----------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        directory, name = self._parent(path)
        entry = directory.entries.get(name)
        if isinstance(entry, _Directory):
            raise IsADirectoryError(errno.EISDIR, "a directory", path)
        self.check(path, writes=entry is None)
        if entry is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.check_room(path)
            entry = _Inode()
            directory.change({name: entry})
        return _SimFile(self, path, entry)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def size(self, path: str) -> int:
        entry = self._find(path)
        if not isinstance(entry, _Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return len(entry.content)

    def names(self, path: str = "") -> list[str]:
        self.check(path, writes=False)
        return sorted(self._directory(path).entries)

    def mkdir(self, path: str) -> None:
        at = self._root
        for name in path.split("/"):
            entry = at.entries.get(name)
            if entry is None:
                self.check(path, writes=True)
                self.check_room(path)
                entry = _Directory()
                at.change({name: entry})
            if not isinstance(entry, _Directory):
                raise FileExistsError(errno.EEXIST, "a file", path)
            at = entry

    def rename(self, old: str, new: str) -> None:
        self.check(new, writes=True)
        entry = self._find(old)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", old)
        if old == new:
            return
        if self.waits_for_swap and SWAP in (old[-len(SWAP) :], new[-len(SWAP) :]):
            self.waits_for_swap = False
            self.steps_left = self._rng.randint(0, _STEPS_OF_A_SWAP)
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        replaced = target.entries.get(new_name)
        if isinstance(replaced, _Directory) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, "not empty", new)
        if source is target:
            source.change({old_name: None, new_name: entry})
        else:
            target.change({new_name: entry})
            source.change({old_name: None})

    def delete(self, path: str) -> None:
        directory, name = self._parent(path)
        entry = directory.entries.get(name)
        if isinstance(entry, _Directory):
            raise IsADirectoryError(errno.EISDIR, "a directory", path)
        if entry is not None:
            self.check(path, writes=True)
            directory.change({name: None})

    def rmdir(self, path: str) -> None:
        self.check(path, writes=True)
        if self._directory(path).entries:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        directory, name = self._parent(path)
        directory.change({name: None})

    def sync_directory(self, path: str = "") -> None:
        self.check(path, writes=True)
        self._directory(path).sync()

    def space(self) -> Space | None:
        return None

    def lock(self, path: str) -> Lock:
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.open(path, create=True)
        self._locks.add(path)
        return _SimLock(self._locks, path)

    # --- finding ------------------------------------------------------------------------------------------------------

    def _find(self, path: str) -> _Inode | _Directory | None:
        at: _Inode | _Directory | None = self._root
        for name in path.split("/") if path else ():
            if not isinstance(at, _Directory):
                return None
            at = at.entries.get(name)
        return at

    def _directory(self, path: str) -> _Directory:
        found = self._find(path)
        if not isinstance(found, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return found

    def _parent(self, path: str) -> tuple[_Directory, str]:
        return self._directory(parent_of(path)), path.rpartition("/")[2]

    def files(self) -> Iterator[tuple[str, int]]:
        """Every file and its size."""
        yield from ((path, len(inode.content)) for path, inode in _walk(self._root, ""))


def _walk(directory: _Directory, path: str) -> Iterator[tuple[str, _Inode]]:
    for name, entry in sorted(directory.entries.items()):
        if isinstance(entry, _Directory):
            yield from _walk(entry, f"{path}{name}/")
        else:
            yield f"{path}{name}", entry


def _is_leader_epoch(content: bytearray, at: int) -> bool:
    """Return whether this byte of a segment is of a batch's leader epoch: no checksum covers it, in Kafka's format."""
    start, _ = _batch_around(content, at)
    return start + 12 <= at < start + 16


def _batch_around(content: bytearray, at: int) -> tuple[int, int]:
    """Return the start and end of the batch that has this byte of a segment."""
    start, end = 0, 0
    while end <= at:
        start, end = end, end + 12 + max(int.from_bytes(content[end + 8 : end + 12]), 1)
    return start, end


class _SimLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class _SimSync:
    """A sync of the content at the time of the request. Later writes may be durable or not; here they are not."""

    __slots__ = ("_file", "_size")

    def __init__(self, file: _SimFile, size: int) -> None:
        self._file = file
        self._size = size

    def run(self) -> None:
        self._file.make_durable(self._size)


class _SimFile:
    __slots__ = ("_disk", "_inode", "_path")

    def __init__(self, disk: Disk, path: str, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    @property
    def size(self) -> int:
        return len(self._inode.content)

    def append(self, data: Buffer) -> None:
        disk = self._disk
        if disk.is_full or disk.is_failing:
            self._inode.content += bytes(data)[: int(disk.share() * len(data))]
            disk.check_room(self._path)
            disk.check(self._path, writes=False)
        self._inode.content += data

    def pread(self, size: int, at: int) -> bytes:
        if self._disk.is_failing:
            self._disk.check(self._path, writes=False)
        return bytes(memoryview(self._inode.content)[at : at + size])

    def truncate(self, size: int) -> None:
        self._disk.check(self._path, writes=False)
        inode = self._inode
        if size < inode.safe:
            if inode.durable is None:
                inode.durable = bytes(inode.content[: inode.safe])
            inode.safe = size
        del inode.content[size:]
        inode.content += bytes(size - len(inode.content))

    def sync(self) -> None:
        self.make_durable(self.size)

    def later(self) -> Sync:
        return _SimSync(self, self.size)

    def make_durable(self, size: int) -> None:
        self._disk.check(self._path, writes=True)
        inode = self._inode
        inode.durable = None
        inode.safe = max(min(size, len(inode.content)), inode.safe)

    def close(self) -> None:
        pass
