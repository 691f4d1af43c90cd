"""AlterUserScramCredentials: give users passwords for SCRAM, or take them away (KIP-554).

The client derives the salted password, so the broker never sees the password itself.
"""

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

API = api("AlterUserScramCredentials")


@message
class Deletion:
    name: str
    mechanism: Int8


@message
class Upsertion:
    name: str
    mechanism: Int8
    """1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""
    iterations: Int32
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        """Leave out the salt and the password."""
        return f"Upsertion(name={self.name!r}, mechanism={self.mechanism}, iterations={self.iterations})"


@message
class Request:
    deletions: Sequence[Deletion] = ()
    upsertions: Sequence[Upsertion] = ()


@message
class Result:
    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@message
class Response:
    throttle_time_ms: Int32 = 0
    results: Sequence[Result] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
