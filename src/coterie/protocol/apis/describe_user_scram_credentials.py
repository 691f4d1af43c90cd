"""DescribeUserScramCredentials: by which SCRAM mechanisms users can log in (KIP-554)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int32, message

__all__ = [
    "API",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("DescribeUserScramCredentials")


@message
class User:
    name: str


@message
class Request:
    users: Sequence[User] | None = None
    """None, or none at all, are all users."""


@message
class CredentialInfo:
    mechanism: Int8
    """1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""
    iterations: Int32


@message
class Result:
    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    credential_infos: Sequence[CredentialInfo] = ()


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    results: Sequence[Result] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
