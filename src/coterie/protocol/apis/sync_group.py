"""SyncGroup: the leader sends the assignment, members fetch theirs. Rules: `coordinator/classic/sync_group.py`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.api import api
from coterie.protocol.buffer import COMPACT, LONG_STRING
from coterie.protocol.codec.codec import PAST_THE_END, codec, encoding_of
from coterie.protocol.codec.fields import Int32, message, wire
from coterie.protocol.messages import SyncedGroup, SyncGroup, Token

__all__ = ["API", "read_request", "read_response", "read_usual", "write_request", "write_response"]

API = api("SyncGroup")

HAS_INSTANCE = 3
NEEDS_PROTOCOL = 5


@message
class _Assignment:
    member_id: str
    assignment: bytes


@message
class _Request:
    group_id: str
    generation_id: Int32
    member_id: str
    instance_id: str | None = wire(since=HAS_INSTANCE, default=None)
    protocol_type: str | None = wire(since=NEEDS_PROTOCOL, default=None)
    protocol_name: str | None = wire(since=NEEDS_PROTOCOL, default=None)
    assignments: Sequence[_Assignment] = ()


@message
class _Response:
    throttle_time_ms: Int32 = wire(since=1, default=0)
    error: ErrorCode
    protocol_type: str | None = wire(since=NEEDS_PROTOCOL, default=None)
    protocol_name: str | None = wire(since=NEEDS_PROTOCOL, default=None)
    assignment: bytes = b""


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)

_ERROR = Struct(">h")


def read_request(frame: bytes, at: int, version: int, token: Token) -> SyncGroup:
    read = _read_request(frame, at, version)
    return SyncGroup(
        token,
        read.group_id,
        read.member_id,
        read.instance_id,
        read.generation_id,
        [(one.member_id, one.assignment) for one in read.assignments],
        read.protocol_type,
        read.protocol_name,
        version >= NEEDS_PROTOCOL,  # needs_protocol
    )


_GENERATION_AND_SIZE = Struct(">iB")


def read_usual(frame: bytes, at: int, token: Token) -> SyncGroup | None:
    """Read the usual form of a request of version 5: the member is not static, and names type and protocol.

    A form with long names or tagged fields, or an error, is left to `read_request`.
    """
    try:
        group_size = frame[at]
        end = at + group_size
        group_id = frame[at + 1 : end].decode()
        generation_id, member_size = _GENERATION_AND_SIZE.unpack_from(frame, end)
        at = end + 5
        end = at + member_size - 1
        member_id = frame[at:end].decode()
        type_size = frame[end + 1]
        if frame[end]:  # an instance id
            return None
        at = end + 2
        end = at + type_size - 1
        protocol_type = frame[at:end].decode()
        name_size = frame[end]
        at = end + 1
        end = at + name_size - 1
        protocol_name = frame[at:end].decode()
        for size in (group_size, member_size, type_size, name_size):
            if not 0 < size < LONG_STRING:
                return None
        assignments = []
        at = end
        if frame[at] != 1:  # the leader's
            count, at = COMPACT.read_length(frame, at)
            if not 0 < count < len(frame):
                return None
            for _ in range(count):
                size = frame[at]
                end = at + size
                name = frame[at + 1 : end].decode()
                length, at = frame[end] - 1, end + 1
                if length >= LONG_STRING - 1:
                    length, at = COMPACT.read_length(frame, end)
                end = at + length
                if not 0 < size < LONG_STRING or length < 0 or frame[end]:
                    return None
                assignments.append((name, frame[at:end]))
                at = end + 1
        else:
            at += 1
        if frame[at:] != _NO_TAGS:  # so nothing was read beyond the end
            return None
    except (*PAST_THE_END, UnicodeDecodeError, MalformedError):
        return None
    return SyncGroup(
        token,
        group_id,
        member_id,
        None,
        generation_id,
        assignments,
        protocol_type,
        protocol_name,
        True,  # needs_protocol
    )


_NO_TAGS = b"\0"


def write_response(reply: SyncedGroup, version: int) -> bytes:
    encoding = encoding_of(API, version)
    head = _head(reply.error, reply.protocol_type, reply.protocol_name, version)
    return b"".join((head, encoding.length(len(reply.assignment)), reply.assignment, encoding.tags))


@lru_cache(maxsize=64)
def _head(error: ErrorCode, protocol_type: str | None, protocol_name: str | None, version: int) -> bytes:
    string = encoding_of(API, version).string
    throttle_time = b"\0\0\0\0" if version >= 1 else b""
    protocol = string(protocol_type) + string(protocol_name) if version >= NEEDS_PROTOCOL else b""
    return throttle_time + _ERROR.pack(error) + protocol


def write_request(request: SyncGroup, version: int) -> bytes:
    return _write_request(
        _Request(
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            instance_id=request.instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=[_Assignment(member_id=member_id, assignment=a) for member_id, a in request.assignments],
        ),
        version,
    )


def read_response(frame: bytes, at: int, version: int) -> SyncedGroup:
    response = _read_response(frame, at, version)
    return SyncedGroup(response.error, response.assignment, response.protocol_type, response.protocol_name)
