"""The topics and partitions that OffsetCommit and TxnOffsetCommit have in common, with a hand-written reader.

A commit of a hundred partitions is the largest message of the hot path. A property holds these functions equal to the
plain readers and writers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, pack
from uuid import UUID

from coterie.protocol.buffer import Encoding, read_tags
from coterie.protocol.codec.codec import read_count, read_text, too_many
from coterie.protocol.codec.reader_source import MAX_ENTRIES
from coterie.protocol.commit_rows import CommitRows, read_commit_rows
from coterie.protocol.messages import CommitPartition, OffsetsCommitted

__all__ = ["read_topics", "write_committed_topic", "write_topics"]

_ZERO_UUID = bytes(16)
_PARTITION_OFFSET_EPOCH = Struct(">iqi")
_PARTITION_OFFSET = Struct(">iq")


def read_topics(
    frame: bytes, at: int, encoding: Encoding, *, by_id: bool, has_epoch: bool
) -> tuple[Sequence[CommitPartition], int]:
    partitions: list[CommitPartition] = []
    topics, at = read_count(frame, at, encoding)
    for _ in range(topics):
        name, topic_id = "", None
        if by_id:
            topic_id, at = _read_id(frame, at)
        else:
            name, at = read_text(frame, at, encoding)
        count, at = read_count(frame, at, encoding)
        if count + len(partitions) > MAX_ENTRIES:
            raise too_many()
        found = read_commit_rows(frame, at, count, name, topic_id, flexible=encoding.flexible) if has_epoch else None
        if found is None:
            at = _read_partitions(frame, at, encoding, count, (name, topic_id), partitions, has_epoch=has_epoch)
        else:
            rows, at = found
        _, at = read_tags(frame, at) if encoding.flexible else (None, at)
        if found is not None:
            if topics == 1:
                return rows, at
            partitions += rows
    return partitions, at


def _read_partitions(
    frame: bytes,
    at: int,
    encoding: Encoding,
    count: int,
    topic: tuple[str, UUID | None],
    partitions: list[CommitPartition],
    *,
    has_epoch: bool,
) -> int:
    name, topic_id = topic
    starts, append, read_string = frame.startswith, partitions.append, encoding.read_string
    shape = _PARTITION_OFFSET_EPOCH if has_epoch else _PARTITION_OFFSET
    unpack, size = shape.unpack_from, shape.size
    empty, tags = encoding.string(""), encoding.tags
    empty_size, tags_size = len(empty), len(tags)
    leader_epoch = -1
    for _ in range(count):
        if has_epoch:
            partition, offset, leader_epoch = unpack(frame, at)
        else:
            partition, offset = unpack(frame, at)
        at += size
        if starts(empty, at):
            metadata: str | None = ""
            at += empty_size
        else:
            metadata, at = read_string(frame, at)
        if starts(tags, at):
            at += tags_size
        else:
            _, at = read_tags(frame, at)
        append(CommitPartition(name, partition, offset, leader_epoch, metadata, topic_id))
    return at


def _read_id(frame: bytes, at: int) -> tuple[UUID | None, int]:
    data = frame[at : at + 16]
    if len(data) < 16:
        raise IndexError
    return (None if data == _ZERO_UUID else UUID(bytes=data)), at + 16


def write_topics(reply: OffsetsCommitted, encoding: Encoding, *, by_id: bool) -> bytes:
    """One entry per topic, in the order in which the topics first appear: partition, error, partition, error, ..."""
    topics: dict[str | UUID | None, list[int]] = {}
    last: object = topics  # no topic is this
    numbers: list[int] = []
    asked = reply.partitions
    if type(asked) is CommitRows:
        if not any(reply.errors):
            return write_committed_topic(asked, encoding, by_id=by_id)
        numbers = [0] * (2 * len(asked))
        numbers[::2], numbers[1::2] = asked.numbers, reply.errors
        topics[asked.topic_id if by_id else asked.topic] = numbers
        asked = ()
    for partition, error in zip(asked, reply.errors, strict=False):
        topic = partition.topic_id if by_id else partition.topic
        if topic is not last:
            last = topic
            numbers = topics.setdefault(topic, [])
        numbers += (partition.partition, error)
    entry = "ihx" if encoding.flexible else "ih"  # x: no tagged fields
    parts = [encoding.length(len(topics))]
    for topic, numbers in topics.items():
        count = len(numbers) // 2
        parts += (
            _topic(topic, encoding),
            encoding.length(count),
            pack(">" + entry * count, *numbers),
            encoding.tags,
        )
    return b"".join(parts)


def write_committed_topic(rows: CommitRows, encoding: Encoding, *, by_id: bool) -> bytes:
    """Write the entry of a topic of which every partition was stored."""
    topic, numbers = rows.topic_id if by_id else rows.topic, rows.numbers
    if len(numbers) > _REMEMBERED:
        return _well(topic, numbers, encoding)
    return _remembered_well(topic, numbers, encoding)


def _well(topic: str | UUID | None, numbers: tuple[int, ...], encoding: Encoding) -> bytes:
    count = len(numbers)
    entries = pack(">" + ("ixxx" if encoding.flexible else "ixx") * count, *numbers)
    return b"".join((encoding.length(1), _topic(topic, encoding), encoding.length(count), entries, encoding.tags))


_REMEMBERED = 128
"""Partitions of an answer that is worth remembering: who commits does so again and again."""
_remembered_well = lru_cache(maxsize=1024)(_well)


def _topic(topic: str | UUID | None, encoding: Encoding) -> bytes:
    if isinstance(topic, str):
        return encoding.string(topic)
    return _ZERO_UUID if topic is None else topic.bytes
