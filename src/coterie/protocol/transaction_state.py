"""The records of `__transaction_state`: one per transactional id, as its transaction was last made durable (TR1).

A key is an int16 version, so far 0, and the transactional id. A value is an int16 version and its fields; no value is a
tombstone. Version 1 has compact and tagged fields, and is what Kafka 4.3.1 writes. Version 0, which older brokers
wrote, is read as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct

from coterie.errors import MalformedError
from coterie.protocol.buffer import Buffer, Reader, Writer, uvarint

TRANSACTION_STATE_TOPIC = "__transaction_state"
NONE = -1
"""How an absent id, epoch or time is written."""

Partition = tuple[str, int]

_KEY_VERSION = 0
_VALUE_VERSION = 1
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION, _NEXT_EPOCH = range(4)
_INT64, _INT32, _INT16 = Struct(">q"), Struct(">i"), Struct(">h")
_VALUE_HEAD, _TIMES = Struct(">hqhib"), Struct(">qq")
_TAGGED_INT64, _TAGGED_INT16 = Struct(">BBq"), Struct(">BBh")


class TransactionStatus(IntEnum):
    """The states of a transaction that are written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


@dataclass(slots=True, kw_only=True, frozen=True)
class TransactionValue:
    """The state of one transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: TransactionStatus
    partitions: frozenset[Partition] = frozenset()
    last_update_ms: int
    start_ms: int = NONE
    """The time of the first partition; -1 in Empty."""
    previous_producer_id: int = NONE
    next_producer_id: int = NONE
    """The producer id from the end of the transaction on, if the epochs of the present one are used up."""
    client_version: int = 0
    """The version of transactions that the last request used: 2 with KIP-890, else 0."""


@dataclass(slots=True, frozen=True)
class TransactionRecord:
    """A transactional id with its state; None is a tombstone."""

    transactional_id: str
    value: TransactionValue | None = field(default=None)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_transaction_record(key: Buffer, value: Buffer | None) -> TransactionRecord | None:
    """Return the record; None if its key is of a newer kind."""
    reader = Reader(key, "key in __transaction_state")
    if reader.int16() != _KEY_VERSION:
        return None
    transactional_id = reader.string()
    return TransactionRecord(transactional_id, None if value is None else read_transaction_value(value))


def read_transaction_value(value: Buffer) -> TransactionValue:
    reader = Reader(value, "value in __transaction_state")
    version = reader.int16()
    if version not in range(_VALUE_VERSION + 1):
        reader.position = 0
        raise reader.malformed(f"version 0 or 1 (found {version})")
    flexible = version >= 1
    producer_id, epoch, timeout_ms, status = reader.int64(), reader.int16(), reader.int32(), reader.int8()
    if status not in TransactionStatus.__members__.values():
        raise reader.malformed(f"a status from 0 to 5 (found {status})")
    partitions = frozenset(_read_partitions(reader, flexible=flexible))
    last_update_ms, start_ms = reader.int64(), reader.int64()
    tags = reader.tagged_fields() if flexible else {}
    return TransactionValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        status=TransactionStatus(status),
        partitions=partitions,
        last_update_ms=last_update_ms,
        start_ms=start_ms,
        previous_producer_id=_number(tags, _PREVIOUS_PRODUCER_ID, NONE),
        next_producer_id=_number(tags, _NEXT_PRODUCER_ID, NONE),
        client_version=_number(tags, _CLIENT_VERSION, 0),
    )


def _read_partitions(reader: Reader, *, flexible: bool) -> Iterable[Partition]:
    count = reader.uvarint() - 1 if flexible else reader.int32()
    for _ in range(count):  # null, as in Empty, is -1
        topic = reader.compact_string() if flexible else reader.string()
        if flexible:
            numbers = [reader.int32() for _ in range(reader.compact_array_length(4))]
            reader.tagged_fields()
        else:
            numbers = reader.int32_array()
        for number in numbers:
            yield topic, number


def _number(tags: Mapping[int, bytes], tag: int, default: int) -> int:
    data = tags.get(tag)
    if data is None:
        return default
    if len(data) not in (_INT16.size, _INT64.size):
        raise MalformedError(f"a tagged field of {len(data)} bytes in __transaction_state; a number has 2 or 8")
    return int.from_bytes(data, "big", signed=True)


# --- writing ----------------------------------------------------------------------------------------------------------


def write_transaction_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Return key and value as Kafka 4.3.1 writes them: topics and partitions in order."""
    writer = Writer()
    writer.int16(_KEY_VERSION)
    writer.string(record.transactional_id)
    return writer.done(), None if record.value is None else write_transaction_value(record.value)


def write_transaction_value(value: TransactionValue) -> bytes:
    head = _VALUE_HEAD.pack(_VALUE_VERSION, value.producer_id, value.producer_epoch, value.timeout_ms, value.status)
    # null in Empty: there is no transaction
    partitions = b"\0" if value.status is TransactionStatus.EMPTY else _written_partitions(value.partitions)
    times = _TIMES.pack(value.last_update_ms, value.start_ms)
    tags = []
    if value.previous_producer_id != NONE:
        tags.append(_TAGGED_INT64.pack(_PREVIOUS_PRODUCER_ID, _INT64.size, value.previous_producer_id))
    if value.next_producer_id != NONE:
        tags.append(_TAGGED_INT64.pack(_NEXT_PRODUCER_ID, _INT64.size, value.next_producer_id))
    if value.client_version:
        tags.append(_TAGGED_INT16.pack(_CLIENT_VERSION, _INT16.size, value.client_version))
    return b"".join((head, partitions, times, bytes((len(tags),)), *tags))


def _written_partitions(partitions: Iterable[Partition]) -> bytes:
    by_topic: dict[str, list[bytes]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(_INT32.pack(number))
    parts = [uvarint(len(by_topic) + 1)]
    for topic, numbers in by_topic.items():
        name = topic.encode()
        parts += (uvarint(len(name) + 1), name, uvarint(len(numbers) + 1), *numbers, b"\0")
    return b"".join(parts)
