"""PushTelemetry: a client pushes its metrics (KIP-714)."""

from __future__ import annotations

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

API = api("PushTelemetry")


@message
class Request:
    client_instance_id: UUID | None = None
    subscription_id: Int32
    terminating: bool
    compression_type: Int8
    metrics: bytes
    """OpenTelemetry's MetricsData, as protobuf: `coterie.protocol.otlp_metrics` reads it."""


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
