"""The records of `__consumer_offsets`: what a group committed, and the group as it was last made durable.

A key is an int16 type and its fields, a value an int16 version and its fields, no value a tombstone (semantics 10).
Read is every version there ever was; written is what Kafka 4.3.1 writes, byte for byte. Bytes after the last known
field are ignored, as Kafka does. The control records of a transactional batch are not records of this kind; they
are read with their batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct, error
from uuid import UUID

from coterie.errors import MalformedError
from coterie.protocol.buffer import MAX_STRING, OLD, Buffer, Reader, Writer, uvarint
from coterie.protocol.consumer_group_records import write_consumer_group_record
from coterie.protocol.messages import CommittedOffset, GroupRecord, OffsetRecord, Record, StoredGroup, StoredMember

OFFSETS_TOPIC = "__consumer_offsets"
OFFSET_KEYS = (0, 1)  # 0 is what Kafka wrote before 0.9; the fields are the same
GROUP_KEY = 2

OFFSET_VALUE_VERSIONS = range(5)
GROUP_VALUE_VERSIONS = range(5)
FLEXIBLE_FROM = 4
"""The first version of both values with compact and tagged fields (KIP-915)."""

TOPIC_ID_TAG = 0
NO_TOPIC_ID = UUID(int=0)
NONE = -1  # how Kafka writes an absent timestamp or epoch


@dataclass(slots=True, frozen=True)
class Skipped:
    """A record of another type: 9-15 (share), 17-23 (streams), any future one, and 3-8 and 16 (KIP-848).

    `consumer_group_records.py` reads the last.
    """

    type: int
    group_id: str = field(default="", compare=False)
    """The first field of every key so far; "" if it cannot be read."""

    @property
    def group_type(self) -> str:
        """consumer, share or streams, as ListGroups calls it; "" if it is not known here."""
        return next((name for name, types in _GROUP_TYPES.items() if self.type in types), "")


_GROUP_TYPES = {"consumer": {*range(3, 9), 16}, "share": {*range(9, 16)}, "streams": {*range(17, 24)}}


# --- reading --------------------------------------------------------------------------------------------------------


def read_record(key: Buffer, value: Buffer | None) -> OffsetRecord | GroupRecord | Skipped:
    return _read_usual(key, value) or read_record_plainly(key, value)


_USUAL = Struct(">hqiBq")  # version, offset, leader epoch, the length of no metadata, time
_TOPIC_ID = bytes((1, TOPIC_ID_TAG, 16))  # one tagged field, its tag, its size
_NO_TAGS = b"\0"
_LONG = 512
"""Keys longer than this are not worth the memory."""


def _read_usual(key: Buffer, value: Buffer | None) -> OffsetRecord | None:
    """An offset as nearly all are written today, at once: a start reads hundreds of thousands. Anything else: None."""
    if type(value) is not bytes or type(key) is not bytes or len(value) < _USUAL.size or len(key) > _LONG:
        return None
    version, offset, leader_epoch, length, at_ms = _USUAL.unpack_from(value)
    names, tags = _names(key[:-4]), value[_USUAL.size :]
    if version != FLEXIBLE_FROM or length != 1 or names is None:
        return None
    topic_id = None
    if tags.startswith(_TOPIC_ID) and len(tags) == 19:
        topic_id = _topic_id(tags[3:])
    elif tags != _NO_TAGS:
        return None
    committed = CommittedOffset(offset, leader_epoch, "", at_ms, None, topic_id)
    return OffsetRecord(*names, int.from_bytes(key[-4:], "big", signed=True), committed)


@lru_cache(maxsize=4096)  # the offsets of a group come one after the other
def _names(start: bytes) -> tuple[str, str] | None:
    """Group and topic, from the beginning of a key up to its partition; None if that is no key of an offset."""
    reader = Reader(start)
    try:
        kind = reader.int16()
        names = (reader.string(), reader.string()) if kind in OFFSET_KEYS else None
    except MalformedError:
        return None
    return None if reader.remaining else names


def read_record_plainly(key: Buffer, value: Buffer | None) -> OffsetRecord | GroupRecord | Skipped:
    record = read_key(key)
    if value is None:
        return record
    if isinstance(record, OffsetRecord):
        record.value = read_offset_value(value)
    elif isinstance(record, GroupRecord):
        record.value = read_group_value(value)
    return record


def read_key(key: Buffer) -> OffsetRecord | GroupRecord | Skipped:
    """Return what a key is about, which is the tombstone of it."""
    reader = Reader(key, "key in __consumer_offsets")
    kind = reader.int16()
    if kind in OFFSET_KEYS:
        return OffsetRecord(reader.string(), reader.string(), reader.int32(), None)
    if kind == GROUP_KEY:
        return GroupRecord(reader.string(), None)
    try:
        return Skipped(kind, reader.string())
    except MalformedError:
        return Skipped(kind)


def read_offset_value(value: Buffer) -> CommittedOffset:
    reader = Reader(value, "offset value in __consumer_offsets")
    version = _known_version(reader, OFFSET_VALUE_VERSIONS)
    flexible = version >= FLEXIBLE_FROM
    committed = CommittedOffset(
        offset=reader.int64(),
        leader_epoch=reader.int32() if version >= 3 else NONE,
        metadata=reader.compact_string() if flexible else reader.string(),
        commit_timestamp_ms=reader.int64(),
    )
    if version == 1:
        expires = reader.int64()
        committed.expire_timestamp_ms = None if expires == NONE else expires
    if flexible:
        topic_id = reader.tagged_fields().get(TOPIC_ID_TAG)
        if topic_id is not None:
            committed.topic_id = _topic_id(topic_id)
    return committed


@lru_cache(maxsize=4096)  # millions of offsets share a few topics: one object for each, and no time spent on it
def _topic_id(field: bytes) -> UUID | None:
    topic_id = Reader(field, "topic id of an offset in __consumer_offsets").uuid()
    return None if topic_id == NO_TOPIC_ID else topic_id


def read_group_value(value: Buffer) -> StoredGroup:
    reader = Reader(value, "group value in __consumer_offsets")
    version = _known_version(reader, GROUP_VALUE_VERSIONS)
    flexible = version >= FLEXIBLE_FROM
    string = reader.compact_string if flexible else reader.string
    nullable_string = reader.nullable_compact_string if flexible else reader.nullable_string
    array_length = reader.compact_array_length if flexible else reader.array_length

    group = StoredGroup(
        protocol_type=string(),
        generation_id=reader.int32(),
        protocol_name=nullable_string(),
        leader_id=nullable_string(),
        state_timestamp_ms=reader.int64() if version >= 2 else NONE,
    )
    smallest_member = 15 if flexible else 18  # every field empty; in versions 1 to 3 a little more
    group.members = tuple([_read_member(reader, version) for _ in range(array_length(smallest_member))])
    if flexible:
        reader.tagged_fields()
    return group


def _read_member(reader: Reader, version: int) -> StoredMember:
    flexible = version >= FLEXIBLE_FROM
    string = reader.compact_string if flexible else reader.string
    nullable_string = reader.nullable_compact_string if flexible else reader.nullable_string
    binary = reader.compact_binary if flexible else reader.binary

    member_id = string()
    instance_id = nullable_string() if version >= 3 else None
    client_id, client_host = string(), string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else NONE
    session_timeout_ms = reader.int32()
    if rebalance_timeout_ms == NONE:
        rebalance_timeout_ms = session_timeout_ms  # rule 4: who has none waits as long as its session
    subscription, assignment = binary(), binary()
    if flexible:
        reader.tagged_fields()
    return StoredMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def _known_version(reader: Reader, known: range) -> int:
    version = reader.int16()
    if version not in known:
        reader.position = 0
        raise reader.malformed(f"a version from {known[0]} to {known[-1]} (found {version})")
    return version


# --- writing --------------------------------------------------------------------------------------------------------


def write_record(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value, in the versions Kafka 4.3.1 writes: 4 for an offset, 1 if it has an expiry, 3 for a group."""
    if isinstance(record, OffsetRecord):  # first, as most are: isinstance is slow if it is False
        offset = record.value
        if offset is None:
            return write_key(record), None
        return write_key(record), write_offset_value(offset, 4 if offset.expire_timestamp_ms is None else 1)
    if isinstance(record, GroupRecord):
        return write_key(record), None if record.value is None else write_group_value(record.value, 3)
    return write_consumer_group_record(record)


_TYPE_AND_LENGTH = Struct(">hh")
_LENGTH = Struct(">h")
_PARTITION = Struct(">i")


def write_key(record: OffsetRecord | GroupRecord) -> bytes:
    group = record.group_id.encode()
    try:
        if isinstance(record, OffsetRecord):
            topic = record.topic.encode()
            head = _TYPE_AND_LENGTH.pack(OFFSET_KEYS[-1], len(group))
            return head + group + _LENGTH.pack(len(topic)) + topic + _PARTITION.pack(record.partition)
        return _TYPE_AND_LENGTH.pack(GROUP_KEY, len(group)) + group
    except error:
        raise MalformedError(
            f"a key in __consumer_offsets holds names of at most {MAX_STRING} bytes and an int32 partition: {record}"
        ) from None


# What comes before and after the metadata, which alone has no fixed length. One call packs several fields: every commit
# of every partition passes here.
_Shape = Callable[..., bytes]
_WITHOUT_EPOCH: _Shape = Struct(">hqh").pack  # version, offset, length of metadata
_WITH_EPOCH: _Shape = Struct(">hqih").pack  # version, offset, leader epoch, length of metadata
_FLEXIBLE: _Shape = Struct(">hqi").pack  # version, offset, leader epoch
_TIMESTAMP: _Shape = Struct(">q").pack
_TIMESTAMP_AND_EXPIRY: _Shape = Struct(">qq").pack
_TIMESTAMP_AND_NO_TAGS: _Shape = Struct(">qB").pack
_TIMESTAMP_AND_TOPIC_ID: _Shape = Struct(">qBBB16s").pack  # ..., one tagged field, its tag, its size, the topic id


def write_offset_value(value: CommittedOffset, version: int) -> bytes:
    """The value in any version; what that version cannot say is left out."""
    metadata = value.metadata.encode()
    at_ms = value.commit_timestamp_ms
    try:
        if version == 4:
            head = _FLEXIBLE(version, value.offset, value.leader_epoch) + uvarint(len(metadata) + 1)
            if value.topic_id is None:  # without a call: many partitions pass here
                return head + metadata + _TIMESTAMP_AND_NO_TAGS(at_ms, 0)
            return head + metadata + offset_value_end(at_ms, value.topic_id)
        if version == 3:
            return _WITH_EPOCH(3, value.offset, value.leader_epoch, len(metadata)) + metadata + _TIMESTAMP(at_ms)
        if version == 1:
            expires = NONE if value.expire_timestamp_ms is None else value.expire_timestamp_ms
            return _WITHOUT_EPOCH(1, value.offset, len(metadata)) + metadata + _TIMESTAMP_AND_EXPIRY(at_ms, expires)
        if version in OFFSET_VALUE_VERSIONS:
            return _WITHOUT_EPOCH(version, value.offset, len(metadata)) + metadata + _TIMESTAMP(at_ms)
    except error:
        raise MalformedError(
            f"an offset value of version {version} holds int64 numbers, an int32 epoch and metadata of at most "
            f"{MAX_STRING} bytes (any length from version 4 on): {value}"
        ) from None
    raise MalformedError(f"there is no version {version} of the offset value; known are 0 to 4")


def offset_value_end(at_ms: int, topic_id: UUID | None) -> bytes:
    """The end of a value of version 4, behind the metadata."""
    if topic_id is None or not topic_id.int:  # a field at its default is not written
        return _TIMESTAMP_AND_NO_TAGS(at_ms, 0)
    return _TIMESTAMP_AND_TOPIC_ID(at_ms, 1, TOPIC_ID_TAG, 16, topic_id.int.to_bytes(16, "big"))


def write_group_value(value: StoredGroup, version: int) -> bytes:
    """The value in any version; what that version cannot say is left out."""
    if version not in GROUP_VALUE_VERSIONS:
        raise MalformedError(f"there is no version {version} of the group value; known are 0 to 4")
    if version == 3:
        return _group_3(value)
    flexible = version >= FLEXIBLE_FROM
    writer = Writer()
    nullable_string = writer.nullable_compact_string if flexible else writer.nullable_string

    writer.int16(version)
    nullable_string(value.protocol_type)
    writer.int32(value.generation_id)
    nullable_string(value.protocol_name)
    nullable_string(value.leader_id)
    if version >= 2:
        writer.int64(value.state_timestamp_ms)
    (writer.compact_array_length if flexible else writer.array_length)(len(value.members))
    for member in value.members:
        _write_member(writer, member, version)
    if flexible:
        writer.tagged_fields({})
    return writer.done()


_SINCE_AND_COUNT = Struct(">qi")  # the time of the state, the number of members


def _group_3(value: StoredGroup) -> bytes:
    """Return the value in the version that is written, in few steps: each group has one in every rebalance."""
    string = OLD.string
    try:
        start = (
            b"\0\3",  # the version
            string(value.protocol_type),
            _PARTITION.pack(value.generation_id),
            string(value.protocol_name),
            string(value.leader_id),
            _SINCE_AND_COUNT.pack(value.state_timestamp_ms, len(value.members)),
        )
    except error:
        raise MalformedError(
            f"a group has an int32 generation, an int64 time, and names of at most {MAX_STRING} bytes: {value}"
        ) from None
    return b"".join((*start, *map(_member_3, value.members)))


_TIMEOUTS = Struct(">iii")  # of rebalance and session; the length of the subscription


def _member_3(member: StoredMember) -> bytes:
    """Return a member in the version that is written, in few steps: each has one in every rebalance."""
    member_id, client_id, client_host = (
        member.member_id.encode(),
        member.client_id.encode(),
        member.client_host.encode(),
    )
    subscription, assignment = member.subscription, member.assignment
    length = _LENGTH.pack
    try:
        if member.instance_id is None:
            instance = b"\xff\xff"
        else:
            name = member.instance_id.encode()
            instance = length(len(name)) + name
        return b"".join(
            (
                length(len(member_id)),
                member_id,
                instance,
                length(len(client_id)),
                client_id,
                length(len(client_host)),
                client_host,
                _TIMEOUTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms, len(subscription)),
                subscription,
                _PARTITION.pack(len(assignment)),
                assignment,
            )
        )
    except error:
        raise MalformedError(
            f"a member of a group has int32 timeouts, and names of at most {MAX_STRING} bytes: {member}"
        ) from None


def _write_member(writer: Writer, member: StoredMember, version: int) -> None:
    flexible = version >= FLEXIBLE_FROM
    string = writer.compact_string if flexible else writer.string
    binary = writer.compact_binary if flexible else writer.binary

    string(member.member_id)
    if version >= 3:
        (writer.nullable_compact_string if flexible else writer.nullable_string)(member.instance_id)
    string(member.client_id)
    string(member.client_host)
    if version >= 1:
        writer.int32(member.rebalance_timeout_ms)
    writer.int32(member.session_timeout_ms)
    binary(member.subscription)
    binary(member.assignment)
    if flexible:
        writer.tagged_fields({})
