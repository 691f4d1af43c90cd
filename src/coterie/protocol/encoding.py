"""Text, bytes and lengths in their two encodings: the old one, and the compact one of flexible versions (KIP-482).

The fast sibling of `buffer.py`, for what runs at every request. A reader takes a frame and a position and returns the
value and the position after it. It may run past the end: a slice is then too short and the position too large, or an
index or an unpacking raises. The caller checks once, after the last field, and says `MalformedError`; that is what
makes these fast. Nothing here allocates on the word of a length alone.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from coterie.errors import MalformedError
from coterie.protocol.buffer import MAX_STRING, uvarint

MAX_TAGS = 100
"""The most tagged fields of a message. Kafka's own have five or fewer; a limit bounds the work."""

LONG_STRING = 0x80
"""A compact string whose first byte is less than this has its length in that byte, with one added."""

_INT16, _INT32 = Struct(">h"), Struct(">i")
_INT16S = [_INT16.pack(n) for n in range(0x80)]


def read_uvarint(frame: bytes, at: int) -> tuple[int, int]:
    value = frame[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = frame[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
    raise MalformedError(f"a varint at byte {at - 4} does not end within five bytes")


def read_tags(frame: bytes, at: int) -> tuple[dict[int, int], int]:
    """Return where each tagged field begins. Most messages have none, and unknown ones are ignored."""
    count, at = read_uvarint(frame, at)
    if count > MAX_TAGS:
        raise MalformedError(f"{count} tagged fields before byte {at}: {MAX_TAGS} are allowed")
    tags = {}
    for _ in range(count):
        tag, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        tags[tag] = at
        at += size
    return tags, at


# --- lengths: -1 (in Kafka's readers, anything negative) is null ------------------------------------------------------


def _read_old_length(frame: bytes, at: int) -> tuple[int, int]:
    return _INT32.unpack_from(frame, at)[0], at + 4


def _read_compact_length(frame: bytes, at: int) -> tuple[int, int]:
    length = frame[at]
    if length < 0x80:
        return length - 1, at + 1
    length, at = read_uvarint(frame, at)
    return length - 1, at


# --- strings ----------------------------------------------------------------------------------------------------------
# Bytes that are no UTF-8 become replacement characters, as in Java, unless there would be no way to say it back.


def text_of(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        if len(text.encode()) > MAX_STRING:  # each bad byte becomes three
            raise MalformedError(f"a string of {len(data)} bytes that is not UTF-8") from None
        return text


def _read_old_string(frame: bytes, at: int) -> tuple[str | None, int]:
    length = _INT16.unpack_from(frame, at)[0]
    at += 2
    if length < 0:
        return None, at
    return text_of(frame[at : at + length]), at + length


def _read_compact_string(frame: bytes, at: int) -> tuple[str | None, int]:
    length = frame[at]
    at += 1
    if length >= 0x80:
        length, at = read_uvarint(frame, at - 1)
        if length > MAX_STRING + 1:
            raise MalformedError(f"a string of {length - 1} bytes at byte {at}: {MAX_STRING} are allowed")
    if not length:
        return None, at
    end = at + length - 1
    return text_of(frame[at:end]), end


def _old_string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return (_INT16S[len(data)] if len(data) < 0x80 else _INT16.pack(len(data))) + data


def _compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return uvarint(len(data) + 1) + data


# --- bytes ------------------------------------------------------------------------------------------------------------


def _read_old_bytes(frame: bytes, at: int) -> tuple[bytes | None, int]:
    length = _INT32.unpack_from(frame, at)[0]
    at += 4
    if length < 0:
        return None, at
    return frame[at : at + length], at + length


def _read_compact_bytes(frame: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _read_compact_length(frame, at)
    if length < 0:
        return None, at
    return frame[at : at + length], at + length


def _compact_length(length: int) -> bytes:
    return uvarint(length + 1)


class Encoding(NamedTuple):
    """One of the two ways to write down text, bytes and arrays. A length of -1 is null."""

    flexible: bool
    read_string: Callable[[bytes, int], tuple[str | None, int]]
    string: Callable[[str | None], bytes]
    read_bytes: Callable[[bytes, int], tuple[bytes | None, int]]
    read_length: Callable[[bytes, int], tuple[int, int]]
    """Read the length of bytes or of an array."""
    length: Callable[[int], bytes]
    tags: bytes
    """The bytes after a message without tagged fields."""


OLD = Encoding(
    flexible=False,
    read_string=_read_old_string,
    string=_old_string,
    read_bytes=_read_old_bytes,
    read_length=_read_old_length,
    length=_INT32.pack,
    tags=b"",
)
COMPACT = Encoding(
    flexible=True,
    read_string=_read_compact_string,
    string=_compact_string,
    read_bytes=_read_compact_bytes,
    read_length=_read_compact_length,
    length=_compact_length,
    tags=b"\0",
)
