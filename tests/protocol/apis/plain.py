"""Requests that are read by hand for speed, read from the annotations of their messages instead: slow, and plain."""

from __future__ import annotations

from coterie.protocol.apis import join_group, offset_commit, sync_group
from coterie.protocol.codec.codec import codec
from coterie.protocol.messages import CommitPartition, JoinGroup, OffsetCommit, Protocol, SyncGroup, Token

__all__ = ["read_commit", "read_join", "read_sync"]

_read_join = codec(join_group.API, join_group._Request)[0]
_read_sync = codec(sync_group.API, sync_group._Request)[0]
_read_commit = codec(offset_commit.API, offset_commit._Request)[0]


def read_join(
    frame: bytes, at: int, version: int, token: Token, *, fresh_id: str, client_id: str, client_host: str
) -> JoinGroup:
    request = _read_join(frame, at, version)
    return JoinGroup(
        token=token,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.instance_id,
        protocol_type=request.protocol_type,
        protocols=[Protocol(protocol.name, protocol.metadata) for protocol in request.protocols],
        session_timeout_ms=request.session_timeout_ms,
        # Version 0 has no rebalance timeout of its own (rule 4).
        rebalance_timeout_ms=request.rebalance_timeout_ms if version else request.session_timeout_ms,
        fresh_id=fresh_id,
        client_id=client_id,
        client_host=client_host,
        reason=request.reason,
        needs_member_id=version >= join_group.NEEDS_MEMBER_ID,
        can_skip_assignment=version >= join_group.SKIPS_ASSIGNMENT,
    )


def read_sync(frame: bytes, at: int, version: int, token: Token) -> SyncGroup:
    request = _read_sync(frame, at, version)
    return SyncGroup(
        token=token,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.instance_id,
        generation_id=request.generation_id,
        assignments=[(entry.member_id, entry.assignment) for entry in request.assignments],
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        needs_protocol=version >= sync_group.NEEDS_PROTOCOL,
    )


def read_commit(frame: bytes, at: int, version: int, token: Token) -> OffsetCommit:
    request = _read_commit(frame, at, version)
    return OffsetCommit(
        token=token,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.instance_id,
        generation_id=request.generation_id,
        partitions=[
            CommitPartition(topic.name, p.partition, p.offset, p.leader_epoch, p.metadata, topic.topic_id)
            for topic in request.topics
            for p in topic.partitions
        ],
        retention_ms=None if request.retention_ms == offset_commit.NO_RETENTION else request.retention_ms,
        knows_group_id_not_found=version >= offset_commit.KNOWS_GROUP_ID_NOT_FOUND,
    )
