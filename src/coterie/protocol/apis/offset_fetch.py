"""OffsetFetch: return committed offsets, of one group up to version 7, of many from 8 on (KIP-709).

Version 10 names topics by id. The request then has `topic_ids` beside `topics`, whose names are "" until the handler
fills them in. The responses need `topic_id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, unpack
from uuid import UUID

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.api import api
from coterie.protocol.buffer import COMPACT, LONG_STRING, Encoding
from coterie.protocol.codec.codec import PAST_THE_END, codec, encoding_of
from coterie.protocol.codec.fields import Int32, Int64, message, wire
from coterie.protocol.commit_rows import MOST_ROWS, FetchedRows
from coterie.protocol.messages import FetchedOffset, OffsetFetch, OffsetsFetched, Token

__all__ = ["API", "read_request", "read_response", "write_request", "write_response"]

API = api("OffsetFetch")

MANY = 8
BY_ID = API.by_id
HAS_GROUP_ERROR = 2
HAS_EPOCH = 5


@message
class _Topic:
    name: str = wire(until=9, default="")
    topic_id: UUID | None = wire(since=BY_ID, default=None)
    partitions: Sequence[Int32]


@message
class _Group:
    group_id: str
    member_id: str | None = wire(since=9, default=None)
    member_epoch: Int32 = wire(since=9, default=-1)
    topics: Sequence[_Topic] | None


@message
class _Request:
    group_id: str = wire(until=7, default="")
    topics: Sequence[_Topic] | None = wire(until=7, nullable=2, default=None)
    groups: Sequence[_Group] = wire(since=MANY, default=())
    require_stable: bool = wire(since=7, default=False)


@message
class _FetchedPartition:
    partition: Int32
    offset: Int64
    leader_epoch: Int32 = wire(since=HAS_EPOCH, default=-1)
    metadata: str | None = ""
    error: ErrorCode = ErrorCode.NONE


@message
class _FetchedTopic:
    name: str = wire(until=9, default="")
    topic_id: UUID | None = wire(since=BY_ID, default=None)
    partitions: Sequence[_FetchedPartition]


@message
class _FetchedGroup:
    group_id: str
    topics: Sequence[_FetchedTopic]
    error: ErrorCode = ErrorCode.NONE


@message
class _Response:
    throttle_time_ms: Int32 = wire(since=3, default=0)
    topics: Sequence[_FetchedTopic] = wire(until=7, default=())
    error: ErrorCode = wire(since=HAS_GROUP_ERROR, until=7, default=ErrorCode.NONE)
    groups: Sequence[_FetchedGroup] = wire(since=MANY, default=())


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)


def read_request(frame: bytes, at: int, version: int, token: Token) -> list[OffsetFetch]:
    """One word per group; who asks twice is answered twice (rule C7)."""
    if MANY <= version < BY_ID:
        usual = read_usual(frame, at, version)
        if usual is not None:
            group_id, topic, require_stable, member_id, epoch = usual
            return [OffsetFetch(token, group_id, [topic], require_stable, member_id=member_id, member_epoch=epoch)]
    return read_request_plainly(frame, at, version, token)


_USUAL_ENDS = {b"\0\0\0\0": False, b"\0\0\1\0": True}
"""No tagged fields of topic and group, whether offsets have to be stable, no tagged fields of the request."""


_EPOCH = Struct(">i")
_Usual = tuple[str, tuple[str, Sequence[int]], bool, str | None, int]


def read_usual(frame: bytes, at: int, version: int) -> _Usual | None:
    """Read the usual form: one group and one topic. Any other form, or an error, is left to the plain reader."""
    try:
        size = frame[at + 1]
        if frame[at] != 2 or not 0 < size < LONG_STRING:  # one group
            return None
        end = at + 1 + size
        group_id = frame[at + 2 : end].decode()
        member_id: str | None = None
        epoch = -1
        if version >= 9:
            member_id, end = COMPACT.read_string(frame, end)
            (epoch,) = _EPOCH.unpack_from(frame, end)
            end += 4
        size = frame[end + 1]
        if frame[end] != 2 or not 0 < size < LONG_STRING:  # one topic
            return None
        at = end + 1 + size
        topic = frame[end + 2 : at].decode()
        count, at = COMPACT.read_length(frame, at)
        end = at + 4 * count
        require_stable = _USUAL_ENDS.get(frame[end:])
        if not 0 <= count <= MOST_ROWS or require_stable is None:
            return None
        return group_id, (topic, list(unpack(f">{count}i", frame[at:end]))), require_stable, member_id, epoch
    except (*PAST_THE_END, UnicodeDecodeError, MalformedError):
        return None


def read_request_plainly(frame: bytes, at: int, version: int, token: Token) -> list[OffsetFetch]:
    request = _read_request(frame, at, version)
    groups = request.groups if version >= MANY else [_Group(group_id=request.group_id, topics=request.topics)]
    return [
        OffsetFetch(
            token=token,
            group_id=group.group_id,
            topics=None if group.topics is None else [(topic.name, topic.partitions) for topic in group.topics],
            require_stable=request.require_stable,
            topic_ids=[topic.topic_id for topic in group.topics] if version >= BY_ID and group.topics else None,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
        )
        for group in groups
    ]


def write_request(requests: Sequence[OffsetFetch], version: int) -> bytes:
    require_stable = any(request.require_stable for request in requests)
    if version >= MANY:
        groups = [
            _Group(
                group_id=request.group_id,
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                topics=_topics(request),
            )
            for request in requests
        ]
        return _write_request(_Request(groups=groups, require_stable=require_stable), version)
    (request,) = requests
    return _write_request(
        _Request(group_id=request.group_id, topics=_topics(request), require_stable=require_stable), version
    )


def _topics(request: OffsetFetch) -> list[_Topic] | None:
    if request.topics is None:
        return None
    ids = request.topic_ids or [None] * len(request.topics)
    return [
        _Topic(name=name, topic_id=topic_id, partitions=partitions)
        for (name, partitions), topic_id in zip(request.topics, ids, strict=True)
    ]


def read_response(frame: bytes, at: int, version: int) -> list[OffsetsFetched]:
    """Up to version 7 the answer does not repeat the group's id."""
    response = _read_response(frame, at, version)
    groups = response.groups
    if version < MANY:
        groups = [_FetchedGroup(group_id="", topics=response.topics, error=response.error)]
    return [
        OffsetsFetched(
            group.group_id,
            group.error,
            [
                FetchedOffset(
                    topic.name, p.partition, p.error, p.offset, p.leader_epoch, p.metadata or "", topic.topic_id
                )
                for topic in group.topics
                for p in topic.partitions
            ],
        )
        for group in groups
    ]


# --- the answer, written out ------------------------------------------------------------------------------------------


def write_response(replies: Sequence[OffsetsFetched] | OffsetsFetched, version: int) -> bytes:
    """Return the response about several groups, or about the one that was asked for."""
    if isinstance(replies, OffsetsFetched):
        if MANY <= version < BY_ID and type(replies.partitions) is FetchedRows and not replies.error:
            return write_usual(replies.group_id, replies.partitions)
        replies = (replies,)
    encoding = encoding_of(API, version)
    throttle_time = b"\0\0\0\0" if version >= 3 else b""
    if version >= MANY:
        parts = [throttle_time, encoding.length(len(replies))]
        for reply in replies:
            parts.append(encoding.string(reply.group_id))
            _append_topics(parts, reply.partitions, encoding, version)
            parts += (_ERROR.pack(reply.error), encoding.tags)
        parts.append(encoding.tags)
        return b"".join(parts)
    (reply,) = replies
    parts = [throttle_time]
    if version >= HAS_GROUP_ERROR:
        _append_topics(parts, reply.partitions, encoding, version)
        parts += (_ERROR.pack(reply.error), encoding.tags)
    else:
        _append_topics(parts, _each_with_the_group_error(reply), encoding, version)
    return b"".join(parts)


def write_usual(group_id: str, rows: FetchedRows) -> bytes:
    """Write the response to a request for one group and one topic, in versions 8 and 9."""
    before, after = _around(group_id, rows.topic, len(rows))
    return before + rows.packed + after


@lru_cache(maxsize=1024)
def _around(group_id: str, topic: str, count: int) -> tuple[bytes, bytes]:
    """Return what is before and after the partitions in a response of version 8 or 9 about one group and one topic."""
    group, name = COMPACT.string(group_id), COMPACT.string(topic)
    before = (b"\0\0\0\0", COMPACT.length(1), group, COMPACT.length(1), name, COMPACT.length(count))
    return b"".join(before), b"\0\0\0\0\0"  # no tagged fields, no error, no tagged fields of group and answer


def _each_with_the_group_error(reply: OffsetsFetched) -> Sequence[FetchedOffset]:
    """Version 1 has no other place for it."""
    if not reply.error:
        return reply.partitions
    return [FetchedOffset(entry.topic, entry.partition, reply.error) for entry in reply.partitions]


_ERROR = Struct(">h")
_PARTITION_OFFSET = Struct(">iq")
_PARTITION_OFFSET_EPOCH = Struct(">iqi")
_WITHOUT_METADATA = {
    # partition, offset, (epoch,) the length of no metadata, error, (no tagged fields)
    (False, False): (Struct(">iqhh"), 0),
    (False, True): (Struct(">iqihh"), 0),
    (True, True): (Struct(">iqiBhx"), 1),
}


def _append_topics(parts: list[bytes], entries: Sequence[FetchedOffset], encoding: Encoding, version: int) -> None:
    """One entry per topic, in the order in which the topics first appear."""
    if type(entries) is FetchedRows and encoding.flexible and version < BY_ID:
        name, length = encoding.string(entries.topic), encoding.length(len(entries))
        parts += (encoding.length(1), name, length, entries.packed, encoding.tags)
        return
    by_id = version >= BY_ID
    topics: dict[str | UUID | None, list[FetchedOffset]] = {}
    last: object = topics  # no topic is this
    of_topic: list[FetchedOffset] = []
    for entry in entries:
        topic = entry.topic_id if by_id else entry.topic
        if topic is not last:
            last = topic
            of_topic = topics.setdefault(topic, [])
        of_topic.append(entry)
    parts.append(encoding.length(len(topics)))
    for topic, members in topics.items():
        if by_id:
            assert not isinstance(topic, str)
            parts.append(bytes(16) if topic is None else topic.bytes)
        else:
            parts.append(encoding.string(members[0].topic))
        parts.append(encoding.length(len(members)))
        _append_partitions(parts, members, encoding, has_epoch=version >= HAS_EPOCH)
        parts.append(encoding.tags)


def _append_partitions(
    parts: list[bytes], entries: Sequence[FetchedOffset], encoding: Encoding, *, has_epoch: bool
) -> None:
    shape, no_length = _WITHOUT_METADATA[encoding.flexible, has_epoch]
    pack, append, string = shape.pack, parts.append, encoding.string
    pack_end = Struct(">hx" if encoding.flexible else ">h").pack
    for entry in entries:
        metadata = entry.metadata
        if not metadata:
            if has_epoch:
                append(pack(entry.partition, entry.offset, entry.leader_epoch, no_length, entry.error))
            else:
                append(pack(entry.partition, entry.offset, no_length, entry.error))
        elif has_epoch:
            begin = _PARTITION_OFFSET_EPOCH.pack(entry.partition, entry.offset, entry.leader_epoch)
            parts += (begin, string(metadata), pack_end(entry.error))
        else:
            parts += (_PARTITION_OFFSET.pack(entry.partition, entry.offset), string(metadata), pack_end(entry.error))
