"""SyncGroup: the leader sends the assignment, members fetch theirs. Rules: `coordinator/classic/sync_group.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.by_hand import read_count, read_present_bytes, read_text
from coterie.protocol.codec.codec import PAST_THE_END, codec, encoding_of, past_the_end
from coterie.protocol.codec.fields import Int32, wire
from coterie.protocol.encoding import read_tags
from coterie.protocol.messages import SyncedGroup, SyncGroup, Token

__all__ = ["API", "read_request", "read_response", "write_request", "write_response"]

API = api("SyncGroup")

HAS_INSTANCE = 3
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
    instance_id: str | None = wire(since=HAS_INSTANCE, default=None)
    protocol_type: str | None = wire(since=NEEDS_PROTOCOL, default=None)
    protocol_name: str | None = wire(since=NEEDS_PROTOCOL, default=None)
    assignments: Sequence[_Assignment] = ()


@dataclass(slots=True, kw_only=True)
class _Response:
    throttle_time_ms: Int32 = wire(since=1, default=0)
    error: ErrorCode
    protocol_type: str | None = wire(since=NEEDS_PROTOCOL, default=None)
    protocol_name: str | None = wire(since=NEEDS_PROTOCOL, default=None)
    assignment: bytes = b""


_write_request = codec(API, _Request)[1]
_read_response, _write_response = codec(API, _Response)

_ERROR = Struct(">h")
_GENERATION = Struct(">i")


def read_request(frame: bytes, at: int, version: int, token: Token) -> SyncGroup:
    """The fields of `_Request`, one after the other: everybody sends one in every rebalance."""
    encoding = encoding_of(API, version)
    flexible, read_string = encoding.flexible, encoding.read_string
    instance_id = protocol_type = protocol_name = None
    try:
        group_id, at = read_text(frame, at, encoding)
        (generation_id,) = _GENERATION.unpack_from(frame, at)
        member_id, at = read_text(frame, at + 4, encoding)
        if version >= HAS_INSTANCE:
            instance_id, at = read_string(frame, at)
        if version >= NEEDS_PROTOCOL:
            protocol_type, at = read_string(frame, at)
            protocol_name, at = read_string(frame, at)
        count, at = read_count(frame, at, encoding)
        assignments = []
        for _ in range(count):
            name, at = read_text(frame, at, encoding)
            assignment, at = read_present_bytes(frame, at, encoding)
            if flexible:
                _, at = read_tags(frame, at) if frame[at] else (None, at + 1)
            assignments.append((name, assignment))
        if flexible:
            _, at = read_tags(frame, at) if frame[at] else (None, at + 1)
    except PAST_THE_END:
        raise past_the_end(API, version, frame) from None
    if at > len(frame):
        raise past_the_end(API, version, frame)
    needs_protocol = version >= NEEDS_PROTOCOL
    return SyncGroup(
        token,
        group_id,
        member_id,
        instance_id,
        generation_id,
        assignments,
        protocol_type,
        protocol_name,
        needs_protocol,
    )


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
