"""AlterClientQuotas: set or remove quotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Float64, Int32

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


@dataclass(slots=True, kw_only=True)
class Entity:
    entity_type: str
    entity_name: str | None
    """None: the default of all others."""


@dataclass(slots=True, kw_only=True)
class Op:
    key: str
    value: Float64 = 0.0
    remove: bool = False


@dataclass(slots=True, kw_only=True)
class Entry:
    entity: Sequence[Entity]
    ops: Sequence[Op]


@dataclass(slots=True, kw_only=True)
class Request:
    entries: Sequence[Entry]
    validate_only: bool = False


@dataclass(slots=True, kw_only=True)
class AlteredEntry:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    entity: Sequence[Entity]


@dataclass(slots=True, kw_only=True)
class Response:
    throttle_time_ms: Int32 = 0
    entries: Sequence[AlteredEntry] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
