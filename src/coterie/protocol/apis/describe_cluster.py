"""DescribeCluster: the brokers and which of them is the controller."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import NOT_ASKED, api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int32, message, wire

__all__ = ["API", "Broker", "Request", "Response", "read_request", "read_response", "write_request", "write_response"]

API = api("DescribeCluster")


@message
class Request:
    include_authorized_operations: bool = False
    endpoint_type: Int8 = wire(since=1, default=1)
    """1 brokers, 2 controllers."""
    include_fenced_brokers: bool = wire(since=2, default=False)


@message
class Broker:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None
    is_fenced: bool = wire(since=2, default=False)


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    endpoint_type: Int8 = wire(since=1, default=1)
    cluster_id: str
    controller_id: Int32 = -1
    brokers: Sequence[Broker] = ()
    authorized_operations: Int32 = NOT_ASKED


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
