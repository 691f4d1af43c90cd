"""The files of a segment, in Kafka's format: their names, the batches in a `.log` file, and the rows of its indexes.

A name is the segment's base offset in 20 digits and a suffix. The two indexes are sparse; their rows have two numbers,
both rising:

- `.index`: an offset (int32, relative to the base offset) and the position (int32) of the batch that *ends* with it.
- `.timeindex`: the latest timestamp so far (int64) and the last offset (int32, relative) of the batch that has it.

The active segment keeps its rows in memory. Those of a sealed segment are searched on disk, twenty small reads for a
million rows, so that old segments take no memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import lt
from struct import Struct
from typing import NamedTuple, Protocol

from coterie.errors import MalformedError
from coterie.protocol.batch import HEADER_SIZE, BatchHeader, CorruptBatchError, OldMagicError, check_sum, parse_header
from coterie.protocol.records import EndMarker, marker_of
from coterie.storage.files import File

LOG_STARTS = "log-start-offset-checkpoint"
LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
"""The aborted transactions (`transaction_index.py`); only if there are any."""
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
"""Ends the names of a compacted segment's files until all of it is on disk."""
SWAP = ".swap"
"""Ends the same names from then on: the segment replaces all segments between its first and its last offset."""
LEFTOVERS = (DELETED, CLEANED, ".tmp")
"""Endings of files that an interrupted operation leaves; nothing refers to them."""

CHUNK = 256 * 1024
"""The size of a read while batches are walked through."""
OFFSET_ROW = Struct(">ii")
TIME_ROW = Struct(">qi")
_DIGITS = 20


def named(offset: int, suffix: str) -> str:
    return f"{offset:0{_DIGITS}d}{suffix}"


def offsets_of(names: Iterable[str], suffix: str) -> list[int]:
    """Return the offsets of all files with this suffix, ascending; other names are ignored."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if len(stem) == _DIGITS and stem.isascii() and stem.isdigit())


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


class IndexRows(Protocol):
    """The rows of an index."""

    def __len__(self) -> int: ...

    @property
    def encoded_size(self) -> int: ...

    def ends_well(self) -> bool:
        """Return whether there is no torn row, and the last row is beyond the one before."""

    def row(self, slot: int) -> tuple[int, int]: ...

    def first_at_most(self, target: int) -> int:
        """Return the last slot whose first number is at most `target`; -1 if there is none."""

    def second_at_most(self, target: int) -> int:
        """Return the last slot whose second number is at most `target`; -1 if there is none."""


class MemoryRows:
    """IndexRows of the active segment's index, which grows."""

    def __init__(self, shape: Struct) -> None:
        self._shape = shape
        self._firsts = array("q")
        self._seconds = array("q")
        self._is_whole = True
        self.encoded_size = 0

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
        self.encoded_size += self._shape.size

    def ends_well(self) -> bool:
        """Return whether each row is beyond the one before; rows read from a file may not be."""
        columns = (self._firsts, self._seconds)
        return self._is_whole and all(all(map(lt, column, islice(column, 1, None))) for column in columns)

    def encode(self) -> bytes:
        return b"".join(map(self._shape.pack, self._firsts, self._seconds))

    @classmethod
    def decode(cls, shape: Struct, data: bytes) -> MemoryRows:
        """Return the rows in `data` without an unfinished one at its end."""
        rows = cls(shape)
        rows._is_whole = len(data) % shape.size == 0
        for first, second in shape.iter_unpack(data[: len(data) // shape.size * shape.size]):
            rows.append(first, second)
        return rows


class FileRows:
    """Rows of an index file, which are read from disk when they are needed."""

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


class BatchInFile(NamedTuple):
    """A batch of a segment and its position in the file."""

    position: int
    header: BatchHeader
    marker: EndMarker | None
    """The end of a transaction, if the batch is one."""


def headers(file: File, at: int, end: int, chunk: int = CHUNK) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch that starts in [at, end); raise `BatchError` at an invalid header."""
    data, data_at = b"", at
    while at < end:
        if at - data_at + HEADER_SIZE > len(data):
            data, data_at = file.pread(chunk, at), at
        header = _header(data, at - data_at, at)
        yield at, header
        at += header.size


def whole_batches(file: File, at: int, end: int, *, verify: bool) -> Iterator[BatchInFile]:
    """Yield each batch in [at, end), with its transaction marker if it is one.

    Raises `BatchError` at the first that is not whole or, with `verify`, whose checksum is wrong.
    """
    data, data_at = b"", at
    while at < end:
        if at - data_at + HEADER_SIZE > len(data):
            data, data_at = file.pread(CHUNK, at), at
        header = _header(data, at - data_at, at)
        if header.size > end - at:
            raise CorruptBatchError(f"the batch at byte {at} says it has {header.size} bytes; {end - at} are there")
        if header.last_offset_delta < 0:
            raise CorruptBatchError(f"the batch at byte {at} ends {-header.last_offset_delta} offsets before it begins")
        marker = None
        if verify or header.is_control:
            if at - data_at + header.size > len(data):
                data, data_at = file.pread(max(CHUNK, header.size), at), at
            if verify:
                check_sum(data, header, at - data_at)
            if header.is_control:
                marker = _marker(data, header, at - data_at)
        yield BatchInFile(at, header, marker)
        at += header.size


def contents(file: File, end: int) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Yield for each batch before `end` some bytes, where in them it begins, and its header.

    The caller verifies the checksum.
    """
    at = 0
    data, data_at = b"", at
    while at < end:
        if at - data_at + HEADER_SIZE > len(data):
            data, data_at = file.pread(CHUNK, at), at
        header = _header(data, at - data_at, at)
        if at - data_at + header.size > len(data):
            data, data_at = file.pread(max(CHUNK, min(header.size, end - at)), at), at
        yield data, at - data_at, header
        at += header.size


def _header(data: bytes, at: int, position: int) -> BatchHeader:
    try:
        return parse_header(data, at)
    except OldMagicError:  # such a batch is never stored
        raise CorruptBatchError(f"at byte {position} no batch begins") from None


def _marker(data: bytes, header: BatchHeader, at: int) -> EndMarker | None:
    try:
        return marker_of(data, header, at)
    except MalformedError:
        return None  # the checksum is right, so this is what was written: it is kept, though it cannot be read
