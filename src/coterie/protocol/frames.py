"""Frames: four bytes of size, then a message. Cutting them out of a stream, reading request headers, packing answers.

Pure, and fast: this runs for every request there is. A frame is `bytes`; the body begins at a position in it, so that
nothing is copied to take the header off.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as struct_error

from coterie.errors import MalformedError
from coterie.protocol.encoding import read_tags

__all__ = [
    "FrameCutter",
    "RequestHeader",
    "client_id_of",
    "read_request_header",
    "read_response_header",
    "request_frame",
    "response_frame",
    "response_frame_parts",
]

_SIZE = Struct(">i")
_SIZE_CORRELATION = Struct(">ii")
_SIZE_CORRELATION_TAGS = Struct(">iix")  # x: no tagged fields
_REQUEST = Struct(">hhih")
_REQUEST_FRAME = Struct(">ihhi")
_CORRELATION = Struct(">i")

_CLIENT_ID_AT = _REQUEST.size

SMALL_PIECE = 4096


class FrameCutter:
    """Puts the pieces of a stream together again. Holds what has arrived, never what a size merely announces.

    After `MalformedError` the stream cannot be understood any more: close it.
    """

    __slots__ = ("_at", "_max_size", "_missing", "_pieces", "_uncut", "held")

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._pieces: list[bytes | bytearray] = []
        self.held = 0
        """Bytes that have arrived and are not in a frame that was returned."""
        self._missing = 0
        """Bytes still to come before there is something to cut; 0 if no frame is incomplete."""
        self._uncut = b""
        self._at = 0
        """Where in `_uncut` the next frame begins."""

    @property
    def has_more(self) -> bool:
        """There may be a frame that was not asked for yet: see `more`."""
        return bool(self._uncut)

    @property
    def is_within_frame(self) -> bool:
        """A part of a frame has arrived."""
        return self._missing > 0

    def feed(self, data: bytes, most: int = sys.maxsize) -> list[bytes]:
        """The frames that `data` completes, in order, without their sizes: at most `most`; `more` has the rest."""
        if not self.held and len(data) - 4 == int.from_bytes(data[:4], "big") <= self._max_size:
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
        """The next frames of those that `feed` left."""
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
            if not 0 <= size <= self._max_size:
                raise MalformedError(
                    f"a frame of {size} bytes was announced; a size is 0 to {self._max_size}. "
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
        """Drop what is held: the stream has ended."""
        self._pieces = []
        self._uncut, self._at = b"", 0
        self.held = self._missing = 0

    def _hold(self, rest: bytes, missing: int) -> None:
        self._keep(rest)
        self._missing = missing

    def _keep(self, data: bytes) -> None:
        """Large pieces as they are, to be copied once; small ones run together, lest a trickle costs fifty times it."""
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
    """`first_flexible`: for each API the version from which on its header has tagged fields.

    An API that is not in it has no header we could read: `MalformedError`, which closes the connection, as in Kafka.
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


def client_id_of(frame: bytes) -> str:
    """Of a request whose header was read; "" if the client sent none (rule 3). Few APIs want to know."""
    length = max(int.from_bytes(frame[_CLIENT_ID_AT - 2 : _CLIENT_ID_AT], "big", signed=True), 0)
    return frame[_CLIENT_ID_AT : _CLIENT_ID_AT + length].decode("utf-8", "replace")


def response_frame(correlation_id: int, body: bytes, *, flexible: bool) -> bytes:
    """`flexible`: the response header has tagged fields (we send none)."""
    if flexible:
        return _SIZE_CORRELATION_TAGS.pack(len(body) + 5, correlation_id) + body
    return _SIZE_CORRELATION.pack(len(body) + 4, correlation_id) + body


def response_frame_parts(
    correlation_id: int, parts: Sequence[bytes | memoryview], *, flexible: bool
) -> list[bytes | memoryview]:
    """The same for a body in pieces, for a vectored write: records stay where they are."""
    size = sum(map(len, parts))
    if flexible:
        return [_SIZE_CORRELATION_TAGS.pack(size + 5, correlation_id), *parts]
    return [_SIZE_CORRELATION.pack(size + 4, correlation_id), *parts]


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes, *, flexible: bool
) -> bytes:
    """What a client sends. The client id keeps its old form in flexible versions too."""
    if client_id is None:
        name = b"\xff\xff"
    else:
        data = client_id.encode()
        name = len(data).to_bytes(2, "big") + data
    tags = b"\0" if flexible else b""
    size = 8 + len(name) + len(tags) + len(body)
    return b"".join((_REQUEST_FRAME.pack(size, api_key, version, correlation_id), name, tags, body))


def read_response_header(frame: bytes, *, flexible: bool) -> tuple[int, int]:
    """The correlation id and where the body begins."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        at = 4 if not flexible else 5 if not frame[4] else read_tags(frame, 4)[1]
    except (struct_error, IndexError):
        raise MalformedError(f"a frame of {len(frame)} bytes ends within its response header") from None
    if at > len(frame):
        raise MalformedError(f"a frame of {len(frame)} bytes ends within its response header")
    return correlation_id, at
