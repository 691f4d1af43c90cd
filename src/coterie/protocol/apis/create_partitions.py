"""CreatePartitions: more partitions for a topic; there is no way to have fewer."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message

__all__ = [
    "API",
    "Assignment",
    "Request",
    "Response",
    "Result",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("CreatePartitions")


@message
class Assignment:
    broker_ids: Sequence[Int32]


@message
class Topic:
    name: str
    count: Int32
    """The total number of partitions afterwards."""
    assignments: Sequence[Assignment] | None = None


@message
class Request:
    topics: Sequence[Topic]
    timeout_ms: Int32 = 60_000
    validate_only: bool = False


@message
class Result:
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@message
class Response:
    throttle_time_ms: Int32 = 0
    results: Sequence[Result]


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
