"""Walking through the batches of a segment file, in large reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from coterie.errors import MalformedError
from coterie.protocol.batch import HEADER_SIZE, BatchHeader, CorruptBatchError, OldMagicError, check_sum, parse_header
from coterie.protocol.records import EndMarker, marker_of
from coterie.storage.files import File

__all__ = ["CHUNK", "Found", "contents", "headers", "whole_batches"]

CHUNK = 256 * 1024


class Found(NamedTuple):
    position: int
    header: BatchHeader
    marker: EndMarker | None
    """The end of a transaction, if the batch is one."""


def headers(file: File, at: int, end: int, chunk: int = CHUNK) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch that starts in [at, end); raises where a header makes no sense."""
    data, data_at = b"", at
    while at < end:
        if at - data_at + HEADER_SIZE > len(data):
            data, data_at = file.pread(chunk, at), at
        header = _header(data, at - data_at, at)
        yield at, header
        at += header.size


def whole_batches(file: File, at: int, end: int, *, verify: bool) -> Iterator[Found]:
    """Each batch in [at, end), markers read; raises at the first that is not whole, with `verify` or not in sum."""
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
        yield Found(at, header, marker)
        at += header.size


def contents(file: File, end: int) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Each batch before `end`: some bytes, where in them it begins, its header. The checksum is the caller's."""
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
    except OldMagicError:  # nobody could have stored such a one here
        raise CorruptBatchError(f"at byte {position} no batch begins") from None


def _marker(data: bytes, header: BatchHeader, at: int) -> EndMarker | None:
    try:
        return marker_of(data, header, at)
    except MalformedError:
        return None  # in sum, so it is what was written: odd, but no reason to lose it
