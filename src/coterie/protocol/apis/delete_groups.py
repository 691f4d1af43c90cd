"""DeleteGroups: delete groups without members (rule 24)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message
from coterie.protocol.messages import DeleteGroup, Token

__all__ = ["API", "read_request", "read_response", "write_request", "write_response"]

API = api("DeleteGroups")


@message
class _Request:
    groups: Sequence[str]


@message
class _Result:
    group_id: str
    error: ErrorCode


@message
class _Response:
    throttle_time_ms: Int32 = 0
    results: Sequence[_Result]


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)


def read_request(frame: bytes, at: int, version: int, token: Token) -> list[DeleteGroup]:
    """One word per group; who asks twice is answered once (rule C7)."""
    return [DeleteGroup(token, group_id) for group_id in dict.fromkeys(_read_request(frame, at, version).groups)]


def write_response(results: Sequence[tuple[str, ErrorCode]], version: int) -> bytes:
    rows = [_Result(group_id=group_id, error=error) for group_id, error in results]
    return _write_response(_Response(results=rows), version)


def write_request(requests: Sequence[DeleteGroup], version: int) -> bytes:
    return _write_request(_Request(groups=[request.group_id for request in requests]), version)


def read_response(frame: bytes, at: int, version: int) -> list[tuple[str, ErrorCode]]:
    return [(result.group_id, result.error) for result in _read_response(frame, at, version).results]
