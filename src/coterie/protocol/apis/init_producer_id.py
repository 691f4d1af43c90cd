"""InitProducerId: an id and an epoch, so that a producer's repeated batches are recognised (KIP-98)."""

from __future__ import annotations

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int16, Int32, Int64, message, wire

__all__ = ["API", "Request", "Response", "read_request", "read_response", "write_request", "write_response"]

API = api("InitProducerId")


@message
class Request:
    transactional_id: str | None = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Int64 = wire(since=3, default=-1)
    producer_epoch: Int16 = wire(since=3, default=-1)


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
