"""DescribeClientQuotas: the quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Float64, Int8, Int32, message

__all__ = [
    "ANY",
    "API",
    "DEFAULT",
    "EXACT",
    "Component",
    "Entity",
    "Entry",
    "Quota",
    "Request",
    "Response",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("DescribeClientQuotas")

EXACT, DEFAULT, ANY = range(3)
"""The match types of a filter: entities with this name, those without a name (default), or any that have one."""


@message
class Component:
    entity_type: str
    match_type: Int8
    match: str | None = None


@message
class Request:
    components: Sequence[Component]
    strict: bool = False
    """True if entities must have the types of the filter and no others."""


@message
class Entity:
    entity_type: str
    entity_name: str | None
    """None: the default of all others."""


@message
class Quota:
    key: str
    value: Float64


@message
class Entry:
    entity: Sequence[Entity]
    values: Sequence[Quota]


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    entries: Sequence[Entry] | None = None
    """None if there is an error."""


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
