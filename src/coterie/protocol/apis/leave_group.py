"""LeaveGroup: one member up to version 2, many from 3 on (KIP-345). Rules: `coordinator/classic/leave_group.py`."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message, wire
from coterie.protocol.messages import LeaveGroup, LeavingMember, LeftGroup, LeftMember, Token

__all__ = ["API", "read_request", "read_response", "write_request", "write_response"]

API = api("LeaveGroup")

MANY = 3
"""The first version in which several members leave at once, each with an error of its own."""


@message
class _Member:
    member_id: str
    instance_id: str | None = None
    reason: str | None = wire(since=5, default=None)


@message
class _Request:
    group_id: str
    member_id: str = wire(until=2, default="")
    members: Sequence[_Member] = wire(since=MANY, default=())


@message
class _LeftMember:
    member_id: str
    instance_id: str | None = None
    error: ErrorCode


@message
class _Response:
    throttle_time_ms: Int32 = wire(since=1, default=0)
    error: ErrorCode
    members: Sequence[_LeftMember] = wire(since=MANY, default=())


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)


def read_request(frame: bytes, at: int, version: int, token: Token) -> LeaveGroup:
    request = _read_request(frame, at, version)
    if version < MANY:
        return LeaveGroup(token, request.group_id, [LeavingMember(request.member_id)])
    return LeaveGroup(
        token, request.group_id, [LeavingMember(m.member_id, m.instance_id, m.reason) for m in request.members]
    )


def write_response(reply: LeftGroup, version: int) -> bytes:
    """Up to version 2 the one member's error stands at top level (rule 16)."""
    if version < MANY:
        error = reply.error or next((member.error for member in reply.members if member.error), ErrorCode.NONE)
        return _write_response(_Response(error=error), version)
    members = [
        _LeftMember(member_id=member.member_id, instance_id=member.instance_id, error=member.error)
        for member in reply.members
    ]
    return _write_response(_Response(error=reply.error, members=members), version)


def write_request(request: LeaveGroup, version: int) -> bytes:
    if version < MANY:
        (member,) = request.members
        return _write_request(_Request(group_id=request.group_id, member_id=member.member_id), version)
    members = [_Member(member_id=m.member_id, instance_id=m.instance_id, reason=m.reason) for m in request.members]
    return _write_request(_Request(group_id=request.group_id, members=members), version)


def read_response(frame: bytes, at: int, version: int) -> LeftGroup:
    response = _read_response(frame, at, version)
    return LeftGroup(response.error, [LeftMember(m.member_id, m.instance_id, m.error) for m in response.members])
