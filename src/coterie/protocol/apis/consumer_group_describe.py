"""ConsumerGroupDescribe: epochs, members and assignments of KIP-848 groups (type `consumer`)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import NOT_ASKED, api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int32, message, wire

__all__ = [
    "API",
    "Assignment",
    "DescribedGroup",
    "Member",
    "Request",
    "Response",
    "TopicPartitions",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("ConsumerGroupDescribe")


@message
class Request:
    group_ids: Sequence[str]
    include_authorized_operations: bool = False


@message
class TopicPartitions:
    topic_id: UUID | None
    topic: str
    partitions: Sequence[Int32]


@message
class Assignment:
    topic_partitions: Sequence[TopicPartitions] = ()


@message
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str] = ()
    subscribed_topic_regex: str | None = None
    assignment: Assignment
    """It includes partitions that the member has still to revoke."""
    target_assignment: Assignment
    member_type: Int8 = wire(since=1, default=-1)
    """0: it still uses the classic protocol; 1: this one; -1: not known."""


@message
class DescribedGroup:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    group_id: str
    state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: Sequence[Member] = ()
    authorized_operations: Int32 = NOT_ASKED


@message
class Response:
    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribedGroup] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
