"""The bytes of `__consumer_offsets` to rows of one shape (`schemas.DECODED`), in Spark's workers.

Whatever the bytes are, there is a row for each record and no error: commits are read whole, records of groups and facts
are passed on as bytes, all others are named. Commits and the rest come as batches of their own, in no order among each
other, since putting a few rows back among thousands costs more than reading all of them.

Commits are read a column at a time: NumPy reads the fields of all records in Arrow's memory. A row is read this way
only if every field lies within its bytes and has the common shape. The other rows are left to the plain reader,
`decode_record`, which alone decides what is malformed; a property test compares the two. Keys repeat, as groups commit
again and again, so each is read once in a batch. The formats are those of semantics 10: keys of type 0 and 1, values of
version 0 to 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coterie.errors import MalformedError
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.buffer import Reader
from coterie.protocol.consumer_group_records import TYPES, topic_id_text
from coterie.protocol.messages import CommittedOffset, GroupRecord
from coterie.protocol.offsets_topic import (
    FLEXIBLE_FROM,
    NONE,
    OFFSET_KEYS,
    OFFSET_VALUE_VERSIONS,
    Skipped,
    read_key,
    read_offset_value,
)
from coterie.spark.pipeline.schemas import DECODED

COMMIT, GROUP, FACT, GARBAGE = "commit", "group", "fact", "garbage"

Row = dict[str, Any]
_SCHEMA = DECODED.arrow

Ints = np.ndarray[Any, np.dtype[Any]]
_EPOCH_FROM = 3
_EXPIRY_IN = 1
_ID_TAG = (1, 0, 16)
"""One tagged field, tag 0, of 16 bytes: the topic id."""


def decode_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """Decode batches of the source, one after the other."""
    for batch in batches:
        yield from decode(batch)


def decode(batch: Any) -> Iterator[Any]:
    """Decode a batch with the columns of the source: key, value, topic, partition, offset, timestamp."""
    keys, values = _binary(batch.column("key")), _binary(batch.column("value"))
    is_fact = _is_fact(batch.column("topic"))
    found = read_commits(keys, values, passed_over=is_fact)
    where = {
        "log_partition": batch.column("partition"),
        "log_offset": batch.column("offset"),
        "log_ms": pc.cast(pc.cast(batch.column("timestamp"), pa.timestamp("ms", "UTC"), safe=False), pa.int64()),
    }
    if len(found.rows):
        columns = found.columns | _rows_of(where, found.rows)
        yield _batch(columns, len(found.rows))
    if len(found.others):
        rows = [_read_other(keys[at].as_py(), values[at].as_py(), is_fact=bool(is_fact[at])) for at in found.others]
        names = {name for row in rows for name in row}
        columns = {name: pa.array([row.get(name) for row in rows], _SCHEMA.field(name).type) for name in names}
        yield _batch(columns | _rows_of(where, found.others), len(rows))


def _rows_of(columns: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """Return these rows of columns of numbers."""
    return {
        name: column if len(rows) == len(column) else pa.array(np.asarray(column)[rows])
        for name, column in columns.items()
    }


def _batch(columns: Mapping[str, Any], rows: int) -> Any:
    arrays = [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in _SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _binary(column: Any) -> Any:
    return column.cast(pa.binary()) if column.type != pa.binary() else column


def _is_fact(topics: Any) -> Any:
    return np.asarray(pc.fill_null(pc.equal(topics, FACTS_TOPIC), False))


def _read_other(key: bytes | None, value: bytes | None, *, is_fact: bool) -> Row:
    if is_fact:
        return {"group_id": (key or b"").decode(errors="replace"), "other": {"kind": FACT, "value": value}}
    if key is None:
        return _garbage("a record without a key")
    try:
        return decode_record(key, value)
    except MalformedError as error:
        return _garbage(str(error))


def _garbage(reason: str) -> Row:
    return {"other": {"kind": GARBAGE, "reason": reason}}


def decode_record(key: bytes, value: bytes | None) -> Row:
    """Read one record plainly; return what is not null in its row. MalformedError if it cannot be read."""
    record = read_key(key)
    if isinstance(record, Skipped):
        if record.type not in TYPES:
            return {"other": {"kind": f"type {record.type}"}}
        reader = Reader(key, "key in __consumer_offsets", 2)
        return {"group_id": reader.string(), "other": {"kind": GROUP, "key": key, "value": value}}
    if isinstance(record, GroupRecord):
        return {"group_id": record.group_id, "other": {"kind": GROUP, "key": key, "value": value}}
    row: Row = {"group_id": record.group_id, "topic": record.topic, "partition": record.partition}
    return row | (_committed(read_offset_value(value)) if value is not None else {})


def _committed(value: CommittedOffset) -> Row:
    row: Row = {
        "offset": value.offset,
        "leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "commit_ms": value.commit_timestamp_ms,
    }
    if value.expire_timestamp_ms is not None:
        row["expire_ms"] = value.expire_timestamp_ms
    if value.topic_id is not None:
        row["topic_id"] = topic_id_text(value.topic_id.bytes)
    return row


# --- commits, a column at a time --------------------------------------------------------------------------------------


@dataclass(slots=True)
class ArrowBytes:
    """A binary column of Arrow: all its bytes, and where each row begins and ends in them."""

    data: Ints
    starts: Ints
    ends: Ints
    valid: Ints

    @classmethod
    def of(cls, column: Any) -> ArrowBytes:
        _, offsets, data = column.buffers()
        rows = len(column)
        positions = np.frombuffer(offsets, np.int32)[column.offset : column.offset + rows + 1].astype(np.int64)
        first, last = int(positions[0]), int(positions[-1])  # the column may be a piece of a larger one
        # Sixteen bytes more, so that a number may be looked at before it is known to lie within the row.
        padded = np.zeros(last - first + 16, np.uint8)
        if last > first:
            padded[:-16] = np.frombuffer(data, np.uint8)[first:last]
        positions -= first
        valid = np.asarray(column.is_valid()) if column.null_count else np.ones(rows, bool)
        return cls(padded, positions[:-1], positions[1:], valid)

    def number(self, at: Ints, size: int) -> Ints:
        """Read big-endian signed numbers. What is read outside of the bytes is not used."""
        last = len(self.data) - size
        # A number at every byte: numpy reads it from where it stands, aligned or not.
        everywhere: Ints = np.ndarray((last + 1,), f">i{size}", self.data, strides=(1,))
        found: Ints = everywhere[np.clip(at, 0, last)].astype(np.int64)
        return found

    def slices(self, starts: Ints, lengths: Ints, valid: Ints) -> Any:
        """Return the bytes at `starts` as a column of their own; null where not `valid`."""
        lengths = np.where(valid, lengths, 0)
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        offsets = np.zeros(len(lengths) + 1, np.int32)
        offsets[1:] = ends
        where = np.repeat(np.where(valid, starts, 0) - offsets[:-1], lengths) + np.arange(total)
        return pa.Array.from_buffers(
            pa.binary(),
            len(lengths),
            [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(self.data[where])],
        )


def _bitmap(valid: Ints) -> Any:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def type_of_key(keys: ArrowBytes) -> Ints:
    """Return the type of each key; -1 where there is none."""
    return np.where(keys.valid & (keys.ends - keys.starts >= 2), keys.number(keys.starts, 2), -1)


@dataclass(slots=True)
class DecodedCommits:
    """The commits of `rows`, in their order; `others` are left to the plain reader."""

    rows: Ints
    others: Ints
    columns: dict[str, Any]


def read_commits(keys: Any, values: Any, passed_over: Ints | None = None) -> DecodedCommits:
    """Read the commits of two binary columns. Rows that are `passed_over` are no commits, whatever they look like."""
    encoded = keys.dictionary_encode(null_encoding="encode")
    key, which = _read_keys(ArrowBytes.of(encoded.dictionary)), np.asarray(encoded.indices)
    of_values = ArrowBytes.of(values)
    value = _read_values(of_values)
    taken = key.taken[which] & (value.taken | ~of_values.valid)  # no value at all is a tombstone
    if passed_over is not None:
        taken &= ~passed_over
    rows = np.flatnonzero(taken)
    if len(rows) < len(taken):
        which, value = which[rows], value.of(rows)
    has_value, indices = value.taken, pa.array(which)
    columns = {
        "group_id": key.group_id.take(indices),
        "topic": key.topic.take(indices),
        "partition": pa.array(key.partition[which]),
        "offset": _column(value.offset, has_value),
        "leader_epoch": _column(value.leader_epoch.astype(np.int32), has_value),
        "metadata": value.metadata,
        "commit_ms": _column(value.commit_ms, has_value),
        "expire_ms": _column(value.expire_ms, value.has_expiry),
        "topic_id": _topic_ids(of_values, value.topic_id_at, value.has_topic_id),
    }
    return DecodedCommits(rows, np.flatnonzero(~taken), columns)


@dataclass(slots=True)
class _Keys:
    taken: Ints
    group_id: Any
    topic: Any
    partition: Ints


def _read_keys(keys: ArrowBytes) -> _Keys:
    taken = np.isin(type_of_key(keys), OFFSET_KEYS)
    group_at = keys.starts + 4
    group_size = keys.number(keys.starts + 2, 2)
    topic_at = group_at + group_size + 2
    topic_size = keys.number(topic_at - 2, 2)
    partition_at = topic_at + topic_size
    taken &= (group_size >= 0) & (topic_size >= 0) & (topic_at <= keys.ends) & (partition_at + 4 <= keys.ends)
    group_id, taken = _texts(keys, group_at, group_size, taken)
    topic, taken = _texts(keys, topic_at, topic_size, taken)
    return _Keys(taken, group_id, topic, keys.number(partition_at, 4).astype(np.int32))


def _texts(column: ArrowBytes, starts: Ints, lengths: Ints, wanted: Ints) -> tuple[Any, Ints]:
    """Return texts, and of which rows: if some are not UTF-8, only those that are ASCII are read here."""
    try:
        return column.slices(starts, lengths, wanted).cast(pa.string()), wanted
    except pa.ArrowInvalid:
        counts = np.concatenate(([0], np.cumsum(column.data >= 0x80)))
        wanted = wanted & (counts[column.ends] == counts[column.starts])
        return column.slices(starts, lengths, wanted).cast(pa.string()), wanted


def _column(numbers: Ints, valid: Ints) -> Any:
    return pa.array(numbers) if valid.all() else pa.array(numbers, mask=~valid)


@dataclass(slots=True)
class _Values:
    taken: Ints
    offset: Ints
    leader_epoch: Ints
    metadata: Any
    commit_ms: Ints
    expire_ms: Ints
    has_expiry: Ints
    topic_id_at: Ints
    has_topic_id: Ints

    def of(self, rows: Ints) -> _Values:
        metadata = self.metadata.take(pa.array(rows))
        numbers = {name: getattr(self, name)[rows] for name in self.__slots__ if name != "metadata"}
        return _Values(metadata=metadata, **numbers)


def _read_values(values: ArrowBytes) -> _Values:
    version = values.number(values.starts, 2)
    is_flexible = version == FLEXIBLE_FROM
    has_epoch = version >= _EPOCH_FROM
    taken = values.valid & (values.ends - values.starts >= 2) & np.isin(version, OFFSET_VALUE_VERSIONS)

    length_at = values.starts + 10 + 4 * has_epoch
    compact = values.number(length_at, 1)  # negative: a varint of several bytes
    size = np.where(is_flexible, compact - 1, values.number(length_at, 2))
    metadata_at = length_at + np.where(is_flexible, 1, 2)
    commit_at = metadata_at + size
    after = commit_at + 8
    has_expiry = version == _EXPIRY_IN
    end = after + 8 * has_expiry

    tags = values.number(after, 1)
    is_id = is_flexible & (tags == _ID_TAG[0])
    is_id &= (values.number(after + 1, 1) == _ID_TAG[1]) & (values.number(after + 2, 1) == _ID_TAG[2])
    end = np.where(is_id, after + 19, np.where(is_flexible, after + 1, end))
    taken &= (size >= 0) & (end <= values.ends) & (~is_flexible | is_id | (tags == 0))
    metadata, taken = _texts(values, metadata_at, size, taken)

    expire_ms = values.number(after, 8)
    topic_id_at = after + 3
    has_topic_id = is_id & taken
    has_topic_id &= (values.number(topic_id_at, 8) | values.number(topic_id_at + 8, 8)) != 0
    return _Values(
        taken,
        values.number(values.starts + 2, 8),
        np.where(has_epoch, values.number(values.starts + 10, 4), NONE),
        metadata,
        values.number(commit_at, 8),
        expire_ms,
        taken & has_expiry & (expire_ms != NONE),
        topic_id_at,
        has_topic_id,
    )


def _topic_ids(values: ArrowBytes, at: Ints, valid: Ints) -> Any:
    """Return topic ids as text. There are few different ones, so each is converted once."""
    if not valid.any():
        return pa.nulls(len(at), pa.string())
    everywhere: Ints = np.ndarray((len(values.data) - 15,), "V16", values.data, strides=(1,))
    ids = np.ascontiguousarray(everywhere[np.where(valid, at, 0)])
    column = pa.Array.from_buffers(pa.binary(16), len(at), [_bitmap(valid), pa.py_buffer(ids)]).dictionary_encode()
    words = pa.array([topic_id_text(each) for each in column.dictionary.to_pylist()], pa.string())
    return words.take(column.indices)
