"""DeleteTopics: by name, or from version 6 on by name or id."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message, wire

__all__ = [
    "API",
    "DeletedTopic",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("DeleteTopics")

BY_ID = API.by_id


@message
class Topic:
    name: str | None = None
    topic_id: UUID | None = None


@message
class _Request:
    topics: Sequence[Topic] = wire(since=6, default=())
    topic_names: Sequence[str] = wire(until=5, default=())
    timeout_ms: Int32 = 60_000


@message
class DeletedTopic:
    name: str | None = wire(nullable=6)
    topic_id: UUID | None = wire(since=6, default=None)
    error: ErrorCode = ErrorCode.NONE
    message: str | None = wire(since=5, default=None)


@message
class Response:
    throttle_time_ms: Int32 = 0
    responses: Sequence[DeletedTopic]


@message
class Request:
    topics: Sequence[Topic]
    timeout_ms: int = 60_000


_read_request, _write_request = codec(API, _Request)
read_response, write_response = codec(API, Response)


def read_request(frame: bytes, at: int, version: int) -> Request:
    request = _read_request(frame, at, version)
    topics = request.topics if version >= BY_ID else [Topic(name=name) for name in request.topic_names]
    return Request(topics=topics, timeout_ms=request.timeout_ms)


def write_request(request: Request, version: int) -> bytes:
    if version >= BY_ID:
        return _write_request(_Request(topics=request.topics, timeout_ms=request.timeout_ms), version)
    names = [topic.name for topic in request.topics if topic.name is not None]
    if len(names) < len(request.topics):
        raise ValueError(f"DeleteTopics version {version} knows topics by name only; ids need version {BY_ID}")
    return _write_request(_Request(topic_names=names, timeout_ms=request.timeout_ms), version)
