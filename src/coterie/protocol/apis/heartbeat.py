"""Heartbeat: a member says it is alive. The rules are in coterie.coordinator.classic.heartbeat."""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message, wire
from coterie.protocol.messages import Heartbeat, Token

__all__ = ["API", "read_request", "read_response", "write_request", "write_response"]

API = api("Heartbeat")


@message
class _Request:
    group_id: str
    generation_id: Int32
    member_id: str
    instance_id: str | None = wire(since=3, default=None)


@message
class _Response:
    throttle_time_ms: Int32 = wire(since=1, default=0)
    error: ErrorCode


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)

_PREPARED = [
    {error: _write_response(_Response(error=error), version) for error in ErrorCode} for version in API.versions
]
_READ = [{body: error for error, body in answers.items()} for answers in _PREPARED]
"""Most brokers say it in the very bytes in which we do."""


def write_response(error: ErrorCode, version: int) -> bytes:
    return _PREPARED[version][error]


def read_request(frame: bytes, at: int, version: int, token: Token) -> Heartbeat:
    """Read the usual form of a heartbeat. Anything unusual, errors too, is left to the plain reader."""
    try:
        request = _FAST[version](frame, at, token)
    except (IndexError, struct_error, UnicodeDecodeError):
        request = None
    return request or read_request_plainly(frame, at, version, token)


def read_request_plainly(frame: bytes, at: int, version: int, token: Token) -> Heartbeat:
    request = _read_request(frame, at, version)
    return Heartbeat(token, request.group_id, request.member_id, request.instance_id, request.generation_id)


def write_request(request: Heartbeat, version: int) -> bytes:
    return _write_request(
        _Request(
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            instance_id=request.instance_id,
        ),
        version,
    )


def read_response(frame: bytes, at: int, version: int) -> ErrorCode:
    error = _READ[version].get(bytes(frame[at:]))
    return _read_response(frame, at, version).error if error is None else error


# --- written out ------------------------------------------------------------------------------------------------------

_generation = Struct(">i").unpack_from


def _read_compact(frame: bytes, at: int, token: Token) -> Heartbeat | None:
    """Version 4, all texts shorter than 127 bytes: each length is then one byte, and is one too large."""
    group_length = frame[at]
    end = at + group_length
    group_id = frame[at + 1 : end].decode()
    (generation_id,) = _generation(frame, end)
    at = end + 4
    member_length = frame[at]
    end = at + member_length
    member_id = frame[at + 1 : end].decode()
    instance_length = frame[end]
    if (group_length | member_length | instance_length) >= 0x80 or not (group_length and member_length):
        return None
    if not instance_length:
        return None if frame[end + 1] else Heartbeat(token, group_id, member_id, None, generation_id)
    at = end
    end = at + instance_length
    instance_id = frame[at + 1 : end].decode()
    return None if frame[end] else Heartbeat(token, group_id, member_id, instance_id, generation_id)


def _read_old(frame: bytes, at: int, token: Token) -> Heartbeat | None:
    """Versions 0 to 2: lengths of two bytes, no instance id."""
    end = at + 2 + (frame[at] << 8 | frame[at + 1])
    group_id = frame[at + 2 : end].decode()
    (generation_id,) = _generation(frame, end)
    start = end + 6
    end = start + (frame[end + 4] << 8 | frame[end + 5])
    if end > len(frame) or frame[at] >= 0x80 or frame[start - 2] >= 0x80:
        return None
    return Heartbeat(token, group_id, frame[start:end].decode(), None, generation_id)


def _read_old_with_instance(frame: bytes, at: int, token: Token) -> Heartbeat | None:
    """Version 3."""
    end = at + 2 + (frame[at] << 8 | frame[at + 1])
    group_id = frame[at + 2 : end].decode()
    (generation_id,) = _generation(frame, end)
    start = end + 6
    end = start + (frame[end + 4] << 8 | frame[end + 5])
    if frame[at] >= 0x80 or frame[start - 2] >= 0x80 or frame[end] != 0xFF:
        return None  # a static member is left to the plain reader
    return Heartbeat(token, group_id, frame[start:end].decode(), None, generation_id)


_FAST = (_read_old, _read_old, _read_old, _read_old_with_instance, _read_compact)
