"""CreateAcls: new ACLs, each with a result of its own (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.acls import PatternType
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int32, message

__all__ = [
    "API",
    "Creation",
    "Request",
    "Response",
    "Result",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("CreateAcls")


@message
class Creation:
    """An ACL. The numbers are those of `coterie.protocol.acls`."""

    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = PatternType.LITERAL
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message
class Request:
    creations: Sequence[Creation]


@message
class Result:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = ""


@message
class Response:
    throttle_time_ms: Int32 = 0
    results: Sequence[Result]


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
