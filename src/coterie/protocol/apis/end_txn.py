"""EndTxn: commits or aborts a transaction (KIP-98). From version 5 on, the answer has the next epoch (KIP-890)."""

from __future__ import annotations

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int16, Int32, Int64, message, wire

__all__ = ["API", "Request", "Response", "read_request", "read_response", "write_request", "write_response"]

API = api("EndTxn")


@message
class Request:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool
    """True commits, False aborts."""


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE
    producer_id: Int64 = wire(since=5, default=-1)
    """The producer id and the epoch of the next transaction; -1 with an error."""
    producer_epoch: Int16 = wire(since=5, default=-1)


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
