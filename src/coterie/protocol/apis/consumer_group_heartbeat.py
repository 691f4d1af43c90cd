"""ConsumerGroupHeartbeat: a member of a KIP-848 group reports its state and gets its assignment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.buffer import COMPACT, LONG_STRING
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message, wire
from coterie.protocol.messages import ConsumerGroupHeartbeatAnswer

__all__ = [
    "API",
    "Assignment",
    "Request",
    "Response",
    "TopicPartitions",
    "may_say_nothing_new",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("ConsumerGroupHeartbeat")


@message
class TopicPartitions:
    topic_id: UUID | None
    partitions: Sequence[Int32]


@message
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


@message
class Assignment:
    topic_partitions: Sequence[TopicPartitions] = ()


@message
class Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
    """None: the member keeps what it has."""


_read_request, write_request = codec(API, Request)
_NOTHING_NEW = {0: b"\0\0\xff\xff\xff\xff\0\0\0\0", 1: b"\0\0\xff\xff\xff\xff\0\0\0\0\0"}
"""The bytes after the epoch, by version, of a request in which all is null or -1, without tagged fields."""
_SAME_INSTANCE = {version: after[1:] for version, after in _NOTHING_NEW.items()}
"""The bytes after the instance id of such a request."""
_EPOCH = Struct(">i")


def may_say_nothing_new(frame: bytes, version: int) -> bool:
    """Return whether a request ends as one does in which all is null or -1 after the instance id. Few others do."""
    return frame.endswith(_SAME_INSTANCE[version])


def read_request(frame: bytes, at: int, version: int) -> Request:
    """Read a request. One that says nothing new, as most do, is read by hand."""
    nothing_new = _NOTHING_NEW[version]
    if frame.endswith(nothing_new):
        with suppress(IndexError, UnicodeDecodeError):  # the plain reader says what is wrong
            end = at + frame[at]
            last = end + frame[end]
            is_short = 0 < frame[at] < LONG_STRING and 0 < frame[end] < LONG_STRING
            if is_short and last == len(frame) - len(nothing_new) - _EPOCH.size:
                (epoch,) = _EPOCH.unpack_from(frame, last)
                group_id, member_id = frame[at + 1 : end].decode(), frame[end + 1 : last].decode()
                return Request(group_id=group_id, member_id=member_id, member_epoch=epoch)
    return _read_request(frame, at, version)


read_response, _write_response = codec(API, Response)
_ERROR = Struct(">ih")  # no throttle time, error
_EPOCH_AND_INTERVAL = Struct(">ii")
_NO_ASSIGNMENT = b"\xff\0"  # and no tagged fields


def write_response(response: Response | ConsumerGroupHeartbeatAnswer, version: int) -> bytes:
    """Write a response, or the answer of a group: most often that a member keeps what it has."""
    if isinstance(response, Response):
        return _write_response(response, version)
    answer = response
    if answer.assignment is None and answer.message is None and answer.member_id is not None:
        member_id = COMPACT.string(answer.member_id)
        epoch_and_interval = _EPOCH_AND_INTERVAL.pack(answer.member_epoch, answer.heartbeat_interval_ms)
        return b"".join((_ERROR.pack(0, answer.error), b"\0", member_id, epoch_and_interval, _NO_ASSIGNMENT))
    assignment = None
    if answer.assignment is not None:
        topics = [TopicPartitions(topic_id=each, partitions=numbers) for each, numbers in answer.assignment.items()]
        assignment = Assignment(topic_partitions=topics)
    full = Response(
        error=answer.error,
        message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )
    return _write_response(full, version)
