"""SaslAuthenticate: carries the tokens of a SASL mechanism, after SaslHandshake (KIP-152)."""

from __future__ import annotations

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int64, message, wire

__all__ = ["API", "Request", "Response", "read_request", "read_response", "write_request", "write_response"]

API = api("SaslAuthenticate")


@message
class Request:
    auth_bytes: bytes


@message
class Response:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: Int64 = wire(since=1, default=0)
    """The time after which the client must authenticate again (KIP-368); 0 if it need not."""


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
