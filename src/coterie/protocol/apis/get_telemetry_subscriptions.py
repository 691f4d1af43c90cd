"""GetTelemetrySubscriptions: which metrics a client shall push, and how often (KIP-714)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int32, message

__all__ = [
    "API",
    "Request",
    "Response",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("GetTelemetrySubscriptions")


@message
class Request:
    client_instance_id: UUID | None = None
    """None in the first request of a client: the broker makes one up."""


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE
    client_instance_id: UUID | None = None
    subscription_id: Int32 = 0
    accepted_compression_types: Sequence[Int8] = ()
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: bool = False
    requested_metrics: Sequence[str] = ()
    """Prefixes of names. `*` alone is all metrics, and the empty list is none."""


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
