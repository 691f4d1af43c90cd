"""What the sources that `reader_source.py` makes call: values that are no plain numbers, and all that is rare."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any
from uuid import UUID

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.encoding import Encoding

__all__ = ["ERRORS", "Read", "count_reader", "never_null", "records_reader", "too_many", "uuid"]

Read = Callable[[bytes, int], tuple[Any, int]]

_ZERO_UUID = bytes(16)


class _Errors(dict[int, ErrorCode]):
    def __missing__(self, code: int) -> ErrorCode:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # a newer broker may know more codes


ERRORS = _Errors({int(code): code for code in ErrorCode})


@lru_cache(maxsize=1024)
def uuid(data: bytes) -> UUID | None:
    """The same few topics come again and again, and to make a UUID takes longer than the rest of a small message."""
    return None if data == _ZERO_UUID else UUID(bytes=data)


def too_many(most: int) -> MalformedError:
    return MalformedError(f"a request lists more than {most} entries, which is the most allowed; ask in several")


@cache
def never_null(read: Read, field: str, version: int) -> Read:
    def read_present(frame: bytes, at: int) -> tuple[Any, int]:
        value, end = read(frame, at)
        if value is None:
            raise MalformedError(f"{field} at byte {at} is null, which version {version} does not allow")
        return value, end

    return read_present


@cache
def count_reader(encoding: Encoding, size: int) -> Read:
    """How long a list is; a long one is no longer than the frame has room for, with `size` bytes or more for each.

    A short one needs no such care: what is not there raises when it is read.
    """

    def read_count(frame: bytes, at: int) -> tuple[int | None, int]:
        length, at = encoding.read_length(frame, at)
        if length < 0:
            return None, at
        if length * size > len(frame) - at:
            raise IndexError
        return length, at

    return read_count


@cache
def records_reader(encoding: Encoding) -> Read:
    def read_records(frame: bytes, at: int) -> tuple[memoryview | None, int]:
        length, at = encoding.read_length(frame, at)
        if length < 0:
            return None, at
        return memoryview(frame)[at : at + length], at + length

    return read_records
