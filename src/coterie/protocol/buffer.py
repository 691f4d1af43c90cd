"""Kafka's primitive types: a `Reader` that never reads past the end, a `Writer`, and functions for what runs at every
request.

Everything is big-endian. "Compact" forms (KIP-482) write a length plus one as an unsigned varint; in all forms a
negative length is null, as in Kafka's own readers. A length is checked against the bytes that are left before anything
is allocated, so a few hostile bytes cost no memory. What cannot be read raises `MalformedError`, with where and why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, error, pack, unpack_from
from typing import NamedTuple, Never
from uuid import UUID

from coterie.errors import MalformedError

Buffer = bytes | bytearray | memoryview

MAX_STRING = 0x7FFF
"""The longest text, in UTF-8 bytes, that an int16 length can announce."""

_INT8, _INT16, _INT32, _INT64 = (Struct(">" + code) for code in "bhiq")
_SMALL_UVARINTS = [bytes((value,)) for value in range(0x80)]


def uvarint(value: int) -> bytes:
    """Seven bits a byte, lowest first; the top bit says that more follow."""
    if 0 <= value < 0x80:  # nearly every length there is
        return _SMALL_UVARINTS[value]
    if value < 0:
        raise MalformedError(f"an unsigned varint cannot hold {value}")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Reader:
    """Takes one value after the other from `data`; `what` names the message in errors."""

    __slots__ = ("_data", "_size", "_what", "position")

    def __init__(self, data: Buffer, what: str = "message", position: int = 0) -> None:
        self._data = data
        self._size = len(data)
        self._what = what
        self.position = position

    @property
    def remaining(self) -> int:
        return self._size - self.position

    def malformed(self, expected: str) -> MalformedError:
        """The error to raise when `expected` is not what is there."""
        return MalformedError(
            f"{self._what}: expected {expected} at byte {self.position}; {self.remaining} of {self._size} bytes left"
        )

    # --- numbers ------------------------------------------------------------------------------------------------------

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def _number(self, shape: Struct) -> int:
        try:
            value: int = shape.unpack_from(self._data, self.position)[0]
        except error:
            raise self.malformed(f"an int{8 * shape.size}") from None
        self.position += shape.size
        return value

    def uvarint(self) -> int:
        """An unsigned varint of at most 32 bits: lengths, counts and tags."""
        at = self.position
        if at < self._size and self._data[at] < 0x80:  # nearly every length there is
            self.position = at + 1
            return self._data[at]
        value = shift = 0
        while shift < 32:
            if at >= self._size:
                raise self.malformed("a varint that ends")
            byte = self._data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 32:
                    break
                self.position = at
                return value
            shift += 7
        raise self.malformed("a varint of at most 32 bits")

    # --- text and bytes -----------------------------------------------------------------------------------------------

    def take(self, length: int) -> Buffer:
        """The next `length` bytes, as a slice of the data."""
        at = self.position
        if not 0 <= length <= self._size - at:
            raise self.malformed(f"{length} bytes")
        self.position = at + length
        return self._data[at : at + length]

    def _text(self, length: int) -> str:
        at = self.position
        end = at + length
        if end > self._size:
            raise self.malformed(f"a string of {length} bytes")
        try:
            text = str(self._data[at:end], "utf-8")
        except UnicodeDecodeError:
            raise self.malformed(f"{length} bytes of UTF-8") from None
        self.position = end
        return text

    def string(self) -> str:
        length = self.int16()
        return self._text(length) if length >= 0 else self._null("a string")

    def nullable_string(self) -> str | None:
        length = self.int16()
        return self._text(length) if length >= 0 else None

    def compact_string(self) -> str:
        length = self.uvarint()
        return self._text(length - 1) if length else self._null("a compact string")

    def nullable_compact_string(self) -> str | None:
        length = self.uvarint()
        return self._text(length - 1) if length else None

    def binary(self) -> bytes:
        length = self.int32()
        return bytes(self.take(length)) if length >= 0 else self._null("bytes")

    def nullable_binary(self) -> bytes | None:
        length = self.int32()
        return bytes(self.take(length)) if length >= 0 else None

    def compact_binary(self) -> bytes:
        length = self.uvarint()
        return bytes(self.take(length - 1)) if length else self._null("compact bytes")

    def uuid(self) -> UUID:
        return UUID(bytes=bytes(self.take(16)))

    # --- arrays and tagged fields -------------------------------------------------------------------------------------

    def array_length(self, element_size: int) -> int:
        """Return how many elements follow, each of at least `element_size` bytes."""
        return self._length(self.int32(), element_size)

    def compact_array_length(self, element_size: int) -> int:
        return self._length(self.uvarint() - 1, element_size)

    def _length(self, length: int, element_size: int) -> int:
        if length < 0:
            self._null("an array")
        if length * element_size > self._size - self.position:
            raise self.malformed(f"an array of {length} elements of at least {element_size} bytes")
        return length

    def int32_array(self) -> list[int]:
        """The whole run at once: an assignment may hold a million partitions."""
        length = self.array_length(4)
        values = list(unpack_from(f">{length}i", self._data, self.position))
        self.position += 4 * length
        return values

    def tagged_fields(self) -> dict[int, bytes]:
        """Field by tag; a reader takes those it knows and leaves the others alone (KIP-482)."""
        fields = {}
        for _ in range(self._length(self.uvarint(), 2)):
            tag = self.uvarint()
            fields[tag] = bytes(self.take(self.uvarint()))
        return fields

    def _null(self, expected: str) -> Never:
        raise self.malformed(f"{expected}, but it is null")


class Writer:
    """Puts one value after the other; `done()` is what was written."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def done(self) -> bytes:
        return b"".join(self._parts)

    def raw(self, data: bytes) -> None:
        self._parts.append(data)

    def int8(self, value: int) -> None:
        self._number(_INT8, value)

    def int16(self, value: int) -> None:
        self._number(_INT16, value)

    def int32(self, value: int) -> None:
        self._number(_INT32, value)

    def int64(self, value: int) -> None:
        self._number(_INT64, value)

    def _number(self, shape: Struct, value: int) -> None:
        try:
            self._parts.append(shape.pack(value))
        except error:
            raise MalformedError(f"{value} does not fit into an int{8 * shape.size}") from None

    def uvarint(self, value: int) -> None:
        self._parts.append(uvarint(value))

    def string(self, value: str) -> None:
        data = value.encode()
        if len(data) > MAX_STRING:
            raise MalformedError(f"a string of {len(data)} bytes: Kafka's int16 length allows {MAX_STRING}")
        self._parts += _INT16.pack(len(data)), data

    def nullable_string(self, value: str | None) -> None:
        self.int16(-1) if value is None else self.string(value)

    def compact_string(self, value: str) -> None:
        data = value.encode()
        self._parts += uvarint(len(data) + 1), data

    def nullable_compact_string(self, value: str | None) -> None:
        self.uvarint(0) if value is None else self.compact_string(value)

    def binary(self, value: bytes) -> None:
        self._parts += _INT32.pack(len(value)), value

    def nullable_binary(self, value: bytes | None) -> None:
        self.int32(-1) if value is None else self.binary(value)

    def compact_binary(self, value: bytes) -> None:
        self._parts += uvarint(len(value) + 1), value

    def uuid(self, value: UUID) -> None:
        self._parts.append(value.bytes)

    def array_length(self, length: int) -> None:
        self.int32(length)

    def compact_array_length(self, length: int) -> None:
        self.uvarint(length + 1)

    def int32_array(self, values: Sequence[int]) -> None:
        try:
            self._parts.append(pack(f">i{len(values)}i", len(values), *values))
        except error:
            raise MalformedError("an int32 array holds a value that does not fit into an int32") from None

    def tagged_fields(self, fields: dict[int, bytes]) -> None:
        self.uvarint(len(fields))
        for tag, data in sorted(fields.items()):
            self._parts += uvarint(tag), uvarint(len(data)), data


# --- the two encodings of text, bytes and lengths: the old one, and the compact one (KIP-482) -------------------------
# These run at every request. A reader takes a frame and a position and returns the value and the position after it. It
# may run past the end: a slice is then too short and the position too large, or an index or an unpacking raises. The
# caller checks once, after the last field, and says `MalformedError`; that is what makes these fast. Nothing here
# allocates on the word of a length alone.

MAX_TAGS = 100
"""The most tagged fields of a message. Kafka's own have five or fewer; a limit bounds the work."""

LONG_STRING = 0x80
"""A compact string whose first byte is less than this has its length in that byte, with one added."""

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
    size = len(data) + 1
    return (_SMALL_UVARINTS[size] if size < 0x80 else uvarint(size)) + data


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
    return _SMALL_UVARINTS[length + 1] if -1 <= length < 0x7F else uvarint(length + 1)


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
