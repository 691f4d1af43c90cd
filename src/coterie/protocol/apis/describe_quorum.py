"""DescribeQuorum: the controllers, and how far each has come in the log of the cluster's metadata (KIP-595)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, Int64, UInt16, message, wire

__all__ = [
    "API",
    "METADATA_TOPIC",
    "DescribedPartition",
    "DescribedTopic",
    "Listener",
    "Node",
    "Partition",
    "Replica",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("DescribeQuorum")

METADATA_TOPIC = "__cluster_metadata"
"""The only topic whose quorum can be asked for, and it has one partition."""


@message
class Partition:
    partition: Int32


@message
class Topic:
    topic: str
    partitions: Sequence[Partition]


@message
class Request:
    topics: Sequence[Topic]


@message
class Replica:
    """A controller, or a broker that follows them."""

    replica_id: Int32
    replica_directory_id: UUID | None = wire(since=2, default=None)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = wire(since=1, default=-1)
    """The time of the leader's clock; -1 if it is not known."""
    last_caught_up_timestamp: Int64 = wire(since=1, default=-1)


@message
class DescribedPartition:
    partition: Int32
    error: ErrorCode = ErrorCode.NONE
    message: str | None = wire(since=2, default="")
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: Sequence[Replica] = ()
    observers: Sequence[Replica] = ()


@message
class DescribedTopic:
    topic: str
    partitions: Sequence[DescribedPartition]


@message
class Listener:
    name: str
    host: str
    port: UInt16


@message
class Node:
    node_id: Int32
    listeners: Sequence[Listener]


@message
class Response:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = wire(since=2, default="")
    topics: Sequence[DescribedTopic] = ()
    nodes: Sequence[Node] = wire(since=2, default=())


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
