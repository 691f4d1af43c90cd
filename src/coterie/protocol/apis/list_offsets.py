"""ListOffsets: the first, the last, or the first offset at or after a time, of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int32, Int64, message, wire

__all__ = [
    "API",
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "ListedPartition",
    "ListedTopic",
    "Partition",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("ListOffsets")

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
"""Instead of a time: the first record there is, behind the last one, the one with the latest time (KIP-734)."""


@message
class Partition:
    partition: Int32
    current_leader_epoch: Int32 = wire(since=4, default=-1)
    timestamp: Int64
    """A time in ms, or one of -1 latest, -2 earliest, -3 largest time, -4 local earliest, -5 tiered latest, -6."""


@message
class Topic:
    name: str
    partitions: Sequence[Partition]


@message
class Request:
    replica_id: Int32 = -1
    isolation_level: Int8 = wire(since=2, default=0)
    topics: Sequence[Topic]
    timeout_ms: Int32 = wire(since=10, default=0)


@message
class ListedPartition:
    partition: Int32
    error: ErrorCode = ErrorCode.NONE
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = wire(since=4, default=-1)


@message
class ListedTopic:
    name: str
    partitions: Sequence[ListedPartition]


@message
class Response:
    throttle_time_ms: Int32 = wire(since=2, default=0)
    topics: Sequence[ListedTopic]


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
