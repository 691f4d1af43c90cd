"""`codec(API, Request)`: how one message of an API is read and written, in every version.

The reader and the writer of a version are made from the message's annotations when they are first needed: as source,
which `python -m coterie.protocol.apis fetch 17` prints. That takes half a millisecond, and they are two to five times
as fast.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from coterie.errors import MalformedError
from coterie.protocol.api import Api
from coterie.protocol.buffer import COMPACT, OLD, Encoding
from coterie.protocol.codec.reader_source import MAX_ENTRIES, NO_LIMIT, Read, message_reader
from coterie.protocol.codec.writer_source import Write, message_writer

T = TypeVar("T")
Parts = list[bytes | memoryview]

PAST_THE_END = (IndexError, struct.error)
"""The errors of reading beyond the last byte of a frame; a slice raises none."""


def past_the_end(api: Api, version: int, frame: bytes) -> MalformedError:
    return MalformedError(f"{api.name} version {version}: the message ends before its fields do ({len(frame)} bytes)")


def encoding_of(api: Api, version: int) -> Encoding:
    return COMPACT if version >= api.flexible else OLD


def most_entries(message: type) -> int:
    """Return how many entries a message may list: a `Request` is not trusted, a `Response` is."""
    return MAX_ENTRIES if message.__name__.lstrip("_") == "Request" else NO_LIMIT


def codec(api: Api, message: type[T]) -> tuple[Callable[[bytes, int, int], T], Callable[[T, int], bytes]]:
    """Return `read(frame, at, version)` and `write(value, version)`. Bytes after the message are ignored (rule C7)."""
    most = most_entries(message)
    readers: dict[int, Read] = {}
    kind: Any = message
    write_parts = parts_writer(api, message)

    def read(frame: bytes, at: int, version: int) -> T:
        reader = readers.get(version)
        if reader is None:
            reader = readers[version] = message_reader(kind, version, encoding_of(api, version), most)
        value: T
        try:
            value, end = reader(frame, at)
        except PAST_THE_END:
            raise past_the_end(api, version, frame) from None
        if end > len(frame):
            raise past_the_end(api, version, frame)
        return value

    def write(value: T, version: int) -> bytes:
        return b"".join(write_parts(value, version))

    return read, write


def parts_writer(api: Api, message: type[T]) -> Callable[[T, int], Parts]:
    """Return a `write` that does not copy large byte strings, for messages with records."""
    writers: dict[int, Write] = {}
    kind: Any = message

    def write(value: T, version: int) -> Parts:
        writer = writers.get(version)
        if writer is None:
            writer = writers[version] = message_writer(kind, version, encoding_of(api, version))
        parts: Parts = []
        writer(parts.append, value)
        return parts

    return write


# The following are for readers that are written by hand. They refuse what generated readers refuse. Like those of
# `protocol/buffer.py` they may run past the end: the caller checks that after the last field.


def read_text(frame: bytes, at: int, encoding: Encoding) -> tuple[str, int]:
    text, end = encoding.read_string(frame, at)
    if text is None:
        raise MalformedError(f"the text at byte {at} is null, which is not allowed there")
    return text, end


def read_count(frame: bytes, at: int, encoding: Encoding) -> tuple[int, int]:
    """Return the length of a list, at most what the frame can have and what a request may list."""
    count, at = encoding.read_length(frame, at)
    if count < 0:
        raise MalformedError(f"the list before byte {at} is null, which is not allowed there")
    if count > len(frame) - at:
        raise IndexError
    if count > MAX_ENTRIES:
        raise too_many()
    return count, at


def too_many() -> MalformedError:
    return MalformedError(f"a request lists more than {MAX_ENTRIES} entries, which is the most allowed; ask in several")
