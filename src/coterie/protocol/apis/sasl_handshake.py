"""SaslHandshake: a client names the SASL mechanism it is going to use (KIP-43, KIP-152)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import message

__all__ = ["API", "Request", "Response", "read_request", "read_response", "write_request", "write_response"]

API = api("SaslHandshake")


@message
class Request:
    mechanism: str


@message
class Response:
    error: ErrorCode = ErrorCode.NONE
    mechanisms: Sequence[str] = ()
    """The mechanisms that the listener has enabled."""


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
