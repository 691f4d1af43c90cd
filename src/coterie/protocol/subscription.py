"""Subscriptions and assignments of classic groups, which the coordinator passes on without reading them.

A subscription goes from each member to the leader inside JoinGroup, an assignment from the leader to each member inside
SyncGroup. Both begin with an int16 version. A later version only adds fields at the end, so a version we do not know is
read as the highest we do, and bytes after the last known field are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from struct import error as struct_error
from struct import pack
from sys import intern

from coterie.errors import MalformedError
from coterie.protocol.buffer import Buffer, Reader, Writer
from coterie.protocol.messages import NO_GENERATION
from coterie.structs import DataStruct, field

VERSIONS = range(4)
"""The versions of both messages: 1 has owned partitions (KIP-429), 2 the generation (KIP-792), 3 the rack (KIP-881)."""

_SMALLEST_STRING = 2
_SMALLEST_TOPIC = 6  # an empty name and no partitions


class Subscription(DataStruct):
    topics: Sequence[str]
    user_data: bytes | None = None
    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The partitions that the member owned when it joined, by topic."""
    generation_id: int = NO_GENERATION
    """The generation in which it was given that."""
    rack: str | None = None
    version: int = VERSIONS[-1]


class Assignment(DataStruct):
    partitions: Mapping[str, Sequence[int]]
    user_data: bytes | None = None
    version: int = VERSIONS[-1]


def read_subscription(data: Buffer) -> Subscription:
    return read_subscriptions([data])[0]


def read_subscriptions(messages: Iterable[Buffer]) -> list[Subscription]:
    """All of a group, as its leader is given them.

    Members mostly subscribe to the same topics. So the bytes of the last list are compared first: reading a hundred
    names from each of thousands of members takes longer than assigning the partitions.
    """
    subscriptions: list[Subscription] = []
    topics: list[str] = []
    written: Buffer = b""
    for data in messages:
        reader = Reader(data, "consumer protocol subscription")
        version = _read_version(reader)
        start = reader.position
        if written and data[start : start + len(written)] == written:
            reader.position += len(written)
        else:
            topics = _read_topics(reader)
            written = data[start : reader.position]
        subscriptions.append(_read_rest(reader, Subscription(topics, reader.nullable_binary(), version=version)))
    return subscriptions


def _read_rest(reader: Reader, subscription: Subscription) -> Subscription:
    version = subscription.version
    if version >= 1:
        subscription.owned = _read_partitions(reader)
    if version >= 2:
        subscription.generation_id = reader.int32()
    if version >= 3:
        subscription.rack = reader.nullable_string() or None  # Kafka takes an empty rack for none
    return subscription


def write_subscription(subscription: Subscription) -> bytes:
    """Write topics in sorted order, as Kafka's client does: equal subscriptions are equal bytes, so no rebalance."""
    version = subscription.version
    writer = _writer(version)
    writer.array_length(len(subscription.topics))
    for topic in sorted(subscription.topics):
        writer.string(topic)
    writer.nullable_binary(subscription.user_data)
    if version >= 1:
        _write_partitions(writer, {topic: sorted(owned) for topic, owned in sorted(subscription.owned.items())})
    if version >= 2:
        writer.int32(subscription.generation_id)
    if version >= 3:
        writer.nullable_string(subscription.rack)
    return writer.done()


def read_assignment(data: Buffer) -> Assignment:
    reader = Reader(data, "consumer protocol assignment")
    version = _read_version(reader)
    return Assignment(_read_partitions(reader), reader.nullable_binary(), version)


def write_assignment(assignment: Assignment) -> bytes:
    """Write an assignment in the order that the assignor gave it."""
    if assignment.user_data is None and len(assignment.partitions) == 1 and assignment.version in VERSIONS:
        ((topic, numbers),) = assignment.partitions.items()
        name = topic.encode()
        with suppress(struct_error):  # else a name or a number does not fit: the plain way says so
            count = len(numbers)
            return pack(
                f">hih{len(name)}si{count}ii", assignment.version, 1, len(name), name, count, *numbers, _NO_USER_DATA
            )
    writer = _writer(assignment.version)
    _write_partitions(writer, assignment.partitions)
    writer.nullable_binary(assignment.user_data)
    return writer.done()


_NO_USER_DATA = -1  # its length


def subscribed_topics(data: Buffer) -> frozenset[str] | None:
    """The topics alone, or None if these bytes are no subscription (rules 20, 24).

    The coordinator reads what every version begins with, whatever the version says, even a negative one.
    """
    reader = Reader(data)
    try:
        reader.int16()
        topics = frozenset(_read_topics(reader))
        reader.nullable_binary()
    except MalformedError:
        return None
    return topics


def subscription_version(data: Buffer) -> int:
    """Return the version of a subscription, or the nearest that we know; the lowest if the bytes do not say."""
    try:
        version = Reader(data).int16()
    except MalformedError:
        version = VERSIONS[0]
    return min(max(version, VERSIONS[0]), VERSIONS[-1])


def _read_version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        reader.position = 0
        raise reader.malformed(f"a version of 0 or more (found {version})")
    return min(version, VERSIONS[-1])


def _writer(version: int) -> Writer:
    if version not in VERSIONS:
        raise MalformedError(f"there is no version {version} of the consumer protocol; known are 0 to {VERSIONS[-1]}")
    writer = Writer()
    writer.int16(version)
    return writer


def _read_topics(reader: Reader) -> list[str]:
    # One object for a name that thousands of members send: it is then hashed once, and compared by identity.
    return [intern(reader.string()) for _ in range(reader.array_length(_SMALLEST_STRING))]


def _read_partitions(reader: Reader) -> dict[str, list[int]]:
    partitions: dict[str, list[int]] = {}
    for _ in range(reader.array_length(_SMALLEST_TOPIC)):
        topic = reader.string()
        run = reader.int32_array()
        if topic in partitions:  # allowed on the wire: Kafka adds them up
            partitions[topic] += run
        else:
            partitions[topic] = run
    return partitions


def _write_partitions(writer: Writer, partitions: Mapping[str, Sequence[int]]) -> None:
    writer.array_length(len(partitions))
    for topic, run in partitions.items():
        writer.string(topic)
        writer.int32_array(run)
