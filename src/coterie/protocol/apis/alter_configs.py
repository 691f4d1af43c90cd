"""AlterConfigs: all settings of a resource at once; those not named go back to their defaults."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int32, message

__all__ = [
    "API",
    "Config",
    "Request",
    "Resource",
    "Response",
    "Result",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("AlterConfigs")


@message
class Config:
    name: str
    value: str | None


@message
class Resource:
    resource_type: Int8
    resource_name: str
    configs: Sequence[Config]


@message
class Request:
    resources: Sequence[Resource]
    validate_only: bool = False


@message
class Result:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    resource_type: Int8
    resource_name: str


@message
class Response:
    throttle_time_ms: Int32 = 0
    responses: Sequence[Result]


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
