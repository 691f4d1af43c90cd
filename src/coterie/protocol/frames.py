"""Frames (four bytes of size, then a message): cut them out of a stream, read headers, pack requests and answers.

This runs for every request. A frame is `bytes`; the body begins at a position in it, so that nothing is copied to
remove the header. `FrameCutter` joins pieces of a stream that the event loop allocates, which suits many small frames.
`FrameReader` gives the socket a buffer to fill (asyncio.BufferedProtocol): an answer of a megabyte is not copied.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as struct_error

from coterie.errors import MalformedError
from coterie.protocol.buffer import read_tags

_SIZE = Struct(">i")
_SIZE_CORRELATION = Struct(">ii")
_SIZE_CORRELATION_TAGS = Struct(">iix")  # x: no tagged fields
_REQUEST = Struct(">hhih")
_REQUEST_FRAME = Struct(">ihhi")
_CORRELATION = Struct(">i")

_CLIENT_ID_AT = _REQUEST.size

SMALL_PIECE = 4096


class FrameCutter:
    """Cuts frames out of the pieces of a stream. It holds what has arrived, never what a size only announces.

    After `MalformedError` the stream cannot be understood any more: close it.
    """

    __slots__ = ("_at", "_missing", "_pieces", "_uncut", "held", "max_size")

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._pieces: list[bytes | bytearray] = []
        self.held = 0
        """Bytes that have arrived and are not in a frame that was returned."""
        self._missing = 0
        """Bytes still to come before there is something to cut; 0 if no frame is incomplete."""
        self._uncut = b""
        self._at = 0
        """The position in `_uncut` at which the next frame begins."""

    @property
    def has_more(self) -> bool:
        """True if there may be frames that were not returned yet: see `more`."""
        return bool(self._uncut)

    @property
    def is_within_frame(self) -> bool:
        """True if a part of a frame has arrived."""
        return self._missing > 0

    def feed(self, data: bytes, most: int = sys.maxsize) -> list[bytes]:
        """Return the frames that `data` completes, in order, without sizes: at most `most`; `more` has the rest."""
        if not self.held and len(data) - 4 == int.from_bytes(data[:4], "big") <= self.max_size:
            return [data[4:]]  # one whole frame, as most are
        if self._uncut:
            self._uncut += data
            self.held += len(data)
            return []
        if self._missing:
            self._keep(data)
            if len(data) < self._missing:
                self._missing -= len(data)
                return []
            data = b"".join(self._pieces)
            self._pieces = []
            self._missing = 0
        return self._cut(data, 0, most)

    def more(self, most: int) -> list[bytes]:
        """Return the next frames that `feed` left."""
        data, at = self._uncut, self._at
        self._uncut, self._at = b"", 0
        return self._cut(data, at, most)

    def _cut(self, data: bytes, at: int, most: int) -> list[bytes]:
        frames: list[bytes] = []
        self.held = 0
        length = len(data)
        while length - at >= 4:
            if len(frames) == most:
                self._uncut, self._at, self.held = data, at, length - at
                return frames
            (size,) = _SIZE.unpack_from(data, at)
            if not 0 <= size <= self.max_size:
                raise MalformedError(
                    f"a frame of {size} bytes was announced; a size is 0 to {self.max_size}. "
                    "Does the other side speak Kafka's protocol, without TLS?"
                )
            end = at + 4 + size
            if end > length:
                self._hold(data[at:], end - length)
                return frames
            frames.append(data[at + 4 : end])
            at = end
        if at < length:
            self._hold(data[at:], 4 - (length - at))
        return frames

    def clear(self) -> None:
        """Drop what is held, because the stream has ended."""
        self._pieces = []
        self._uncut, self._at = b"", 0
        self.held = self._missing = 0

    def _hold(self, rest: bytes, missing: int) -> None:
        self._keep(rest)
        self._missing = missing

    def _keep(self, data: bytes) -> None:
        """Keep large pieces as they are, to be copied once, and join small ones, which would take much memory each."""
        self.held += len(data)
        if len(data) >= SMALL_PIECE:
            self._pieces.append(data)
        elif self._pieces and isinstance(self._pieces[-1], bytearray):
            self._pieces[-1] += data
        else:
            self._pieces.append(bytearray(data))


RequestHeader = tuple[int, int, int, int]
"""API key, version, correlation id, and where the body begins in the frame; a plain tuple, which costs nothing."""


def read_request_header(frame: bytes, first_flexible: Mapping[int, int]) -> RequestHeader:
    """Read a header; `first_flexible` has for each API the first version whose header has tagged fields.

    The header of another API cannot be read: `MalformedError`, which closes the connection, as in Kafka.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST.unpack_from(frame)
        flexible = first_flexible[api_key]
        at = _CLIENT_ID_AT
        if length > 0:
            at += length
        if version >= flexible:
            at = at + 1 if not frame[at] else read_tags(frame, at)[1]  # nobody needs them (rule C7)
    except (struct_error, IndexError):
        raise MalformedError(f"a frame of {len(frame)} bytes ends within its request header") from None
    except KeyError:
        raise MalformedError(f"API key {api_key} is not one of ours, so its request cannot be read") from None
    if at > len(frame):
        raise MalformedError(f"a frame of {len(frame)} bytes ends within its request header")
    return api_key, version, correlation_id, at


def usual_body_at(frame: bytes) -> int | None:
    """Return where the body of a flexible request begins; None if its header is unusual or not whole.

    A usual header has a client id, and no tagged fields.
    """
    at = _CLIENT_ID_AT + 1 + (frame[8] << 8 | frame[9])
    return None if frame[8] >= 0x80 or frame[at - 1 : at] != b"\0" else at


def client_id_of(frame: bytes) -> str:
    """Return the client id of a request whose header was read; "" if it has none (rule 3). Few APIs need it."""
    length = frame[_CLIENT_ID_AT - 2] << 8 | frame[_CLIENT_ID_AT - 1]
    return "" if length >= 0x8000 else frame[_CLIENT_ID_AT : _CLIENT_ID_AT + length].decode("utf-8", "replace")


def response_frame(correlation_id: int, body: bytes, *, flexible: bool) -> bytes:
    """Return a response; `flexible`: its header has tagged fields, of which none are sent."""
    if flexible:
        return _SIZE_CORRELATION_TAGS.pack(len(body) + 5, correlation_id) + body
    return _SIZE_CORRELATION.pack(len(body) + 4, correlation_id) + body


def response_frame_parts(
    correlation_id: int, parts: Sequence[bytes | memoryview], *, flexible: bool
) -> list[bytes | memoryview]:
    """Return a response in parts, for a vectored write: records are not copied."""
    size = sum(map(len, parts))
    if flexible:
        return [_SIZE_CORRELATION_TAGS.pack(size + 5, correlation_id), *parts]
    return [_SIZE_CORRELATION.pack(size + 4, correlation_id), *parts]


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes, *, flexible: bool
) -> bytes:
    """Return a request. The client id is not compact in flexible versions either."""
    name = b"\xff\xff" if client_id is None else client_id_bytes(client_id)
    return request_frame_of(api_key, version, correlation_id, name + b"\0" if flexible else name, body)


def client_id_bytes(client_id: str) -> bytes:
    """Return a client id as it is in the header of a request."""
    data = client_id.encode()
    return len(data).to_bytes(2, "big") + data


def request_frame_of(api_key: int, version: int, correlation_id: int, header_end: bytes, body: bytes) -> bytes:
    """Return a request; `header_end` is its client id, with a byte for its tagged fields if the version has them."""
    size = 8 + len(header_end) + len(body)
    return _REQUEST_FRAME.pack(size, api_key, version, correlation_id) + header_end + body


def read_response_header(frame: bytes, *, flexible: bool) -> tuple[int, int]:
    """Return the correlation id and where the body begins."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        at = 4 if not flexible else 5 if not frame[4] else read_tags(frame, 4)[1]
    except (struct_error, IndexError):
        raise MalformedError(f"a frame of {len(frame)} bytes ends within its response header") from None
    if at > len(frame):
        raise MalformedError(f"a frame of {len(frame)} bytes ends within its response header")
    return correlation_id, at


SMALL = 64 * 1024
"""The size of the buffer for small frames."""
FIRST_GUESS = 2 * 1024 * 1024


class FrameReader:
    """Cuts frames out of a buffer that the socket fills. It never allocates all that a size only announces.

    Small frames arrive in `shared`, `SMALL` bytes that many readers may use: a reader copies what it has not returned
    when `filled` returns. A large frame gets a buffer of its own.

    After `MalformedError` the stream cannot be understood any more: close it.
    """

    __slots__ = ("_at", "_large", "_max_size", "_missing", "_rest", "_shared")

    def __init__(self, max_size: int, shared: bytearray) -> None:
        self._max_size = max_size
        self._shared = shared
        self._rest = b""
        """The beginning of a small frame."""
        self._large: bytearray | None = None
        self._at = 0
        self._missing = 0
        """The bytes of the large frame that are missing; `_at` of them have arrived."""

    @property
    def held(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._rest) if self._large is None else self._at

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes; it is never full."""
        if self._large is not None:
            return memoryview(self._large)[self._at :]
        if not self._rest:
            return memoryview(self._shared)
        self._shared[: len(self._rest)] = self._rest
        return memoryview(self._shared)[len(self._rest) :]

    def filled(self, count: int) -> list[bytes | bytearray]:
        """Return the frames that `count` new bytes complete, in order, without their sizes."""
        if self._large is not None:
            return self._filled_large(self._large, count)
        shared = self._shared
        if not self._rest and count - 4 == int.from_bytes(shared[:4], "big") <= self._max_size:
            return [bytes(shared[4:count])]  # one whole frame, as most are
        return self._cut(len(self._rest) + count)

    def _filled_large(self, large: bytearray, count: int) -> list[bytes | bytearray]:
        self._at += count
        self._missing -= count
        if not self._missing:
            self._large = None
            return [large]
        if self._at == len(large):
            # It is doubled as data arrives. It is a new one, because the event loop still refers to the old one.
            self._large = bytearray(min(2 * len(large), len(large) + self._missing))
            self._large[: self._at] = large
        return []

    def _cut(self, end: int) -> list[bytes | bytearray]:
        view = memoryview(self._shared)
        frames: list[bytes | bytearray] = []
        at = 0
        while end - at >= 4:
            size = int.from_bytes(view[at : at + 4], "big", signed=True)
            if not 0 <= size <= self._max_size:
                raise MalformedError(
                    f"a frame of {size} bytes was announced; a size is 0 to {self._max_size}. "
                    "Is the other side speaking Kafka's protocol, without TLS?"
                )
            after = at + 4 + size
            if after > end:
                if size > SMALL - 4:
                    self._begin_large(view[at + 4 : end], size)
                    return frames
                break
            frames.append(bytes(view[at + 4 : after]))
            at = after
        self._rest = bytes(view[at:end])
        return frames

    def _begin_large(self, come: memoryview, size: int) -> None:
        self._rest = b""
        self._large = bytearray(min(size, FIRST_GUESS))
        self._large[: len(come)] = come
        self._at, self._missing = len(come), size - len(come)
