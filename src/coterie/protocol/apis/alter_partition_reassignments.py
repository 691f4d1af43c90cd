"""AlterPartitionReassignments: which brokers are to have the replicas of a partition (KIP-455)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message, wire

__all__ = [
    "API",
    "AlteredPartition",
    "AlteredTopic",
    "Partition",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("AlterPartitionReassignments")


@message
class Partition:
    partition: Int32
    replicas: Sequence[Int32] | None = None
    """The first is the preferred leader. None: the reassignment under way is cancelled."""


@message
class Topic:
    name: str
    partitions: Sequence[Partition]


@message
class Request:
    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: bool = wire(since=1, default=True)
    topics: Sequence[Topic]


@message
class AlteredPartition:
    partition: Int32
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@message
class AlteredTopic:
    name: str
    partitions: Sequence[AlteredPartition]


@message
class Response:
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: bool = wire(since=1, default=True)
    """Repeats the field of the request."""
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    responses: Sequence[AlteredTopic] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
