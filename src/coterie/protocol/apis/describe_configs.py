"""DescribeConfigs: the settings of topics (resource type 2) and brokers (4), and where each comes from."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int32, message, wire

__all__ = [
    "API",
    "Config",
    "Request",
    "Resource",
    "Response",
    "Result",
    "Synonym",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("DescribeConfigs")


@message
class Resource:
    resource_type: Int8
    resource_name: str
    configuration_keys: Sequence[str] | None = None
    """None: all there are."""


@message
class Request:
    resources: Sequence[Resource]
    include_synonyms: bool = False
    include_documentation: bool = wire(since=3, default=False)


@message
class Synonym:
    name: str
    value: str | None
    source: Int8


@message
class Config:
    name: str
    value: str | None
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
    synonyms: Sequence[Synonym] = ()
    config_type: Int8 = wire(since=3, default=0)
    documentation: str | None = wire(since=3, default=None)


@message
class Result:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    resource_type: Int8
    resource_name: str
    configs: Sequence[Config] = ()


@message
class Response:
    throttle_time_ms: Int32 = 0
    results: Sequence[Result]


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
