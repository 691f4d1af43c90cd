"""OffsetCommit: a group commits offsets. The rules are in coterie.coordinator.offsets.offset_metadata_manager.

Version 10 names topics by id. The request then has `topic_id`, and `topic` is "". The handler fills in the name, or the
error UNKNOWN_TOPIC_ID, before the group handles the request (rule 21).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from struct import Struct
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.apis.commits import read_topics, write_committed_topic, write_topics
from coterie.protocol.buffer import read_tags
from coterie.protocol.codec.codec import PAST_THE_END, codec, encoding_of, past_the_end, read_text
from coterie.protocol.codec.fields import Int32, Int64, message, wire
from coterie.protocol.commit_rows import CommitRows, read_usual_commit
from coterie.protocol.messages import CommitPartition, OffsetCommit, OffsetsCommitted, Token

__all__ = ["API", "read_request", "read_response", "write_request", "write_response"]

API = api("OffsetCommit")

BY_ID = API.by_id
KNOWS_GROUP_ID_NOT_FOUND = 9
NO_RETENTION = -1


@message
class _Partition:
    partition: Int32
    offset: Int64
    leader_epoch: Int32 = wire(since=6, default=-1)
    metadata: str | None = ""


@message
class _Topic:
    name: str = wire(until=9, default="")
    topic_id: UUID | None = wire(since=BY_ID, default=None)
    partitions: Sequence[_Partition]


@message
class _Request:
    group_id: str
    generation_id: Int32 = -1
    member_id: str = ""
    instance_id: str | None = wire(since=7, default=None)
    retention_ms: Int64 = wire(since=2, until=4, default=NO_RETENTION)
    topics: Sequence[_Topic]


@message
class _CommittedPartition:
    partition: Int32
    error: ErrorCode


@message
class _CommittedTopic:
    name: str = wire(until=9, default="")
    topic_id: UUID | None = wire(since=BY_ID, default=None)
    partitions: Sequence[_CommittedPartition]


@message
class _Response:
    throttle_time_ms: Int32 = wire(since=3, default=0)
    topics: Sequence[_CommittedTopic]


_write_request = codec(API, _Request)[1]
_read_response, _write_response = codec(API, _Response)


_GENERATION = Struct(">i")
_RETENTION = Struct(">q")


def read_request(frame: bytes, at: int, version: int, token: Token) -> OffsetCommit:
    """The fields of `_Request`, one after the other."""
    if API.flexible <= version < BY_ID:
        usual = read_usual_commit(frame, at)
        if usual is not None:
            group_id, generation_id, member_id, instance_id, topic, rows, numbers, lowest, highest = usual
            partitions = CommitRows(topic, None, rows, numbers, lowest, highest)
            knows = version >= KNOWS_GROUP_ID_NOT_FOUND
            return OffsetCommit(
                token, group_id, member_id, instance_id, generation_id, partitions, None, None, -1, knows
            )
    encoding = encoding_of(API, version)
    instance_id, retention_ms = None, NO_RETENTION
    try:
        group_id, at = read_text(frame, at, encoding)
        (generation_id,) = _GENERATION.unpack_from(frame, at)
        member_id, at = read_text(frame, at + 4, encoding)
        if version >= 7:
            instance_id, at = encoding.read_string(frame, at)
        elif version <= 4:
            (retention_ms,) = _RETENTION.unpack_from(frame, at)
            at += 8
        listed, at = read_topics(frame, at, encoding, by_id=version >= BY_ID, has_epoch=version >= 6)
        _, at = read_tags(frame, at) if encoding.flexible else (None, at)
    except PAST_THE_END:
        raise past_the_end(API, version, frame) from None
    if at > len(frame):
        raise past_the_end(API, version, frame)
    return OffsetCommit(
        token=token,
        group_id=group_id,
        member_id=member_id,
        instance_id=instance_id,
        generation_id=generation_id,
        partitions=listed,
        retention_ms=None if retention_ms == NO_RETENTION else retention_ms,
        knows_group_id_not_found=version >= KNOWS_GROUP_ID_NOT_FOUND,
    )


def write_response(reply: OffsetsCommitted, version: int) -> bytes:
    encoding = encoding_of(API, version)
    throttle_time = b"\0\0\0\0" if version >= 3 else b""
    return throttle_time + write_topics(reply, encoding, by_id=version >= BY_ID) + encoding.tags


def write_committed(of: CommitRows, version: int) -> bytes:
    """Write the response to a commit of which every partition was stored."""
    return b"\0\0\0\0" + write_committed_topic(of, encoding_of(API, version), by_id=version >= BY_ID) + b"\0"


def write_request(request: OffsetCommit, version: int) -> bytes:
    topics = [
        _Topic(
            name=name,
            topic_id=topic_id,
            partitions=[
                _Partition(partition=p.partition, offset=p.offset, leader_epoch=p.leader_epoch, metadata=p.metadata)
                for p in partitions
            ],
        )
        for (name, topic_id), partitions in groupby(request.partitions, key=lambda p: (p.topic, p.topic_id))
    ]
    return _write_request(
        _Request(
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            instance_id=request.instance_id,
            retention_ms=NO_RETENTION if request.retention_ms is None else request.retention_ms,
            topics=topics,
        ),
        version,
    )


def read_response(frame: bytes, at: int, version: int) -> OffsetsCommitted:
    """The answer repeats neither offsets nor, from version 10 on, names."""
    response = _read_response(frame, at, version)
    answered = [(topic, entry) for topic in response.topics for entry in topic.partitions]
    return OffsetsCommitted(
        [CommitPartition(topic.name, entry.partition, -1, topic_id=topic.topic_id) for topic, entry in answered],
        [entry.error for _, entry in answered],
    )
