"""ListTransactions: the transactional ids that a broker coordinates (KIP-664, KIP-994)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, Int64, message, wire

__all__ = [
    "API",
    "ListedTransaction",
    "Request",
    "Response",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("ListTransactions")


@message
class Request:
    state_filters: Sequence[str] = ()
    producer_id_filters: Sequence[Int64] = ()
    duration_filter: Int64 = wire(since=1, default=-1)
    transactional_id_pattern: str | None = wire(since=2, default=None)
    """A regular expression that the whole transactional id must match."""


@message
class ListedTransaction:
    transactional_id: str
    producer_id: Int64
    transaction_state: str


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE
    unknown_state_filters: Sequence[str] = ()
    transaction_states: Sequence[ListedTransaction] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
