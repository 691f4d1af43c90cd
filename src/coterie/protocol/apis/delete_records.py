"""DeleteRecords: delete the records before an offset; -1 is the high watermark."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, Int64, message

__all__ = [
    "API",
    "DeletedPartition",
    "DeletedTopic",
    "Partition",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("DeleteRecords")


@message
class Partition:
    partition: Int32
    offset: Int64


@message
class Topic:
    name: str
    partitions: Sequence[Partition]


@message
class Request:
    topics: Sequence[Topic]
    timeout_ms: Int32 = 60_000


@message
class DeletedPartition:
    partition: Int32
    low_watermark: Int64 = -1
    error: ErrorCode = ErrorCode.NONE


@message
class DeletedTopic:
    name: str
    partitions: Sequence[DeletedPartition]


@message
class Response:
    throttle_time_ms: Int32 = 0
    topics: Sequence[DeletedTopic]


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
