"""Metadata: the brokers, the topics, and who leads each partition."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import NOT_ASKED, api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message, wire
from coterie.structs import replace

__all__ = [
    "API",
    "Broker",
    "DescribedPartition",
    "DescribedTopic",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("Metadata")


@message
class Topic:
    """A topic, by name or, from version 10 on, by id."""

    topic_id: UUID | None = wire(since=10, default=None)
    name: str | None = wire(nullable=10, default=None)


@message
class Request:
    topics: Sequence[Topic] | None = wire(nullable=1)
    """None: all there are."""
    allow_auto_topic_creation: bool = wire(since=4, default=True)
    include_cluster_authorized_operations: bool = wire(since=8, until=10, default=False)
    include_topic_authorized_operations: bool = wire(since=8, default=False)


@message
class Broker:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = wire(since=1, default=None)


@message
class DescribedPartition:
    error: ErrorCode = ErrorCode.NONE
    partition: Int32
    leader_id: Int32
    leader_epoch: Int32 = wire(since=7, default=-1)
    replicas: Sequence[Int32]
    isr: Sequence[Int32]
    offline_replicas: Sequence[Int32] = wire(since=5, default=())


@message
class DescribedTopic:
    error: ErrorCode = ErrorCode.NONE
    name: str | None = wire(nullable=12)
    topic_id: UUID | None = wire(since=10, default=None)
    is_internal: bool = wire(since=1, default=False)
    partitions: Sequence[DescribedPartition] = ()
    authorized_operations: Int32 = wire(since=8, default=NOT_ASKED)


@message
class Response:
    throttle_time_ms: Int32 = wire(since=3, default=0)
    brokers: Sequence[Broker]
    cluster_id: str | None = wire(since=2, default=None)
    controller_id: Int32 = wire(since=1, default=-1)
    topics: Sequence[DescribedTopic]
    cluster_authorized_operations: Int32 = wire(since=8, until=10, default=NOT_ASKED)
    error: ErrorCode = wire(since=13, default=ErrorCode.NONE)


_read_request, _write_request = codec(API, Request)
read_response, write_response = codec(API, Response)


def read_request(frame: bytes, at: int, version: int) -> Request:
    request = _read_request(frame, at, version)
    if version == 0 and not request.topics:
        request.topics = None  # version 0 has no null: there the empty list means all (rule D3)
    return request


def write_request(request: Request, version: int) -> bytes:
    if version == 0 and request.topics is None:
        request = replace(request, topics=())
    return _write_request(request, version)
