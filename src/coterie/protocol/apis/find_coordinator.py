"""FindCoordinator: which broker keeps a group. One key up to version 3, many from 4 on (KIP-699)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int32, message, wire

__all__ = [
    "API",
    "GROUP",
    "SHARE",
    "TRANSACTION",
    "Coordinator",
    "Request",
    "Response",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("FindCoordinator")

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""The type of a key."""

MANY = 4
"""The first version with several keys."""


@message
class _Request:
    key: str = wire(until=3, default="")
    key_type: Int8 = wire(since=1, default=GROUP)
    keys: Sequence[str] = wire(since=4, default=())


@message
class Coordinator:
    key: str
    node_id: Int32 = -1
    host: str = ""
    port: Int32 = -1
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@message
class _Response:
    throttle_time_ms: Int32 = wire(since=1, default=0)
    error: ErrorCode = wire(until=3, default=ErrorCode.NONE)
    message: str | None = wire(since=1, until=3, default=None)
    node_id: Int32 = wire(until=3, default=-1)
    host: str = wire(until=3, default="")
    port: Int32 = wire(until=3, default=-1)
    coordinators: Sequence[Coordinator] = wire(since=4, default=())


@message
class Request:
    keys: Sequence[str]
    key_type: int = GROUP


@message
class Response:
    """One coordinator per key, in the order of the keys."""

    coordinators: Sequence[Coordinator]
    throttle_time_ms: int = 0


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)


def read_request(frame: bytes, at: int, version: int) -> Request:
    request = _read_request(frame, at, version)
    return Request(keys=request.keys if version >= MANY else [request.key], key_type=request.key_type)


def write_request(request: Request, version: int) -> bytes:
    if version >= MANY:
        return _write_request(_Request(keys=request.keys, key_type=request.key_type), version)
    (key,) = request.keys
    return _write_request(_Request(key=key, key_type=request.key_type), version)


def read_response(frame: bytes, at: int, version: int) -> Response:
    """Up to version 3 the answer does not repeat the key."""
    r = _read_response(frame, at, version)
    if version < MANY:
        r.coordinators = [
            Coordinator(key="", node_id=r.node_id, host=r.host, port=r.port, error=r.error, message=r.message)
        ]
    return Response(coordinators=r.coordinators, throttle_time_ms=r.throttle_time_ms)


def write_response(response: Response, version: int) -> bytes:
    throttle_time_ms = response.throttle_time_ms
    if version >= MANY:
        return _write_response(
            _Response(coordinators=response.coordinators, throttle_time_ms=throttle_time_ms), version
        )
    (c,) = response.coordinators
    return _write_response(
        _Response(
            node_id=c.node_id,
            host=c.host,
            port=c.port,
            error=c.error,
            message=c.message,
            throttle_time_ms=throttle_time_ms,
        ),
        version,
    )
