"""Fetch: records of partitions, by topic name up to version 12 and by id from 13 on; sessions since 7 (KIP-227)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import Leader, NodeEndpoint, api
from coterie.protocol.codec.codec import codec, parts_writer
from coterie.protocol.codec.fields import Int8, Int32, Int64, Records, message, wire

__all__ = [
    "API",
    "AbortedTransaction",
    "EpochEnd",
    "FetchedPartition",
    "FetchedTopic",
    "ForgottenTopic",
    "Leader",
    "NodeEndpoint",
    "Partition",
    "ReplicaState",
    "Request",
    "Response",
    "SnapshotId",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
    "write_response_parts",
]

API = api("Fetch")


@message
class Partition:
    partition: Int32
    current_leader_epoch: Int32 = wire(since=9, default=-1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = wire(since=12, default=-1)
    log_start_offset: Int64 = wire(since=5, default=-1)
    max_bytes: Int32
    replica_directory_id: UUID | None = wire(since=17, tag=0, default=None)
    high_watermark: Int64 = wire(since=18, tag=1, default=(1 << 63) - 1)


@message
class Topic:
    topic: str = wire(until=API.by_id - 1, default="")
    topic_id: UUID | None = wire(since=API.by_id, default=None)
    partitions: Sequence[Partition]


@message
class ForgottenTopic:
    topic: str = wire(until=API.by_id - 1, default="")
    topic_id: UUID | None = wire(since=API.by_id, default=None)
    partitions: Sequence[Int32]


@message
class ReplicaState:
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@message
class Request:
    cluster_id: str | None = wire(since=12, tag=0, default=None)
    replica_id: Int32 = wire(until=14, default=-1)
    replica_state: ReplicaState | None = wire(since=15, tag=1, default=None)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Int32 = wire(since=7, default=0)
    session_epoch: Int32 = wire(since=7, default=-1)
    topics: Sequence[Topic]
    forgotten_topics: Sequence[ForgottenTopic] = wire(since=7, default=())
    rack_id: str = wire(since=11, default="")


@message
class EpochEnd:
    epoch: Int32 = -1
    end_offset: Int64 = -1


@message
class SnapshotId:
    end_offset: Int64 = -1
    epoch: Int32 = -1


@message
class AbortedTransaction:
    producer_id: Int64
    first_offset: Int64


@message
class FetchedPartition:
    partition: Int32
    error: ErrorCode = ErrorCode.NONE
    high_watermark: Int64 = -1
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = wire(since=5, default=-1)
    diverging_epoch: EpochEnd | None = wire(since=12, tag=0, default=None)
    current_leader: Leader | None = wire(since=12, tag=1, default=None)
    snapshot_id: SnapshotId | None = wire(since=12, tag=2, default=None)
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: Int32 = wire(since=11, default=-1)
    records: Records | None = b""


@message
class FetchedTopic:
    topic: str = wire(until=API.by_id - 1, default="")
    topic_id: UUID | None = wire(since=API.by_id, default=None)
    partitions: Sequence[FetchedPartition]


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = wire(since=7, default=ErrorCode.NONE)
    session_id: Int32 = wire(since=7, default=0)
    responses: Sequence[FetchedTopic]
    node_endpoints: Sequence[NodeEndpoint] = wire(since=16, tag=0, default=())


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)

write_response_parts = parts_writer(API, Response)
"""The same bytes in pieces, in which the records are still the views they were: for a vectored write."""
