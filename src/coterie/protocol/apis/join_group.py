"""JoinGroup: a member asks to join the next generation. The rules are in `coordinator/classic/join_group.py`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.api import api
from coterie.protocol.buffer import COMPACT, LONG_STRING, Encoding
from coterie.protocol.codec.codec import PAST_THE_END, codec, encoding_of
from coterie.protocol.codec.fields import Int32, message, wire
from coterie.protocol.messages import NO_GENERATION, JoinedGroup, JoinedMember, JoinGroup, Protocol, Token

__all__ = ["API", "read_request", "read_response", "read_usual", "write_request", "write_response"]

API = api("JoinGroup")

NEEDS_MEMBER_ID = 4
HAS_INSTANCE = 5
NULL_PROTOCOL_NAME = 7
HAS_REASON = 8
SKIPS_ASSIGNMENT = 9


@message
class _Request:
    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = wire(since=1, default=-1)
    member_id: str
    instance_id: str | None = wire(since=HAS_INSTANCE, default=None)
    protocol_type: str
    protocols: Sequence[Protocol]
    reason: str | None = wire(since=HAS_REASON, default=None)


@message
class _Member:
    member_id: str
    instance_id: str | None = wire(since=HAS_INSTANCE, default=None)
    metadata: bytes


@message
class _Response:
    throttle_time_ms: Int32 = wire(since=2, default=0)
    error: ErrorCode
    generation_id: Int32 = NO_GENERATION
    protocol_type: str | None = wire(since=7, default=None)
    protocol_name: str | None = wire(nullable=NULL_PROTOCOL_NAME)
    leader_id: str
    skip_assignment: bool = wire(since=SKIPS_ASSIGNMENT, default=False)
    member_id: str
    members: Sequence[_Member] = ()


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)


def read_request(
    frame: bytes, at: int, version: int, token: Token, *, fresh_id: str, client_id: str, client_host: str
) -> JoinGroup:
    read = _read_request(frame, at, version)
    return JoinGroup(
        token,
        read.group_id,
        read.member_id,
        read.instance_id,
        read.protocol_type,
        read.protocols,
        read.session_timeout_ms,
        read.rebalance_timeout_ms if version else read.session_timeout_ms,  # version 0 has none of its own (rule 4)
        fresh_id,
        client_id,
        client_host,
        read.reason,
        version >= NEEDS_MEMBER_ID,  # needs_member_id
        version >= SKIPS_ASSIGNMENT,  # can_skip_assignment
    )


_TIMEOUTS = Struct(">ii")


def read_usual(frame: bytes, at: int, version: int, token: Token, client_id: str, client_host: str) -> JoinGroup | None:
    """Read the usual form of a flexible request: a member that has an id joins again; it is not static.

    A form with long names or tagged fields, or an error, is left to `read_request`, and so is a newcomer.
    """
    try:
        size = frame[at]
        end = at + size
        group_id = frame[at + 1 : end].decode()
        session_timeout_ms, rebalance_timeout_ms = _TIMEOUTS.unpack_from(frame, end)
        at = end + 8
        member_size = frame[at]
        end = at + member_size
        member_id = frame[at + 1 : end].decode()
        if not 0 < size < LONG_STRING or not 1 < member_size < LONG_STRING or frame[end]:
            return None
        at = end + 1
        size = frame[at]
        end = at + size
        protocol_type = frame[at + 1 : end].decode()
        count = frame[end]
        if not 0 < size < LONG_STRING or not 0 < count < LONG_STRING:
            return None
        at = end + 1
        protocols = []
        for _ in range(count - 1):
            size = frame[at]
            end = at + size
            name = frame[at + 1 : end].decode()
            length, at = frame[end] - 1, end + 1
            if length >= LONG_STRING - 1:
                length, at = COMPACT.read_length(frame, end)
            end = at + length
            if not 0 < size < LONG_STRING or length < 0 or frame[end]:
                return None
            protocols.append(Protocol(name, frame[at:end]))
            at = end + 1
        reason = None
        if version >= HAS_REASON:
            size = frame[at]
            if size >= LONG_STRING:
                return None
            end = at + size if size else at + 1
            reason = frame[at + 1 : end].decode() if size else None
            at = end
        if frame[at:] != _NO_TAGS:  # so nothing was read beyond the end
            return None
    except (*PAST_THE_END, UnicodeDecodeError, MalformedError):
        return None
    return JoinGroup(
        token,
        group_id,
        member_id,
        None,
        protocol_type,
        protocols,
        session_timeout_ms,
        rebalance_timeout_ms,
        "",
        client_id,
        client_host,
        reason,
        True,  # needs_member_id
        version >= SKIPS_ASSIGNMENT,  # can_skip_assignment
    )


_NO_TAGS = b"\0"


def write_request(request: JoinGroup, version: int) -> bytes:
    return _write_request(
        _Request(
            group_id=request.group_id,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            member_id=request.member_id,
            instance_id=request.instance_id,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
            reason=request.reason,
        ),
        version,
    )


def read_response(frame: bytes, at: int, version: int) -> JoinedGroup:
    response = _read_response(frame, at, version)
    return JoinedGroup(
        error=response.error,
        member_id=response.member_id,
        generation_id=response.generation_id,
        protocol_type=response.protocol_type,
        protocol_name=response.protocol_name,
        leader_id=response.leader_id,
        members=[JoinedMember(member.member_id, member.instance_id, member.metadata) for member in response.members],
        skip_assignment=response.skip_assignment,
    )


# --- the answer, written out: a leader of a thousand is told of a thousand members ------------------------------------

_ERROR_GENERATION = Struct(">hi")


def write_response(reply: JoinedGroup, version: int) -> bytes:
    encoding = encoding_of(API, version)
    head = (_new_head if reply.members else _head)(  # a generation has one leader, and its other members have one head
        reply.error,
        reply.generation_id,
        reply.protocol_type,
        reply.protocol_name,
        reply.leader_id,
        reply.skip_assignment,
        version,
    )
    parts = [head, encoding.string(reply.member_id), encoding.length(len(reply.members))]
    if reply.members:
        _append_members(parts, reply.members, encoding, has_instance=version >= HAS_INSTANCE)
    parts.append(encoding.tags)
    return b"".join(parts)


def _new_head(
    error: ErrorCode,
    generation_id: int,
    protocol_type: str | None,
    protocol_name: str | None,
    leader_id: str,
    skip_assignment: bool,
    version: int,
) -> bytes:
    """Return the bytes before the member id, which are the same for all members of a generation."""
    return (
        (b"\0\0\0\0" if version >= 2 else b"")
        + _ERROR_GENERATION.pack(error, generation_id)
        + _protocol(protocol_type, protocol_name, version)
        + encoding_of(API, version).string(leader_id)
        + ((b"\1" if skip_assignment else b"\0") if version >= SKIPS_ASSIGNMENT else b"")
    )


_head = lru_cache(maxsize=16)(_new_head)


@lru_cache(maxsize=64)
def _protocol(protocol_type: str | None, protocol_name: str | None, version: int) -> bytes:
    string = encoding_of(API, version).string
    # No protocol is "" to old clients and null to new ones, whatever the rule said (semantics 2).
    if version < NULL_PROTOCOL_NAME:
        return string(protocol_name or "")
    return string(protocol_type) + string(protocol_name or None)


def _append_members(
    parts: list[bytes], members: Sequence[JoinedMember], encoding: Encoding, *, has_instance: bool
) -> None:
    string, length, tags = encoding.string, encoding.length, encoding.tags
    no_instance = string(None)
    for member in members:
        metadata = member.metadata
        instance_id = member.instance_id
        if not has_instance:
            parts += (string(member.member_id), length(len(metadata)), metadata)
        elif instance_id is None:
            parts += (string(member.member_id), no_instance, length(len(metadata)), metadata, tags)
        else:
            parts += (string(member.member_id), string(instance_id), length(len(metadata)), metadata, tags)
