"""ListConfigResources: the resources that have configs: topics, brokers, groups (KIP-1142)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import ResourceType, api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int32, message, wire

__all__ = [
    "API",
    "ConfigResource",
    "Request",
    "Response",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("ListConfigResources")


@message
class Request:
    resource_types: Sequence[Int8] = wire(since=1, default=())
    """The types to list; all if empty. Version 0 asks for client metrics."""


@message
class ConfigResource:
    resource_name: str
    resource_type: Int8 = wire(since=1, default=int(ResourceType.CLIENT_METRICS))


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE
    config_resources: Sequence[ConfigResource] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
