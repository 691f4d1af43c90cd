"""DescribeTopicPartitions: topics page by page (KIP-966)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import NOT_ASKED, api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message

__all__ = [
    "API",
    "Cursor",
    "DescribedPartition",
    "DescribedTopic",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("DescribeTopicPartitions")


@message
class Topic:
    name: str


@message
class Cursor:
    """The start of the next page."""

    topic: str
    partition: Int32


@message
class Request:
    topics: Sequence[Topic]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


@message
class DescribedPartition:
    error: ErrorCode = ErrorCode.NONE
    partition: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replicas: Sequence[Int32]
    isr: Sequence[Int32]
    eligible_leader_replicas: Sequence[Int32] | None = None
    last_known_elr: Sequence[Int32] | None = None
    offline_replicas: Sequence[Int32] = ()


@message
class DescribedTopic:
    error: ErrorCode = ErrorCode.NONE
    name: str | None
    topic_id: UUID | None = None
    is_internal: bool = False
    partitions: Sequence[DescribedPartition] = ()
    authorized_operations: Int32 = NOT_ASKED


@message
class Response:
    throttle_time_ms: Int32 = 0
    topics: Sequence[DescribedTopic]
    next_cursor: Cursor | None = None


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
