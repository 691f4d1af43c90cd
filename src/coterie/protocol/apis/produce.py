"""Produce: record batches for partitions, by topic name up to version 12 and by id from 13 on."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import Leader, NodeEndpoint, api
from coterie.protocol.codec.codec import codec, parts_writer
from coterie.protocol.codec.fields import Int16, Int32, Int64, Records, message, wire

__all__ = [
    "API",
    "Leader",
    "NodeEndpoint",
    "Partition",
    "ProducedPartition",
    "ProducedTopic",
    "RecordError",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_request_parts",
    "write_response",
]

API = api("Produce")


@message
class Partition:
    partition: Int32
    records: Records | None


@message
class Topic:
    name: str = wire(until=API.by_id - 1, default="")
    topic_id: UUID | None = wire(since=API.by_id, default=None)
    partitions: Sequence[Partition]


@message
class Request:
    transactional_id: str | None = wire(since=3, default=None)
    acks: Int16
    timeout_ms: Int32
    topics: Sequence[Topic]


@message
class RecordError:
    batch_index: Int32
    message: str | None = None


@message
class ProducedPartition:
    partition: Int32
    error: ErrorCode = ErrorCode.NONE
    base_offset: Int64 = -1
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = wire(since=5, default=-1)
    record_errors: Sequence[RecordError] = wire(since=8, default=())
    message: str | None = wire(since=8, default=None)
    current_leader: Leader | None = wire(since=10, tag=0, default=None)


@message
class ProducedTopic:
    name: str = wire(until=API.by_id - 1, default="")
    topic_id: UUID | None = wire(since=API.by_id, default=None)
    partitions: Sequence[ProducedPartition]


@message
class Response:
    responses: Sequence[ProducedTopic]
    throttle_time_ms: Int32 = 0
    node_endpoints: Sequence[NodeEndpoint] = wire(since=10, tag=0, default=())


read_request, write_request = codec(API, Request)
write_request_parts = parts_writer(API, Request)
read_response, write_response = codec(API, Response)
