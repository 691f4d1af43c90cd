"""The records of KIP-848's groups in `__consumer_offsets`: types 3 to 8 and 16 (K27).

Keys are as old as the topic: an int16 type and strings that are not compact. Values have a version, so far 0, and
compact fields. What a newer Kafka adds as tagged fields is passed over.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct, error, pack
from typing import Any
from uuid import UUID

from coterie.errors import MalformedError
from coterie.protocol.buffer import MAX_STRING, Buffer, Reader, Writer, uvarint
from coterie.structs import DataStruct

EPOCH, PARTITION_METADATA, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16
"""The types of records."""
MEMBER_STATES = ("Stable", "UnrevokedPartitions", "UnreleasedPartitions")
"""The names of the states of a member, by their numbers in its record."""


class TopicPartitions(DataStruct, frozen=True):
    topic_id: UUID
    partitions: Sequence[int]
    epochs: Sequence[int] = ()
    """The assignment epoch at which each was given; not known of records that Kafka 4.2 and older wrote."""


class ConsumerGroupEpoch(DataStruct, frozen=True):
    epoch: int
    metadata_hash: int = 0


class PartitionMetadata(DataStruct, frozen=True):
    """Topics with their number of partitions. Written until Kafka 4.0 and a little later."""

    topics: Mapping[str, int]


class ClassicProtocol(DataStruct, frozen=True):
    name: str
    metadata: bytes


class MemberMetadata(DataStruct, frozen=True):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: Sequence[str]
    pattern: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_session_timeout_ms: int | None = None
    """The session timeout of a member that still uses the classic protocol."""
    classic_protocols: Sequence[ClassicProtocol] = ()


class TargetEpoch(DataStruct, frozen=True):
    assignment_epoch: int
    assigned_ms: int = 0


@dataclass(slots=True, frozen=True)
class TargetAssignment:
    partitions: Mapping[UUID, Sequence[int]]
    """The partitions, by topic."""
    written: bytes | None = field(default=None, compare=False, repr=False)
    """Its bytes, if they were made before, with `write_target`."""


class CurrentAssignment(DataStruct, frozen=True):
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: Sequence[TopicPartitions]
    pending_revocation: Sequence[TopicPartitions]


class ResolvedPattern(DataStruct, frozen=True):
    topics: Sequence[str]
    version: int
    resolved_ms: int


Value = (
    ConsumerGroupEpoch
    | PartitionMetadata
    | MemberMetadata
    | TargetEpoch
    | TargetAssignment
    | CurrentAssignment
    | ResolvedPattern
)


class ConsumerGroupRecord(DataStruct, frozen=True):
    type: int
    group_id: str
    about: str
    """The member, or the pattern; empty where the record is about the group."""
    value: Value | None
    """None: a tombstone."""


def topic_id_text(data: bytes) -> str:
    """Return a topic id as Kafka prints it: URL-safe base64 without its padding."""
    return urlsafe_b64encode(data)[:22].decode()


def read_consumer_group_record(key: Buffer, value: Buffer | None) -> ConsumerGroupRecord | None:
    """None if it is of another type."""
    reader = Reader(key, "key in __consumer_offsets")
    kind = reader.int16()
    row = TYPES.get(kind)
    if row is None:
        return None
    group_id = reader.string()
    about = reader.string() if row.is_about_one else ""
    if value is None:
        return ConsumerGroupRecord(kind, group_id, about, None)
    reader = Reader(value, f"{row.name} in __consumer_offsets")
    version = reader.int16()
    if version != 0:
        reader.position = 0
        raise reader.malformed(f"version 0 (found {version})")
    return ConsumerGroupRecord(kind, group_id, about, row.read(reader))


# --- values -----------------------------------------------------------------------------------------------------------

_HASH_TAG = _TIMESTAMP_TAG = _CLASSIC_TAG = _EPOCHS_TAG = 0


def _epoch(reader: Reader) -> ConsumerGroupEpoch:
    epoch, tags = reader.int32(), reader.tagged_fields()
    return ConsumerGroupEpoch(epoch, _int64(tags.get(_HASH_TAG)))


def _partition_metadata(reader: Reader) -> PartitionMetadata:
    topics = {}
    for _ in range(reader.compact_array_length(23)):
        reader.uuid()
        name = reader.compact_string()
        topics[name] = reader.int32()
        for _ in range(reader.compact_array_length(6)):
            reader.int32()
            for _ in range(reader.compact_array_length(1)):
                reader.compact_string()
            reader.tagged_fields()
        reader.tagged_fields()
    return PartitionMetadata(topics)


def _member_metadata(reader: Reader) -> MemberMetadata:
    instance_id, rack_id = reader.nullable_compact_string(), reader.nullable_compact_string()
    client_id, client_host = reader.compact_string(), reader.compact_string()
    topics, pattern = _strings(reader), reader.nullable_compact_string()
    timeout_ms, assignor = reader.int32(), reader.nullable_compact_string()
    session_timeout_ms, protocols = _classic(reader.tagged_fields().get(_CLASSIC_TAG))
    return MemberMetadata(
        instance_id,
        rack_id,
        client_id,
        client_host,
        topics,
        pattern,
        timeout_ms,
        assignor,
        session_timeout_ms,
        protocols,
    )


def _classic(field: bytes | None) -> tuple[int | None, list[ClassicProtocol]]:
    if field is None:
        return None, []
    reader = Reader(field, "classic member in __consumer_offsets")
    if not reader.uvarint():  # a tagged struct may be null: that is written 0, and 1 before one that is there
        return None, []
    session_timeout_ms, protocols = reader.int32(), []
    for _ in range(reader.compact_array_length(3)):
        protocols.append(ClassicProtocol(reader.compact_string(), reader.compact_binary()))
        reader.tagged_fields()
    return session_timeout_ms, protocols


def _target_epoch(reader: Reader) -> TargetEpoch:
    epoch, tags = reader.int32(), reader.tagged_fields()
    return TargetEpoch(epoch, _int64(tags.get(_TIMESTAMP_TAG)))


def _target_assignment(reader: Reader) -> TargetAssignment:
    return TargetAssignment({each.topic_id: tuple(each.partitions) for each in _topic_partitions(reader)})


def _current_assignment(reader: Reader) -> CurrentAssignment:
    return CurrentAssignment(
        reader.int32(), reader.int32(), reader.int8(), _topic_partitions(reader), _topic_partitions(reader)
    )


def _resolved_pattern(reader: Reader) -> ResolvedPattern:
    return ResolvedPattern(_strings(reader), reader.int64(), reader.int64())


def _topic_partitions(reader: Reader) -> list[TopicPartitions]:
    found = []
    for _ in range(reader.compact_array_length(18)):
        topic_id, partitions = reader.uuid(), _int32s(reader)
        epochs = reader.tagged_fields().get(_EPOCHS_TAG)
        given = [] if epochs is None else _int32s(Reader(epochs, "assignment epochs in __consumer_offsets"))
        found.append(TopicPartitions(topic_id, partitions, given))
    return found


def _strings(reader: Reader) -> list[str]:
    return [reader.compact_string() for _ in range(reader.compact_array_length(1))]


def _int32s(reader: Reader) -> list[int]:
    return [reader.int32() for _ in range(reader.compact_array_length(4))]


def _int64(field: bytes | None) -> int:
    return 0 if field is None else Reader(field, "tagged int64 in __consumer_offsets").int64()


class _Row(DataStruct, frozen=True):
    name: str
    read: Callable[[Reader], Value]
    is_about_one: bool = False
    """The key names a member, or a pattern, besides the group."""


TYPES: Mapping[int, _Row] = {
    EPOCH: _Row("epoch of a consumer group", _epoch),
    PARTITION_METADATA: _Row("topics of a consumer group", _partition_metadata),
    MEMBER: _Row("member of a consumer group", _member_metadata, is_about_one=True),
    TARGET_EPOCH: _Row("target epoch of a consumer group", _target_epoch),
    TARGET: _Row("target of a member", _target_assignment, is_about_one=True),
    CURRENT: _Row("assignment of a member", _current_assignment, is_about_one=True),
    REGEX: _Row("pattern of a consumer group", _resolved_pattern, is_about_one=True),
}


# --- writing ----------------------------------------------------------------------------------------------------------


def write_consumer_group_record(record: ConsumerGroupRecord) -> tuple[bytes, bytes | None]:
    """Return key and value as Kafka 4.3.1 writes them."""
    key = _TYPE.pack(record.type) + _string(record.group_id)
    if TYPES[record.type].is_about_one:
        key += _string(record.about)
    value = record.value
    if value is None:
        return key, None
    if type(value) is CurrentAssignment:  # as nearly all are: each member has one in each rebalance
        return key, _current(value)
    writer = Writer()
    writer.int16(0)
    _WRITE[type(value)](writer, value)
    return key, writer.done()


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > MAX_STRING:
        raise MalformedError(f"a string of {len(data)} bytes: Kafka's int16 length allows {MAX_STRING}")
    return _TYPE.pack(len(data)) + data


def _write_epoch(writer: Writer, value: ConsumerGroupEpoch) -> None:
    writer.int32(value.epoch)
    _write_int64_tag(writer, value.metadata_hash)


def _write_target_epoch(writer: Writer, value: TargetEpoch) -> None:
    writer.int32(value.assignment_epoch)
    _write_int64_tag(writer, value.assigned_ms)


def _write_int64_tag(writer: Writer, value: int) -> None:
    """Write the tagged fields of a value that has one; at its default it is left out."""
    field = Writer()
    field.int64(value)
    writer.tagged_fields({0: field.done()} if value else {})


def _write_member(writer: Writer, value: MemberMetadata) -> None:
    writer.nullable_compact_string(value.instance_id)
    writer.nullable_compact_string(value.rack_id)
    writer.compact_string(value.client_id)
    writer.compact_string(value.client_host)
    _write_strings(writer, value.topics)
    writer.nullable_compact_string(value.pattern)
    writer.int32(value.rebalance_timeout_ms)
    writer.nullable_compact_string(value.server_assignor)
    writer.tagged_fields({_CLASSIC_TAG: _written_classic(value)})


def _written_classic(value: MemberMetadata) -> bytes:
    if value.classic_session_timeout_ms is None:
        return b"\0"  # there is none, and Kafka says so
    field = Writer()
    field.uvarint(1)  # there is one
    field.int32(value.classic_session_timeout_ms)
    field.compact_array_length(len(value.classic_protocols))
    for protocol in value.classic_protocols:
        field.compact_string(protocol.name)
        field.compact_binary(protocol.metadata)
        field.tagged_fields({})
    field.tagged_fields({})
    return field.done()


def write_target(partitions: Mapping[UUID, Sequence[int]]) -> bytes:
    """Return the value of a target. Those of a large group have thousands of topics: nothing is called for a field."""
    parts = [uvarint(len(partitions) + 1)]
    for topic_id, numbers in partitions.items():
        parts += topic_id.bytes, _int32_array(numbers), _NO_TAGS
    return b"".join((*parts, _NO_TAGS))


def _write_target(writer: Writer, value: TargetAssignment) -> None:
    writer.raw(write_target(value.partitions) if value.written is None else value.written)


def _current(value: CurrentAssignment) -> bytes:
    try:
        start = _CURRENT.pack(0, value.member_epoch, value.previous_member_epoch, value.state)
    except error:
        raise MalformedError("an epoch does not fit into an int32, or a state into an int8") from None
    return start + _partitions(value.assigned) + _partitions(value.pending_revocation) + _NO_TAGS


def _write_regex(writer: Writer, value: ResolvedPattern) -> None:
    _write_strings(writer, value.topics)
    writer.int64(value.version)
    writer.int64(value.resolved_ms)
    writer.tagged_fields({})


def _partitions(topics: Sequence[TopicPartitions]) -> bytes:
    if not topics:
        return _NO_TOPICS
    parts = [uvarint(len(topics) + 1)]
    for topic in topics:
        parts += topic.topic_id.bytes, _int32_array(topic.partitions)
        if topic.epochs:
            epochs = _int32_array(topic.epochs)
            parts += _ONE_TAG, uvarint(len(epochs)), epochs
        else:
            parts.append(_NO_TAGS)
    return b"".join(parts)


_NO_TAGS = uvarint(0)
_NO_TOPICS = uvarint(1)
_TYPE = Struct(">h")
_CURRENT = Struct(">hiib")  # version, epoch, previous epoch, state
_ONE_TAG = uvarint(1) + uvarint(_EPOCHS_TAG)


def _int32_array(values: Sequence[int]) -> bytes:
    try:
        return uvarint(len(values) + 1) + pack(f">{len(values)}i", *values)
    except error:
        raise MalformedError("a partition or epoch does not fit into an int32") from None


def _write_strings(writer: Writer, values: Sequence[str]) -> None:
    writer.compact_array_length(len(values))
    for value in values:
        writer.compact_string(value)


_WRITE: Mapping[type, Callable[[Writer, Any], None]] = {
    ConsumerGroupEpoch: _write_epoch,
    MemberMetadata: _write_member,
    TargetEpoch: _write_target_epoch,
    TargetAssignment: _write_target,
    ResolvedPattern: _write_regex,
}
