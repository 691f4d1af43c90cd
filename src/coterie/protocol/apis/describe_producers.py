"""DescribeProducers: the idempotent and transactional producers of a partition, from its leader (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, Int64, message

__all__ = [
    "API",
    "DescribedPartition",
    "DescribedTopic",
    "Producer",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("DescribeProducers")


@message
class Topic:
    name: str
    partitions: Sequence[Int32]


@message
class Request:
    topics: Sequence[Topic]


@message
class Producer:
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = -1
    current_txn_start_offset: Int64 = -1
    """The first offset of its open transaction; -1 if it has none."""


@message
class DescribedPartition:
    partition: Int32
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    active_producers: Sequence[Producer] = ()


@message
class DescribedTopic:
    name: str
    partitions: Sequence[DescribedPartition]


@message
class Response:
    throttle_time_ms: Int32 = 0
    topics: Sequence[DescribedTopic] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
