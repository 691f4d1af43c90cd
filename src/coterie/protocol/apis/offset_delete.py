"""OffsetDelete: forget offsets of topics a group no longer reads (KIP-496, rule 24)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message
from coterie.protocol.messages import DeletedPartition, OffsetDelete, OffsetsDeleted, Token

__all__ = ["API", "read_request", "read_response", "write_request", "write_response"]

API = api("OffsetDelete")


@message
class _Partition:
    partition: Int32


@message
class _Topic:
    name: str
    partitions: Sequence[_Partition]


@message
class _Request:
    group_id: str
    topics: Sequence[_Topic]


@message
class _DeletedPartition:
    partition: Int32
    error: ErrorCode


@message
class _DeletedTopic:
    name: str
    partitions: Sequence[_DeletedPartition]


@message
class _Response:
    error: ErrorCode
    throttle_time_ms: Int32 = 0
    topics: Sequence[_DeletedTopic] = ()


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)


def read_request(frame: bytes, at: int, version: int, token: Token) -> OffsetDelete:
    request = _read_request(frame, at, version)
    topics = [(topic.name, [entry.partition for entry in topic.partitions]) for topic in request.topics]
    return OffsetDelete(token, request.group_id, topics)


def write_response(reply: OffsetsDeleted, version: int) -> bytes:
    topics = [
        _DeletedTopic(name=name, partitions=[_DeletedPartition(partition=p.partition, error=p.error) for p in entries])
        for name, entries in groupby(reply.partitions, key=lambda entry: entry.topic)
    ]
    return _write_response(_Response(error=reply.error, topics=topics), version)


def write_request(request: OffsetDelete, version: int) -> bytes:
    topics = [
        _Topic(name=name, partitions=[_Partition(partition=partition) for partition in partitions])
        for name, partitions in request.topics
    ]
    return _write_request(_Request(group_id=request.group_id, topics=topics), version)


def read_response(frame: bytes, at: int, version: int) -> OffsetsDeleted:
    response = _read_response(frame, at, version)
    return OffsetsDeleted(
        response.error,
        [DeletedPartition(topic.name, p.partition, p.error) for topic in response.topics for p in topic.partitions],
    )
