"""ListPartitionReassignments: what moves between brokers. Apache's topic tool asks before it describes."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message

__all__ = [
    "API",
    "OngoingPartition",
    "OngoingTopic",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("ListPartitionReassignments")


@message
class Topic:
    name: str
    partitions: Sequence[Int32]


@message
class Request:
    timeout_ms: Int32 = 60_000
    topics: Sequence[Topic] | None = None
    """None: all there are."""


@message
class OngoingPartition:
    partition: Int32
    replicas: Sequence[Int32]
    adding_replicas: Sequence[Int32]
    removing_replicas: Sequence[Int32]


@message
class OngoingTopic:
    name: str
    partitions: Sequence[OngoingPartition]


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topics: Sequence[OngoingTopic] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
