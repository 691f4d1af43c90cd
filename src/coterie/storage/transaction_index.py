"""The aborted transactions of a segment, in Kafka's format (`.txnindex`), so that readers can skip their records.

A row is written when the marker of an abort is appended: so the rows are in the order of the markers (TL5, TL10). A
segment without aborted transactions has no such file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from coterie.errors import MalformedError
from coterie.storage.files import File

_ROW = Struct(">hqqqq")
_VERSION = 0
_ROWS_AT_ONCE = 1024


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    """The offset of its first record in the partition."""
    last_offset: int
    """The offset of its marker."""
    last_stable_offset: int
    """The last stable offset after it: all transactions before it are decided."""


def encode_rows(rows: Sequence[AbortedTransaction]) -> bytes:
    return b"".join([_ROW.pack(_VERSION, *row) for row in rows])


def decode_rows(data: bytes, base_offset: int, next_offset: int) -> list[AbortedTransaction]:
    """Read the index of a segment; raise `MalformedError` if it cannot be that of a segment with these offsets."""
    if len(data) % _ROW.size:
        raise MalformedError(f"an index of transactions of {len(data)} bytes; a row has {_ROW.size}")
    rows = []
    for version, *numbers in _ROW.iter_unpack(data):
        row = AbortedTransaction(*numbers)
        if version != _VERSION or not row.first_offset <= row.last_offset or not base_offset <= row.last_offset:
            raise MalformedError(f"an index of transactions with {row}, version {version}")
        rows.append(row)
    if rows and rows[-1].last_offset >= next_offset:
        raise MalformedError(f"an index of transactions with {rows[-1]}; the segment ends at {next_offset}")
    if any(one.last_offset >= other.last_offset for one, other in pairwise(rows)):
        raise MalformedError("an index of transactions that is not in the order of the markers")
    return rows


def rows_from(rows: Sequence[AbortedTransaction], from_offset: int) -> Iterator[AbortedTransaction]:
    """Yield the rows of markers at or after an offset."""
    for slot in range(bisect_left(rows, from_offset, key=lambda row: row.last_offset), len(rows)):
        yield rows[slot]


def stored_rows_from(file: File, from_offset: int) -> Iterator[AbortedTransaction]:
    """Yield the same from the file of a sealed segment; the first one is searched for on disk."""
    count = file.size // _ROW.size

    def last_offset(slot: int) -> int:
        found: int = _ROW.unpack(file.pread(_ROW.size, slot * _ROW.size))[3]
        return found

    slot = bisect_left(range(count), from_offset, key=last_offset)
    while slot < count:
        data = file.pread(_ROWS_AT_ONCE * _ROW.size, slot * _ROW.size)
        for _, *numbers in _ROW.iter_unpack(data[: len(data) // _ROW.size * _ROW.size]):
            yield AbortedTransaction(*numbers)
        slot += _ROWS_AT_ONCE
