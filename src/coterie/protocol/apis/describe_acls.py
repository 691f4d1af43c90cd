"""DescribeAcls: the ACLs that a filter finds, grouped by the pattern of their resource (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.acls import PatternType
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int32, message

__all__ = [
    "API",
    "Acl",
    "Request",
    "Resource",
    "Response",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("DescribeAcls")


@message
class Request:
    """A filter. The numbers are those of `coterie.protocol.acls`."""

    resource_type_filter: Int8
    resource_name_filter: str | None = None
    pattern_type_filter: Int8 = PatternType.LITERAL
    principal_filter: str | None = None
    host_filter: str | None = None
    operation: Int8
    permission_type: Int8


@message
class Acl:
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message
class Resource:
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = PatternType.LITERAL
    acls: Sequence[Acl]


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    resources: Sequence[Resource] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
