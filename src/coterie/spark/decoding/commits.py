"""Offset commits, a column at a time: NumPy reads the fields of all records where they stand in Arrow's memory.

A row is taken here only if every field lies within its bytes and is of the common shape; the others are left to the
plain reader, so nothing here decides what is malformed. Columns are made of the rows that were taken, and of no others.
Keys repeat, as a group commits again and again: each is read once in a batch. The shapes are those of semantics 10:
keys of type 0 and 1, values of version 0 to 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from coterie.protocol.offsets_topic import FLEXIBLE_FROM, NONE, OFFSET_KEYS, OFFSET_VALUE_VERSIONS

__all__ = ["Bytes", "Commits", "read_commits", "type_of_key"]

Ints = np.ndarray[Any, np.dtype[Any]]
_EPOCH_FROM = 3
_EXPIRY_IN = 1
_ID_TAG = (1, 0, 16)
"""One tagged field, tag 0, of 16 bytes: the topic id."""


@dataclass(slots=True)
class Bytes:
    """A binary column: all its bytes, and where each row begins and ends in them."""

    data: Ints
    starts: Ints
    ends: Ints
    valid: Ints

    @classmethod
    def of(cls, column: Any) -> Bytes:
        _, offsets, data = column.buffers()
        rows = len(column)
        places = np.frombuffer(offsets, np.int32)[column.offset : column.offset + rows + 1].astype(np.int64)
        first, last = int(places[0]), int(places[-1])  # the column may be a piece of a larger one
        # Sixteen bytes more, so that a number may be looked at before it is known to lie within the row.
        padded = np.zeros(last - first + 16, np.uint8)
        if last > first:
            padded[:-16] = np.frombuffer(data, np.uint8)[first:last]
        places -= first
        valid = np.asarray(column.is_valid()) if column.null_count else np.ones(rows, bool)
        return cls(padded, places[:-1], places[1:], valid)

    def number(self, at: Ints, size: int) -> Ints:
        """Big-endian and signed. `at` may lie outside: what is read there counts for nothing."""
        last = len(self.data) - size
        # A number at every byte: numpy reads it from where it stands, aligned or not.
        everywhere: Ints = np.ndarray((last + 1,), f">i{size}", self.data, strides=(1,))
        found: Ints = everywhere[np.clip(at, 0, last)].astype(np.int64)
        return found

    def slices(self, starts: Ints, lengths: Ints, valid: Ints) -> Any:
        """The bytes at `starts` as a column of their own; null where not `valid`."""
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


def type_of_key(keys: Bytes) -> Ints:
    """-1 where there is none."""
    return np.where(keys.valid & (keys.ends - keys.starts >= 2), keys.number(keys.starts, 2), -1)


@dataclass(slots=True)
class Commits:
    """Those of the `rows`, in their order; the other rows are to be read otherwise."""

    rows: Ints
    others: Ints
    columns: dict[str, Any]


def read_commits(keys: Any, values: Any, passed_over: Ints | None = None) -> Commits:
    """Of two binary columns; rows that are `passed_over` are not commits, whatever they look like."""
    encoded = keys.dictionary_encode(null_encoding="encode")
    key, which = _read_keys(Bytes.of(encoded.dictionary)), np.asarray(encoded.indices)
    of_values = Bytes.of(values)
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
    return Commits(rows, np.flatnonzero(~taken), columns)


@dataclass(slots=True)
class _Keys:
    taken: Ints
    group_id: Any
    topic: Any
    partition: Ints


def _read_keys(keys: Bytes) -> _Keys:
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


def _texts(column: Bytes, starts: Ints, lengths: Ints, wanted: Ints) -> tuple[Any, Ints]:
    """And of which rows: if some bytes are no UTF-8, all that are not plain are left to the plain reader."""
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


def _read_values(values: Bytes) -> _Values:
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


def _topic_ids(values: Bytes, at: Ints, valid: Ints) -> Any:
    """There are few: each is put into words once."""
    from coterie.spark.decoding.topic_ids import topic_id_text

    if not valid.any():
        return pa.nulls(len(at), pa.string())
    everywhere: Ints = np.ndarray((len(values.data) - 15,), "V16", values.data, strides=(1,))
    ids = np.ascontiguousarray(everywhere[np.where(valid, at, 0)])
    column = pa.Array.from_buffers(pa.binary(16), len(at), [_bitmap(valid), pa.py_buffer(ids)]).dictionary_encode()
    words = pa.array([topic_id_text(each) for each in column.dictionary.to_pylist()], pa.string())
    return words.take(column.indices)
