"""SyncGroup: the leader brings the assignment, everybody takes his part. The rules are in coterie.group.sync_group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from coterie.apis.api import api
from coterie.apis.codec import codec, encoding_of
from coterie.apis.fields import Int32, wire
from coterie.errors import ErrorCode
from coterie.messages import SyncedGroup, SyncGroup, Token

__all__ = ["API", "read_request", "read_response", "write_request", "write_response"]

API = api("SyncGroup")

NEEDS_PROTOCOL = 5


@dataclass(slots=True, kw_only=True)
class _Assignment:
    member_id: str
    assignment: bytes


@dataclass(slots=True, kw_only=True)
class _Request:
    group_id: str
    generation_id: Int32
    member_id: str
    instance_id: str | None = wire(since=3, default=None)
    protocol_type: str | None = wire(since=5, default=None)
    protocol_name: str | None = wire(since=5, default=None)
    assignments: Sequence[_Assignment] = ()


@dataclass(slots=True, kw_only=True)
class _Response:
    throttle_time_ms: Int32 = wire(since=1, default=0)
    error: ErrorCode
    protocol_type: str | None = wire(since=5, default=None)
    protocol_name: str | None = wire(since=5, default=None)
    assignment: bytes = b""


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)

_ERROR = Struct(">h")


def read_request(frame: bytes, at: int, version: int, token: Token) -> SyncGroup:
    request = _read_request(frame, at, version)
    return SyncGroup(
        token=token,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.instance_id,
        generation_id=request.generation_id,
        assignments=[(entry.member_id, entry.assignment) for entry in request.assignments],
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        needs_protocol=version >= NEEDS_PROTOCOL,
    )


def write_response(reply: SyncedGroup, version: int) -> bytes:
    encoding = encoding_of(API, version)
    return b"".join(
        (
            b"\0\0\0\0" if version >= 1 else b"",
            _ERROR.pack(reply.error),
            encoding.string(reply.protocol_type) + encoding.string(reply.protocol_name) if version >= 5 else b"",
            encoding.length(len(reply.assignment)),
            reply.assignment,
            encoding.tags,
        )
    )


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
