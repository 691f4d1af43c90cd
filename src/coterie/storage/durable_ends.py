"""What is known to be durable, to distinguish damage from what a crash has torn.

`coterie-checkpoint.json` has what was on disk when it was written, for each log: where it starts, how far it is synced,
its leader epochs, its segments and their sizes. It is written from time to time, before segments are deleted, and at a
clean shutdown. After each flush the ends of the flushed logs are appended to `coterie-durable-ends`. That file is not
synced: it survives the process, and after a power failure it says less, never too much.

Each entry of the ends has a checksum; reading stops at the first that is not whole. The first line has the number of
the checkpoint that the ends follow, so a checkpoint that was replaced by an older copy is noticed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

from crc32c import crc32c

from coterie.errors import MalformedError
from coterie.storage.files import File, Files, read_file
from coterie.storage.log_errors import DamagedFileError
from coterie.storage.metadata_files import ChecksummedFile, id_text, parse_id

__all__ = [
    "CHECKPOINT",
    "ENDS_FILE",
    "PRODUCER_IDS_END",
    "WITHIN_SEGMENTS",
    "DirectoryCheckpoint",
    "DurableEnds",
    "LogState",
    "SegmentState",
    "TopicPartition",
    "number_followed",
    "read_checkpoint",
    "write_checkpoint",
]

CHECKPOINT = ChecksummedFile(
    "coterie-checkpoint.json",
    1,
    "how far each log was on the disk, and where it starts",
    "it reads all logs whole and writes the file again from what they have",
)
ENDS_FILE = "coterie-durable-ends"
_FIRST_LINE = re.compile(rb"coterie-durable-ends 1 follows ([0-9]+) crc32c ([0-9a-f]{8})\n")
_ENTRY = Struct(">16siqI")
"""Topic id, partition, end, and the checksum of these."""
_CHECKED = _ENTRY.size - 4
_LONG = 1 << 20
"""A file of more bytes than this is rewritten with one entry per log."""

WITHIN_SEGMENTS = -1

TopicPartition = tuple[UUID, int]
PRODUCER_IDS_END: TopicPartition = UUID(int=0), -1
"""The key of the end of assigned producer ids: if the file of producer ids is lost, none is assigned again."""


class SegmentState(NamedTuple):
    base_offset: int
    size: int
    index_size: int
    time_index_size: int


class LogState(NamedTuple):
    """What a checkpoint has of one log."""

    start: int = 0
    end: int = 0
    """All offsets before it are durable."""
    compacted: int = 0
    """The end of its compacted part."""
    gaps_below: int = 0
    """An earlier release compacted it up to here and left gaps between segments; -1: gaps only within segments."""
    epochs: tuple[tuple[int, int], ...] = ()
    segments: tuple[SegmentState, ...] = ()
    """The sealed segments in order; after a clean shutdown these are all."""


class DirectoryCheckpoint(NamedTuple):
    number: int = 0
    logs: Mapping[TopicPartition, LogState] = {}


def write_checkpoint(files: Files, checkpoint: DirectoryCheckpoint) -> None:
    rows = [[id_text(topic), partition, *state] for (topic, partition), state in checkpoint.logs.items()]
    lines = ",\n".join(map(json.dumps, rows))
    CHECKPOINT.write(files, f'{{"number": {checkpoint.number}, "logs": [\n{lines}\n]}}\n'.encode())


def read_checkpoint(files: Files) -> DirectoryCheckpoint | None:
    """Read the checkpoint; None if the directory is of an earlier release, which had none."""
    follows = _number_in(_content(files))
    if not files.exists(CHECKPOINT.path) and follows is None:
        return None
    content = CHECKPOINT.read(files)
    try:
        found = json.loads(content.payload)
        checkpoint = DirectoryCheckpoint(int(found["number"]), dict(map(_state_of, found["logs"])))
    except (MalformedError, ValueError, KeyError, TypeError) as error:
        raise CHECKPOINT.damaged(f"is not what we write: {error!r}") from None
    if follows is not None and checkpoint.number < follows:
        raise older_copy(checkpoint.number, follows)
    return checkpoint


def number_followed(files: Files) -> int:
    """Return the number of the checkpoint that the ends follow; 0 if there is none."""
    return _number_in(_content(files)) or 0


def older_copy(number: int, follows: int) -> DamagedFileError:
    return CHECKPOINT.damaged(f"is an older copy: it is number {number}, and {follows} was written")


def _state_of(row: list[Any]) -> tuple[TopicPartition, LogState]:
    topic, partition, start, end, compacted, gaps_below, epochs, segments = row
    state = LogState(
        start,
        end,
        compacted,
        gaps_below,
        tuple((epoch, at) for epoch, at in epochs),
        tuple(SegmentState(*one) for one in segments),
    )
    return (parse_id(topic), partition), state


class DurableEnds:
    """The ends of logs since the last checkpoint, used only by the thread that waits for the disk."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._file: File | None = None
        self._number = 0
        self._ends: dict[TopicPartition, int] = {}

    def read(self) -> Mapping[TopicPartition, int]:
        """Read up to where each log is known to be durable."""
        data = _content(self._files)
        self._ends = {}
        if _number_in(data) is not None:
            at = data.index(b"\n") + 1
            while at + _ENTRY.size <= len(data):
                topic, partition, end, checksum = _ENTRY.unpack_from(data, at)
                if crc32c(data[at : at + _CHECKED]) != checksum:
                    break
                key = UUID(bytes=topic), partition
                self._ends[key] = max(end, self._ends.get(key, 0))
                at += _ENTRY.size
        return self._ends

    def end_of(self, key: TopicPartition) -> int:
        return self._ends.get(key, 0)

    def follow(self, checkpoint: DirectoryCheckpoint) -> None:
        """Keep only ends beyond a checkpoint that is on disk."""
        self._number = checkpoint.number
        known = checkpoint.logs
        self._ends = {
            key: end
            for key, end in self._ends.items()
            if key == PRODUCER_IDS_END or (key in known and end > known[key].end)
        }
        self._start_over()

    def add(self, ends: Iterable[tuple[TopicPartition, int]]) -> None:
        """Append the new ends of logs; if that fails, nothing is lost but this knowledge."""
        if self._file is None:
            return
        added = dict(ends)
        self._ends |= added
        if not added:
            return
        try:
            self._file.append(b"".join(map(_entry, added.items())))
            if self._file.size > _LONG:
                self._start_over()
        except OSError:
            self.release()

    def _start_over(self) -> None:
        self.release()
        head = b"coterie-durable-ends 1 follows %d" % self._number
        content = b"%s crc32c %08x\n" % (head, crc32c(head)) + b"".join(map(_entry, self._ends.items()))
        temporary = ENDS_FILE + ".tmp"
        with suppress(OSError):
            self._files.delete(temporary)
            file = self._files.open(temporary, create=True)
            try:
                file.append(content)
                self._files.rename(temporary, ENDS_FILE)
            except OSError:
                file.close()
                raise
            self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _entry(item: tuple[TopicPartition, int]) -> bytes:
    (topic, partition), end = item
    data = _ENTRY.pack(topic.bytes, partition, end, 0)[:_CHECKED]
    return data + crc32c(data).to_bytes(4, "big")


def _content(files: Files) -> bytes:
    return read_file(files, ENDS_FILE) if files.exists(ENDS_FILE) else b""


def _number_in(data: bytes) -> int | None:
    """Return which checkpoint the ends follow; None if their first line is not whole, as after a power failure."""
    found = _FIRST_LINE.match(data)
    if found is None or crc32c(b"coterie-durable-ends 1 follows " + found[1]) != int(found[2], 16):
        return None
    return int(found[1])
