"""DescribeGroups: state, members and assignments of groups (rule 25)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import NOT_ASKED, api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message, wire
from coterie.protocol.messages import DescribedGroup, DescribedMember, DescribeGroup, Token

__all__ = ["API", "read_request", "read_response", "write_request", "write_response"]

API = api("DescribeGroups")

SAYS_NOT_FOUND = 6
"""The first version in which an absent group is an error; before, it is `Dead`."""

DEAD = "Dead"


@message
class _Request:
    groups: Sequence[str]
    include_authorized_operations: bool = wire(since=3, default=False)


@message
class _Member:
    member_id: str
    instance_id: str | None = wire(since=4, default=None)
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@message
class _Group:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = wire(since=SAYS_NOT_FOUND, default=None)
    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: Sequence[_Member]
    authorized_operations: Int32 = wire(since=3, default=NOT_ASKED)


@message
class _Response:
    throttle_time_ms: Int32 = wire(since=1, default=0)
    groups: Sequence[_Group]


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)


def read_request(frame: bytes, at: int, version: int, token: Token) -> list[DescribeGroup]:
    """One word per group; who asks twice is answered twice (rule C7)."""
    request = _read_request(frame, at, version)
    return [DescribeGroup(token, group_id, request.include_authorized_operations) for group_id in request.groups]


def write_response(replies: Sequence[DescribedGroup], version: int) -> bytes:
    return _write_response(_Response(groups=[_group(reply, version) for reply in replies]), version)


def _group(reply: DescribedGroup, version: int) -> _Group:
    error, message = reply.error, None
    if not reply.exists and version >= SAYS_NOT_FOUND:
        error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"group {reply.group_id} does not exist"
    return _Group(
        error=error,
        message=message,
        group_id=reply.group_id,
        state=reply.state,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        members=[
            _Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata,
                assignment=member.assignment,
            )
            for member in reply.members
        ],
        authorized_operations=NOT_ASKED if error else reply.authorized_operations,
    )


def write_request(requests: Sequence[DescribeGroup], version: int) -> bytes:
    asks_rights = any(request.asks_rights for request in requests)
    groups = [request.group_id for request in requests]
    return _write_request(_Request(groups=groups, include_authorized_operations=asks_rights), version)


def read_response(frame: bytes, at: int, version: int) -> list[DescribedGroup]:
    return [
        DescribedGroup(
            group_id=group.group_id,
            state=group.state,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            members=[
                DescribedMember(m.member_id, m.instance_id, m.client_id, m.client_host, m.metadata, m.assignment)
                for m in group.members
            ],
            error=group.error,
            exists=group.error is not ErrorCode.GROUP_ID_NOT_FOUND and (bool(group.error) or group.state != DEAD),
            authorized_operations=group.authorized_operations,
        )
        for group in _read_response(frame, at, version).groups
    ]
