"""OffsetForLeaderEpoch: where an epoch ended, so that a consumer notices a truncated log (KIP-320)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, Int64, message, wire

__all__ = [
    "API",
    "EpochEnd",
    "Partition",
    "Request",
    "Response",
    "Topic",
    "TopicEnds",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("OffsetForLeaderEpoch")


@message
class Partition:
    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


@message
class Topic:
    topic: str
    partitions: Sequence[Partition]


@message
class Request:
    replica_id: Int32 = wire(since=3, default=-2)
    topics: Sequence[Topic]


@message
class EpochEnd:
    error: ErrorCode = ErrorCode.NONE
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


@message
class TopicEnds:
    topic: str
    partitions: Sequence[EpochEnd]


@message
class Response:
    throttle_time_ms: Int32 = 0
    topics: Sequence[TopicEnds]


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
