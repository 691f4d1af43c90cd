"""What OffsetCommit and TxnOffsetCommit have in common, written out by hand: topics with their partitions.

A commit of a hundred partitions is the largest message of the hot path. A property holds these functions equal to the
plain readers and writers.
"""

from __future__ import annotations

from struct import Struct, pack
from uuid import UUID

from coterie.apis.reading import MAX_ENTRIES
from coterie.errors import MalformedError
from coterie.messages import CommitPartition, OffsetsCommitted
from coterie.wire.encoding import Encoding, read_tags

__all__ = ["read_text", "read_topics", "write_topics"]

_ZERO_UUID = bytes(16)
_PARTITION_OFFSET_EPOCH = Struct(">iqi")
_PARTITION_OFFSET = Struct(">iq")
_PLAIN = {
    # partition, offset, epoch, the length of no metadata, and that there are no tagged fields
    True: (Struct(">iqiH"), 0x0100),
    False: (Struct(">iqiH"), 0),
}
"""By whether it is flexible, what most partitions look like."""
_FEW = 2
"""Partitions that are read one by one in less time."""


def read_text(frame: bytes, at: int, encoding: Encoding) -> tuple[str, int]:
    text, end = encoding.read_string(frame, at)
    if text is None:
        raise MalformedError(f"the text at byte {at} is null, which is not allowed there")
    return text, end


def read_topics(
    frame: bytes, at: int, encoding: Encoding, *, by_id: bool, has_epoch: bool
) -> tuple[list[CommitPartition], int]:
    partitions: list[CommitPartition] = []
    topics, at = _read_count(frame, at, encoding)
    if topics > MAX_ENTRIES:
        raise _too_many()
    for _ in range(topics):
        name, topic_id = "", None
        if by_id:
            topic_id, at = _read_id(frame, at)
        else:
            name, at = read_text(frame, at, encoding)
        count, at = _read_count(frame, at, encoding)
        if count + len(partitions) > MAX_ENTRIES:
            raise _too_many()
        at = _read_partitions(frame, at, encoding, count, (name, topic_id), partitions, has_epoch=has_epoch)
        _, at = read_tags(frame, at) if encoding.flexible else (None, at)
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
    if has_epoch and count > _FEW:
        plain = _read_plain(frame, at, count, topic, flexible=encoding.flexible)
        if plain is not None:
            partitions += plain
            return at + count * _PLAIN[encoding.flexible][0].size
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


def _read_plain(
    frame: bytes, at: int, count: int, topic: tuple[str, UUID | None], *, flexible: bool
) -> list[CommitPartition] | None:
    """All at once, if each has the usual shape: then each begins where the one before says that it ends."""
    name, topic_id = topic
    shape, ending = _PLAIN[flexible]
    rows = shape.iter_unpack(frame[at : at + count * shape.size]) if at + count * shape.size <= len(frame) else ()
    found = [
        CommitPartition(name, partition, offset, leader_epoch, "", topic_id)
        for partition, offset, leader_epoch, end in rows
        if end == ending
    ]
    return found if len(found) == count else None


def _read_count(frame: bytes, at: int, encoding: Encoding) -> tuple[int, int]:
    count, at = encoding.read_length(frame, at)
    if count < 0:
        raise MalformedError(f"the list before byte {at} is null, which is not allowed there")
    if count > len(frame) - at:
        raise IndexError
    return count, at


def _too_many() -> MalformedError:
    return MalformedError(
        f"a commit lists more than {MAX_ENTRIES} entries, which is the most allowed; commit in several"
    )


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
    for partition, error in zip(reply.partitions, reply.errors, strict=True):
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


def _topic(topic: str | UUID | None, encoding: Encoding) -> bytes:
    if isinstance(topic, str):
        return encoding.string(topic)
    return _ZERO_UUID if topic is None else topic.bytes
