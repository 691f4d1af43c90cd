"""CreateTopics: new topics, by number of partitions or by an assignment given in full."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, Int16, Int32, message, wire

__all__ = [
    "API",
    "Assignment",
    "Config",
    "CreatedConfig",
    "CreatedTopic",
    "NewTopic",
    "Request",
    "Response",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("CreateTopics")


@message
class Assignment:
    partition: Int32
    broker_ids: Sequence[Int32]


@message
class Config:
    name: str
    value: str | None = None


@message
class NewTopic:
    name: str
    num_partitions: Int32 = -1
    replication_factor: Int16 = -1
    assignments: Sequence[Assignment] = ()
    configs: Sequence[Config] = ()


@message
class Request:
    topics: Sequence[NewTopic]
    timeout_ms: Int32 = 60_000
    validate_only: bool = False


@message
class CreatedConfig:
    name: str
    value: str | None = None
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False


@message
class CreatedTopic:
    name: str
    topic_id: UUID | None = wire(since=7, default=None)
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_config_error: Int16 = wire(since=5, tag=0, default=0)
    num_partitions: Int32 = wire(since=5, default=-1)
    replication_factor: Int16 = wire(since=5, default=-1)
    configs: Sequence[CreatedConfig] | None = wire(since=5, default=())


@message
class Response:
    throttle_time_ms: Int32 = 0
    topics: Sequence[CreatedTopic]


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
