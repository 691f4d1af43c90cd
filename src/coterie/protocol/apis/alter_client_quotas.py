"""AlterClientQuotas: set or remove quotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Float64, Int32, message

__all__ = [
    "API",
    "AlteredEntry",
    "Entity",
    "Entry",
    "Op",
    "Request",
    "Response",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("AlterClientQuotas")


@message
class Entity:
    entity_type: str
    entity_name: str | None
    """None: the default of all others."""


@message
class Op:
    key: str
    value: Float64 = 0.0
    remove: bool = False


@message
class Entry:
    entity: Sequence[Entity]
    ops: Sequence[Op]


@message
class Request:
    entries: Sequence[Entry]
    validate_only: bool = False


@message
class AlteredEntry:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    entity: Sequence[Entity]


@message
class Response:
    throttle_time_ms: Int32 = 0
    entries: Sequence[AlteredEntry] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
