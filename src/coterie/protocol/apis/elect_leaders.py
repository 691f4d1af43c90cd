"""ElectLeaders: make the preferred replica of a partition its leader again (KIP-183, KIP-460)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int32, message, wire

__all__ = [
    "API",
    "PREFERRED",
    "UNCLEAN",
    "ElectedPartition",
    "ElectedTopic",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("ElectLeaders")

PREFERRED, UNCLEAN = 0, 1
"""Kinds of elections: of the preferred replica, or of any that is alive if none in sync is."""


@message
class Topic:
    topic: str
    partitions: Sequence[Int32]


@message
class Request:
    election_type: Int8 = wire(since=1, default=PREFERRED)
    topic_partitions: Sequence[Topic] | None = None
    """None: all there are."""
    timeout_ms: Int32 = 60_000


@message
class ElectedPartition:
    partition: Int32
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@message
class ElectedTopic:
    topic: str
    partitions: Sequence[ElectedPartition]


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = wire(since=1, default=ErrorCode.NONE)
    results: Sequence[ElectedTopic] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
