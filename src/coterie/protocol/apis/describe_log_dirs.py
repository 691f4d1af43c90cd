"""DescribeLogDirs: how much disk each partition takes."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, Int64, message, wire

__all__ = [
    "API",
    "DescribedPartition",
    "DescribedTopic",
    "LogDir",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("DescribeLogDirs")


@message
class Topic:
    topic: str
    partitions: Sequence[Int32]


@message
class Request:
    topics: Sequence[Topic] | None = None
    """None: all there are."""


@message
class DescribedPartition:
    partition: Int32
    size: Int64
    offset_lag: Int64 = 0
    is_future: bool = False


@message
class DescribedTopic:
    name: str
    partitions: Sequence[DescribedPartition]


@message
class LogDir:
    error: ErrorCode = ErrorCode.NONE
    path: str
    topics: Sequence[DescribedTopic] = ()
    total_bytes: Int64 = wire(since=4, default=-1)
    usable_bytes: Int64 = wire(since=4, default=-1)
    is_cordoned: bool = wire(since=5, default=False)


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = wire(since=3, default=ErrorCode.NONE)
    results: Sequence[LogDir]


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
