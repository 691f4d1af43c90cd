"""ListGroups: all groups of this broker; states since version 4 (KIP-518), types since 5 (KIP-848). Rule 25."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message, wire
from coterie.protocol.messages import ListedGroup, ListGroups, Token

__all__ = ["API", "read_request", "read_response", "write_request", "write_response"]

API = api("ListGroups")


@message
class _Request:
    states: Sequence[str] = wire(since=4, default=())
    types: Sequence[str] = wire(since=5, default=())


@message
class _Group:
    group_id: str
    protocol_type: str
    state: str = wire(since=4, default="")
    group_type: str = wire(since=5, default="")


@message
class _Response:
    throttle_time_ms: Int32 = wire(since=1, default=0)
    error: ErrorCode = ErrorCode.NONE
    groups: Sequence[_Group] = ()


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)


def read_request(frame: bytes, at: int, version: int, token: Token) -> ListGroups:
    request = _read_request(frame, at, version)
    return ListGroups(token, request.states, request.types)


def write_response(groups: Sequence[ListedGroup], version: int, error: ErrorCode = ErrorCode.NONE) -> bytes:
    """The list fails as a whole while any part of it loads (rule C3)."""
    rows = [
        _Group(group_id=g.group_id, protocol_type=g.protocol_type, state=g.state, group_type=g.group_type)
        for g in groups
    ]
    return _write_response(_Response(error=error, groups=rows), version)


def write_request(request: ListGroups, version: int) -> bytes:
    return _write_request(_Request(states=request.states, types=request.types), version)


def read_response(frame: bytes, at: int, version: int) -> tuple[ErrorCode, list[ListedGroup]]:
    """State and type are "" if the version does not have them."""
    response = _read_response(frame, at, version)
    return response.error, [ListedGroup(g.group_id, g.protocol_type, g.state, g.group_type) for g in response.groups]
