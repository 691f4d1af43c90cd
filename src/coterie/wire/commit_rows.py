"""A commit as most are: partitions of one topic, none with metadata. They stay the bytes that came, from frame to log.

A commit of a hundred partitions would otherwise be hundreds of objects, each made to be taken apart again; and so would
be the answer to a fetch of as many offsets. The classes are sequences of the words of `messages.py`, which are made
when somebody asks for one; properties hold all that is done with the columns equal to what is done with the words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count as counting
from itertools import repeat
from struct import Struct
from typing import Any
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.messages import CommitPartition, CommittedOffset, FetchedOffset, OffsetRecord
from coterie.wire.offsets_topic import write_key, write_offset_value
from coterie.wire.records import OffsetPairs

__all__ = ["MOST_ROWS", "CommitRows", "FetchedRows", "OffsetRows", "read_commit_rows"]

_ROW = "iqiH"  # partition, offset, leader epoch, and how a row without metadata ends
_SIZE = 18
_ENDS = {
    True: 0x0100,  # the length of no metadata, and that there are no tagged fields
    False: 0,
}
"""By whether it is flexible."""
_NO_METADATA = b"\x01"  # its length
MOST_ROWS = 10_000
"""Partitions of a request that are treated so."""
_VALUE_START = 15  # what is before the commit's time: version, offset, leader epoch, metadata


class _Rows:
    """What both have in common; equal to any sequence of the same words."""

    __slots__ = ()

    __iter__: Callable[[], Iterator[Any]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class CommitRows(_Rows, Sequence[CommitPartition]):
    """Partitions of one topic as they were sent; that they exist is for whoever knows the topics to say."""

    __slots__ = ("epochs", "numbers", "offsets", "rows", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: UUID | None, rows: bytes, fields: tuple[int, ...]) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.rows = rows
        self.numbers, self.offsets, self.epochs = fields[::4], fields[1::4], fields[2::4]

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[CommitPartition]:
        for partition, offset, leader_epoch in zip(self.numbers, self.offsets, self.epochs, strict=True):
            yield CommitPartition(self.topic, partition, offset, leader_epoch, "", self.topic_id)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


class OffsetRows(_Rows, Sequence[OffsetRecord]):
    """What is written of a commit at `at_ms`."""

    __slots__ = ("at_ms", "group_id", "of")

    def __init__(self, group_id: str, of: CommitRows, at_ms: int) -> None:
        self.group_id = group_id
        self.of = of
        self.at_ms = at_ms

    def __len__(self) -> int:
        return len(self.of)

    def __iter__(self) -> Iterator[OffsetRecord]:
        for partition, value in zip(self.of.numbers, self._values(repeat(-1)), strict=True):
            yield OffsetRecord(self.group_id, self.of.topic, partition, value)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def _values(self, positions: Iterable[int]) -> Iterator[CommittedOffset]:
        of = self.of
        same = repeat(""), repeat(self.at_ms), repeat(None), repeat(of.topic_id)
        return map(CommittedOffset, of.offsets, of.epochs, *same, positions)

    def offsets(self) -> list[tuple[str, int, int]]:
        """Topic, partition, offset."""
        return list(zip(repeat(self.of.topic), self.of.numbers, self.of.offsets, strict=False))

    def stored(self, position: int) -> dict[int, CommittedOffset]:
        """By partition, when they are in the log from `position` on; of two for one the later counts."""
        return dict(zip(self.of.numbers, self._values(counting(position)), strict=True))

    def written(self) -> tuple[OffsetPairs, int]:
        """Key and value of each, and the bytes of all."""
        key, tail = _key_start(self.group_id, self.of.topic), _value_end(self.at_ms, self.of.topic_id)
        count = len(self.of.numbers)
        return OffsetPairs(count, [(self.of.rows, key, tail)]), count * (len(key) + len(tail) + _SIZE)


@lru_cache(maxsize=4096)
def _key_start(group_id: str, topic: str) -> bytes:
    """Up to the partition."""
    return write_key(OffsetRecord(group_id, topic, 0, None))[:-4]


@lru_cache(maxsize=64)
def _value_end(at_ms: int, topic_id: UUID | None) -> bytes:
    """From no metadata on."""
    value = CommittedOffset(0, 0, "", at_ms, None, topic_id)
    return _NO_METADATA + write_offset_value(value, 4)[_VALUE_START:]


class FetchedRows(_Rows, Sequence[FetchedOffset]):
    """Offsets of one topic as a group has them: all are there, none with metadata."""

    __slots__ = ("epochs", "numbers", "offsets", "topic")

    def __init__(self, topic: str, numbers: Sequence[int], stored: Sequence[CommittedOffset]) -> None:
        self.topic = topic
        self.numbers = numbers
        self.offsets = [each.offset for each in stored]
        self.epochs = [each.leader_epoch for each in stored]

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[FetchedOffset]:
        for partition, offset, leader_epoch in zip(self.numbers, self.offsets, self.epochs, strict=True):
            yield FetchedOffset(self.topic, partition, ErrorCode.NONE, offset, leader_epoch)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def packed(self) -> bytes:
        """As in an answer of a flexible version."""
        rows = len(self.numbers)
        fields = [_NO_METADATA[0]] * (4 * rows)
        fields[::4], fields[1::4], fields[2::4] = self.numbers, self.offsets, self.epochs
        return _fetched_shape(rows).pack(*fields)


@lru_cache(maxsize=1024)
def _fetched_shape(rows: int) -> Struct:
    return Struct(">" + "iqiBxxx" * rows)  # ..., the length of no metadata, no error, no tagged fields


@lru_cache(maxsize=1024)
def _shape(rows: int) -> Struct:
    return Struct(">" + _ROW * rows)


def read_commit_rows(
    frame: bytes, at: int, partitions: int, topic: str, topic_id: UUID | None, *, flexible: bool
) -> tuple[CommitRows, int] | None:
    """`partitions` of them and where they end, or None: some have metadata, or the frame ends before."""
    end = at + partitions * _SIZE
    if not 0 < partitions <= MOST_ROWS or end > len(frame):
        return None
    rows = frame[at:end]
    fields = _shape(partitions).unpack(rows)
    if fields[3::4].count(_ENDS[flexible]) != partitions:
        return None
    return CommitRows(topic, topic_id, rows, fields), end
