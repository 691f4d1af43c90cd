"""DescribeTransactions: the state of transactional ids, from their coordinator (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int16, Int32, Int64, message

__all__ = [
    "API",
    "Request",
    "Response",
    "Topic",
    "Transaction",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("DescribeTransactions")


@message
class Request:
    transactional_ids: Sequence[str]


@message
class Topic:
    topic: str
    partitions: Sequence[Int32]


@message
class Transaction:
    error: ErrorCode = ErrorCode.NONE
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: Sequence[Topic] = ()


@message
class Response:
    throttle_time_ms: Int32 = 0
    transaction_states: Sequence[Transaction] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
