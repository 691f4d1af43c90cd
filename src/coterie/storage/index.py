"""The two sparse indexes of a segment, in Kafka's format: rows of two numbers, both rising.

`.index`: offset (int32, relative to the segment's first) and the position (int32) of the batch that *ends* with it.
`.timeindex`: the latest timestamp so far (int64) and the offset (int32, relative) at which the batch it is in ends.

The active segment keeps its rows in memory; those of a sealed one are searched on disk, twenty small reads for a
million rows, so that old segments cost no memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import islice
from operator import lt
from struct import Struct
from typing import Protocol

from coterie.storage.files import File

__all__ = ["OFFSET_ROW", "TIME_ROW", "FileRows", "MemoryRows", "Rows"]

OFFSET_ROW = Struct(">ii")
TIME_ROW = Struct(">qi")


class Rows(Protocol):
    def __len__(self) -> int: ...

    @property
    def encoded_size(self) -> int: ...

    def ends_well(self) -> bool:
        """Whether there is no torn row, and the last one is beyond the one before."""

    def row(self, slot: int) -> tuple[int, int]: ...

    def first_at_most(self, target: int) -> int:
        """The last slot whose first number is at most `target`; -1 if there is none."""

    def second_at_most(self, target: int) -> int:
        """The same by the second number."""


class MemoryRows:
    def __init__(self, shape: Struct) -> None:
        self._shape = shape
        self._firsts = array("q")
        self._seconds = array("q")
        self._is_whole = True

    def __len__(self) -> int:
        return len(self._firsts)

    def row(self, slot: int) -> tuple[int, int]:
        return self._firsts[slot], self._seconds[slot]

    def first_at_most(self, target: int) -> int:
        return bisect_right(self._firsts, target) - 1

    def second_at_most(self, target: int) -> int:
        return bisect_right(self._seconds, target) - 1

    def append(self, first: int, second: int) -> None:
        self._firsts.append(first)
        self._seconds.append(second)

    def ends_well(self) -> bool:
        """Whether each row is beyond the one before, which from a file may be otherwise."""
        columns = (self._firsts, self._seconds)
        return self._is_whole and all(all(map(lt, column, islice(column, 1, None))) for column in columns)

    @property
    def encoded_size(self) -> int:
        return len(self._firsts) * self._shape.size

    def encode(self) -> bytes:
        return b"".join(map(self._shape.pack, self._firsts, self._seconds))

    @classmethod
    def decode(cls, shape: Struct, data: bytes) -> MemoryRows:
        """The rows in `data`, but for an unfinished one at its end."""
        rows = cls(shape)
        rows._is_whole = len(data) % shape.size == 0
        for first, second in shape.iter_unpack(data[: len(data) // shape.size * shape.size]):
            rows.append(first, second)
        return rows


class FileRows:
    def __init__(self, shape: Struct, file: File) -> None:
        self._shape = shape
        self._file = file

    def __len__(self) -> int:
        return self._file.size // self._shape.size

    @property
    def encoded_size(self) -> int:
        return self._file.size

    def ends_well(self) -> bool:
        if self._file.size % self._shape.size:
            return False
        last = len(self) - 1
        return last < 1 or all(map(lt, self.row(last - 1), self.row(last)))

    def row(self, slot: int) -> tuple[int, int]:
        first, second = self._shape.unpack(self._file.pread(self._shape.size, slot * self._shape.size))
        return first, second

    def first_at_most(self, target: int) -> int:
        return bisect_right(range(len(self)), target, key=lambda slot: self.row(slot)[0]) - 1

    def second_at_most(self, target: int) -> int:
        return bisect_right(range(len(self)), target, key=lambda slot: self.row(slot)[1]) - 1
