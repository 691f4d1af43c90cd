"""TxnOffsetCommit: offsets that count only if a transaction commits (rule 22). The rules are those of OffsetCommit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.apis.commits import write_topics
from coterie.protocol.codec.codec import codec, encoding_of
from coterie.protocol.codec.fields import Int16, Int32, Int64, message, wire
from coterie.protocol.messages import CommitPartition, OffsetCommit, OffsetsCommitted, Token

__all__ = ["API", "read_request", "read_response", "write_request", "write_response"]

API = api("TxnOffsetCommit")


@message
class _Partition:
    partition: Int32
    offset: Int64
    leader_epoch: Int32 = wire(since=2, default=-1)
    metadata: str | None = ""


@message
class _Topic:
    name: str
    partitions: Sequence[_Partition]


@message
class _Request:
    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = wire(since=3, default=-1)
    member_id: str = wire(since=3, default="")
    instance_id: str | None = wire(since=3, default=None)
    topics: Sequence[_Topic]


@message
class _CommittedPartition:
    partition: Int32
    error: ErrorCode


@message
class _CommittedTopic:
    name: str
    partitions: Sequence[_CommittedPartition]


@message
class _Response:
    throttle_time_ms: Int32 = 0
    topics: Sequence[_CommittedTopic]


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)


def read_request(frame: bytes, at: int, version: int, token: Token) -> tuple[str, OffsetCommit]:
    """The transactional id, which is not the group's business, and the commit, which is."""
    request = _read_request(frame, at, version)
    return request.transactional_id, OffsetCommit(
        token=token,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.instance_id,
        generation_id=request.generation_id,
        partitions=[
            CommitPartition(topic.name, p.partition, p.offset, p.leader_epoch, p.metadata)
            for topic in request.topics
            for p in topic.partitions
        ],
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        knows_group_id_not_found=False,  # ILLEGAL_GENERATION in every version (rule 22)
    )


def write_response(reply: OffsetsCommitted, version: int) -> bytes:
    encoding = encoding_of(API, version)
    return b"\0\0\0\0" + write_topics(reply, encoding, by_id=False) + encoding.tags


def write_request(named: tuple[str, OffsetCommit], version: int) -> bytes:
    """`named` is what `read_request` returns: the transactional id and the commit."""
    transactional_id, request = named
    assert request.producer_id is not None, "a transactional commit names its producer"
    topics = [
        _Topic(
            name=name,
            partitions=[
                _Partition(partition=p.partition, offset=p.offset, leader_epoch=p.leader_epoch, metadata=p.metadata)
                for p in partitions
            ],
        )
        for name, partitions in groupby(request.partitions, key=lambda p: p.topic)
    ]
    return _write_request(
        _Request(
            transactional_id=transactional_id,
            group_id=request.group_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            generation_id=request.generation_id,
            member_id=request.member_id,
            instance_id=request.instance_id,
            topics=topics,
        ),
        version,
    )


def read_response(frame: bytes, at: int, version: int) -> OffsetsCommitted:
    response = _read_response(frame, at, version)
    answered = [(topic.name, entry) for topic in response.topics for entry in topic.partitions]
    return OffsetsCommitted(
        [CommitPartition(name, entry.partition, -1) for name, entry in answered],
        [entry.error for _, entry in answered],
    )
