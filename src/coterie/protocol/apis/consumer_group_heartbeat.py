"""ConsumerGroupHeartbeat: a member of a KIP-848 group reports its state and gets its assignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, wire

__all__ = [
    "API",
    "Assignment",
    "Request",
    "Response",
    "TopicPartitions",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("ConsumerGroupHeartbeat")


@dataclass(slots=True, kw_only=True)
class TopicPartitions:
    topic_id: UUID | None
    partitions: Sequence[Int32]


@dataclass(slots=True, kw_only=True)
class Request:
    """A heartbeat. A field that is None, or -1, has not changed since the member last sent it."""

    group_id: str
    member_id: str
    member_epoch: Int32
    """The member epoch; 0: it joins; -1: it leaves; -2: a static member leaves for a while."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Sequence[str] | None = None
    subscribed_topic_regex: str | None = wire(since=1, default=None)
    server_assignor: str | None = None
    topic_partitions: Sequence[TopicPartitions] | None = None
    """The partitions that the member owns."""


@dataclass(slots=True, kw_only=True)
class Assignment:
    topic_partitions: Sequence[TopicPartitions] = ()


@dataclass(slots=True, kw_only=True)
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
    """None: the member keeps what it has."""


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
