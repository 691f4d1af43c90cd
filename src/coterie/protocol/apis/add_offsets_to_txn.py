"""AddOffsetsToTxn: a transaction will commit offsets of a group (KIP-98)."""

from __future__ import annotations

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int16, Int32, Int64, message

__all__ = ["API", "Request", "Response", "read_request", "read_response", "write_request", "write_response"]

API = api("AddOffsetsToTxn")


@message
class Request:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
