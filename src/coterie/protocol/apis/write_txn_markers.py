"""WriteTxnMarkers: the end of transactions, in the partitions that they wrote to (KIP-98).

A coordinator sends it to the leaders of the partitions. An admin sends it to abort a transaction (KIP-664).
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int16, Int32, Int64, message, wire

__all__ = [
    "API",
    "Marker",
    "MarkerResult",
    "PartitionResult",
    "Request",
    "Response",
    "Topic",
    "TopicResult",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("WriteTxnMarkers")


@message
class Topic:
    name: str
    partitions: Sequence[Int32]


@message
class Marker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: bool
    """True commits, False aborts."""
    topics: Sequence[Topic]
    coordinator_epoch: Int32
    transaction_version: Int8 = wire(since=2, default=0)


@message
class Request:
    markers: Sequence[Marker]


@message
class PartitionResult:
    partition: Int32
    error: ErrorCode = ErrorCode.NONE


@message
class TopicResult:
    name: str
    partitions: Sequence[PartitionResult]


@message
class MarkerResult:
    producer_id: Int64
    topics: Sequence[TopicResult]


@message
class Response:
    markers: Sequence[MarkerResult]


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
