"""A commit as most are: partitions of one topic, none with metadata. They stay the bytes that came, from frame to log.

A commit of a hundred partitions would otherwise be hundreds of objects, each made to be taken apart again; and so would
be the answer to a fetch of as many offsets. The classes are sequences of the words of `protocol/messages.py`, which are
made when one is used; properties hold all that is done with the columns equal to what is done with the words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol._pure_records import MOST_ROWS
from coterie.protocol.buffer import COMPACT, LONG_STRING
from coterie.protocol.messages import CommitPartition, CommittedOffset, FetchedOffset, OffsetRecord
from coterie.protocol.offsets_topic import offset_value_end, write_key
from coterie.protocol.records import IS_COMPILED, OffsetPairs

__all__ = [
    "MOST_ROWS",
    "CommitRows",
    "FetchedRows",
    "OffsetCommitFields",
    "OffsetRows",
    "StoredRows",
    "read_commit_rows",
    "read_usual_commit",
]

_ROW = Struct(">iqixx")  # partition, offset, leader epoch, and how a row without metadata ends
_SIZE = _ROW.size
_ENDS = {
    True: b"\1\0",  # the length of no metadata, and that there are no tagged fields
    False: b"\0\0",
}
"""The end of a row, by whether the version is flexible."""
_FETCHED = Struct(">iqi4s")
_FETCHED_END = b"\1\0\0\0"  # the length of no metadata, no error, no tagged fields
_NO_METADATA = b"\x01"  # its length


class _Rows:
    """The common base; equal to any sequence of the same messages."""

    __slots__ = ()

    __iter__: Callable[[], Iterator[Any]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class CommitRows(_Rows, Sequence[CommitPartition]):
    """Partitions of one topic as they were sent; the broker checks whether they exist."""

    __slots__ = ("highest", "lowest", "numbers", "rows", "topic", "topic_id")

    def __init__(
        self, topic: str, topic_id: UUID | None, rows: bytes, numbers: tuple[int, ...], lowest: int, highest: int
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.rows = rows
        self.numbers = numbers
        self.lowest = lowest
        self.highest = highest
        """The highest of the numbers."""

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[CommitPartition]:
        for partition, offset, leader_epoch in _ROW.iter_unpack(self.rows):
            yield CommitPartition(self.topic, partition, offset, leader_epoch, "", self.topic_id)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


class OffsetRows(_Rows, Sequence[OffsetRecord]):
    """The records of a commit at `at_ms`; their offsets start at `position`."""

    __slots__ = ("at_ms", "group_id", "of", "position")

    def __init__(self, group_id: str, of: CommitRows, at_ms: int) -> None:
        self.group_id = group_id
        self.of = of
        self.at_ms = at_ms
        self.position = -1

    def __len__(self) -> int:
        return len(self.of)

    def __iter__(self) -> Iterator[OffsetRecord]:
        for partition, value in self._values():
            yield OffsetRecord(self.group_id, self.of.topic, partition, value)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def _values(self) -> Iterator[tuple[int, CommittedOffset]]:
        at_ms, topic_id, position = self.at_ms, self.of.topic_id, self.position
        step = 0 if position < 0 else 1
        for partition, offset, leader_epoch in _ROW.iter_unpack(self.of.rows):
            yield partition, CommittedOffset(offset, leader_epoch, "", at_ms, None, topic_id, position)
            position += step

    def stored(self) -> dict[int, CommittedOffset]:
        """Return the rows by partition; the later of two for one partition counts."""
        return dict(self._values())

    def written(self) -> tuple[OffsetPairs, int]:
        """Key and value of each, and the bytes of all."""
        key, tail = _key_start(self.group_id, self.of.topic), _value_end(self.at_ms, self.of.topic_id)
        count = len(self.of.numbers)
        return OffsetPairs(count, [(self.of.rows, key, tail)]), count * (len(key) + len(tail) + _SIZE)


@lru_cache(maxsize=4096)
def _key_start(group_id: str, topic: str) -> bytes:
    """The key up to the partition."""
    return write_key(OffsetRecord(group_id, topic, 0, None))[:-4]


def _value_end(at_ms: int, topic_id: UUID | None) -> bytes:
    """The value from the empty metadata on."""
    return _NO_METADATA + offset_value_end(at_ms, topic_id)


class StoredRows(_Rows, Sequence[tuple[str, int, int]]):
    """Topic, partition and offset of a commit, for the event that it is stored."""

    __slots__ = ("_of",)

    def __init__(self, of: CommitRows) -> None:
        self._of = of

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        topic = self._of.topic
        for partition, offset, _ in _ROW.iter_unpack(self._of.rows):
            yield topic, partition, offset

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


class FetchedRows(_Rows, Sequence[FetchedOffset]):
    """Offsets of one topic as a group has them: all are there, none with metadata."""

    __slots__ = ("packed", "topic")

    def __init__(self, topic: str, packed: bytes) -> None:
        self.topic = topic
        self.packed = packed
        """The rows as they are in an answer of a flexible version."""

    @classmethod
    def of_commit(cls, rows: CommitRows) -> Self:
        """Make the rows of a response from the rows of a commit: only the end of each row differs."""
        parts = _parts(len(rows.numbers)).unpack(rows.rows)
        return cls(rows.topic, _FETCHED_END.join(parts) + _FETCHED_END)

    @classmethod
    def of_stored(cls, topic: str, numbers: Sequence[int], stored: Sequence[CommittedOffset]) -> Self:
        pack, rows = _FETCHED.pack, zip(numbers, stored, strict=True)
        parts = [pack(number, each.offset, each.leader_epoch, _FETCHED_END) for number, each in rows]
        return cls(topic, b"".join(parts))

    def __len__(self) -> int:
        return len(self.packed) // _FETCHED.size

    def __iter__(self) -> Iterator[FetchedOffset]:
        for partition, offset, leader_epoch, _ in _FETCHED.iter_unpack(self.packed):
            yield FetchedOffset(self.topic, partition, ErrorCode.NONE, offset, leader_epoch)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


@lru_cache(maxsize=1024)
def _numbers(rows: int) -> Struct:
    return Struct(">" + "i14x" * rows)


@lru_cache(maxsize=1024)
def _parts(rows: int) -> Struct:
    """Each row without its end."""
    return Struct("16s2x" * rows)


def read_commit_rows(
    frame: bytes, at: int, partitions: int, topic: str, topic_id: UUID | None, *, flexible: bool
) -> tuple[CommitRows, int] | None:
    """`partitions` of them and where they end, or None: some have metadata, or the frame ends before."""
    end = at + partitions * _SIZE
    if not 0 < partitions <= MOST_ROWS or end > len(frame):
        return None
    rows, ends = frame[at:end], _ENDS[flexible]
    if rows[16::_SIZE] != ends[:1] * partitions or rows[17::_SIZE] != ends[1:] * partitions:
        return None
    numbers = _numbers(partitions).unpack(rows)
    return CommitRows(topic, topic_id, rows, numbers, min(numbers), max(numbers)), end


OffsetCommitFields = tuple[str, int, str, str | None, str, bytes, tuple[int, ...], int, int]
"""Group, generation, member, instance; topic, rows, and their numbers, the lowest and the highest of these."""
_GENERATION = Struct(">i")


def read_usual_commit_plainly(frame: bytes, at: int) -> OffsetCommitFields | None:
    """The body of a flexible OffsetCommit that names its topic: one topic, no metadata, short names; else None.

    What is None is read with more care, which finds out what is unusual about it, or wrong.
    """
    try:
        group_id, at = _short(frame, at)
        (generation_id,) = _GENERATION.unpack_from(frame, at)
        member_id, at = _short(frame, at + 4)
        instance_id, at = _short(frame, at) if frame[at] else (None, at + 1)
        if frame[at] != 2:
            return None
        topic, at = _short(frame, at + 1)
        count, at = COMPACT.read_length(frame, at)
    except (IndexError, struct_error, UnicodeDecodeError, MalformedError):
        return None
    found = read_commit_rows(frame, at, count, topic, None, flexible=True)
    if found is None or frame[found[1] :] != b"\0\0":  # no tagged fields, of the topic and of the request
        return None
    of = found[0]
    return group_id, generation_id, member_id, instance_id, topic, of.rows, of.numbers, of.lowest, of.highest


def _short(frame: bytes, at: int) -> tuple[str, int]:
    end = at + frame[at]
    if not at < end <= len(frame) or end - at >= LONG_STRING:
        raise IndexError
    return frame[at + 1 : end].decode(), end


read_usual_commit = read_usual_commit_plainly
if not TYPE_CHECKING and IS_COMPILED:
    read_usual_commit = import_module("coterie.protocol._fast_records").read_usual_commit
