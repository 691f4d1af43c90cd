"""JoinGroup: a member asks for a place in the next generation. The rules are in coterie.group.join_group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from coterie.apis.api import api
from coterie.apis.codec import codec, encoding_of
from coterie.apis.fields import Int32, wire
from coterie.errors import ErrorCode
from coterie.messages import NO_GENERATION, JoinedGroup, JoinedMember, JoinGroup, Protocol, Token
from coterie.wire.encoding import Encoding

__all__ = ["API", "read_request", "read_response", "write_request", "write_response"]

API = api("JoinGroup")

NEEDS_MEMBER_ID = 4
NULL_PROTOCOL_NAME = 7
SKIPS_ASSIGNMENT = 9


@dataclass(slots=True, kw_only=True)
class _Protocol:
    name: str
    metadata: bytes


@dataclass(slots=True, kw_only=True)
class _Request:
    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = wire(since=1, default=-1)
    member_id: str
    instance_id: str | None = wire(since=5, default=None)
    protocol_type: str
    protocols: Sequence[_Protocol]
    reason: str | None = wire(since=8, default=None)


@dataclass(slots=True, kw_only=True)
class _Member:
    member_id: str
    instance_id: str | None = wire(since=5, default=None)
    metadata: bytes


@dataclass(slots=True, kw_only=True)
class _Response:
    throttle_time_ms: Int32 = wire(since=2, default=0)
    error: ErrorCode
    generation_id: Int32 = NO_GENERATION
    protocol_type: str | None = wire(since=7, default=None)
    protocol_name: str | None = wire(nullable=NULL_PROTOCOL_NAME)
    leader_id: str
    skip_assignment: bool = wire(since=9, default=False)
    member_id: str
    members: Sequence[_Member] = ()


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)


def read_request(
    frame: bytes, at: int, version: int, token: Token, *, fresh_id: str, client_id: str, client_host: str
) -> JoinGroup:
    request = _read_request(frame, at, version)
    return JoinGroup(
        token=token,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.instance_id,
        protocol_type=request.protocol_type,
        protocols=[Protocol(protocol.name, protocol.metadata) for protocol in request.protocols],
        session_timeout_ms=request.session_timeout_ms,
        # Version 0 has no rebalance timeout of its own (rule 4).
        rebalance_timeout_ms=request.rebalance_timeout_ms if version else request.session_timeout_ms,
        fresh_id=fresh_id,
        client_id=client_id,
        client_host=client_host,
        reason=request.reason,
        needs_member_id=version >= NEEDS_MEMBER_ID,
        can_skip_assignment=version >= SKIPS_ASSIGNMENT,
    )


def write_request(request: JoinGroup, version: int) -> bytes:
    return _write_request(
        _Request(
            group_id=request.group_id,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            member_id=request.member_id,
            instance_id=request.instance_id,
            protocol_type=request.protocol_type,
            protocols=[_Protocol(name=protocol.name, metadata=protocol.metadata) for protocol in request.protocols],
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
    string = encoding.string
    # No protocol is "" to old clients and null to new ones, whatever the rule said (semantics 2).
    protocol_name = (reply.protocol_name or None) if version >= NULL_PROTOCOL_NAME else (reply.protocol_name or "")
    parts = [
        b"\0\0\0\0" if version >= 2 else b"",
        _ERROR_GENERATION.pack(reply.error, reply.generation_id),
        string(reply.protocol_type) if version >= 7 else b"",
        string(protocol_name),
        string(reply.leader_id),
        (b"\1" if reply.skip_assignment else b"\0") if version >= SKIPS_ASSIGNMENT else b"",
        string(reply.member_id),
        encoding.length(len(reply.members)),
    ]
    _append_members(parts, reply.members, encoding, has_instance=version >= 5)
    parts.append(encoding.tags)
    return b"".join(parts)


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
