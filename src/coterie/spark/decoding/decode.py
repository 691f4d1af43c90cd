"""Records of the two logs to rows of one shape: commits whole, records of groups and facts as they are, the rest named.

Runs in Spark's workers, by mapInArrow. Whatever the bytes are, there is a row for each record and no error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coterie.errors import MalformedError
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.messages import CommittedOffset, GroupRecord
from coterie.spark.decoding.commits import Bytes, Commits, read_commits
from coterie.spark.decoding.topic_ids import topic_id_text
from coterie.spark.schemas import DECODED
from coterie.wire.buffer import Reader
from coterie.wire.consumer_group_records import TYPES
from coterie.wire.offsets_topic import OFFSETS_TOPIC, Skipped, read_key, read_offset_value

__all__ = ["FACTS_TOPIC", "OFFSETS_TOPIC", "decode", "decode_batches", "decode_record"]

COMMIT, GROUP, FACT, GARBAGE = "commit", "group", "fact", "garbage"

Row = dict[str, Any]
_COMMIT_COLUMNS = [name for name in Commits.__slots__ if name != "taken"]


def decode_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """What mapInArrow is given."""
    for batch in batches:
        if batch.num_rows:
            yield decode(batch)


def decode(batch: Any) -> Any:
    """`batch` has the columns of the source: key, value, topic, partition, offset, timestamp."""
    keys, values = _binary(batch.column("key")), _binary(batch.column("value"))
    is_fact = _is_fact(batch.column("topic"))
    of_keys = Bytes.of(keys)
    of_keys.valid &= ~is_fact
    found = read_commits(of_keys, Bytes.of(values))
    rest = np.flatnonzero(~found.taken)
    columns: dict[str, Any] = {name: getattr(found, name) for name in _COMMIT_COLUMNS}
    columns |= {
        "kind": pa.repeat(pa.scalar(COMMIT), batch.num_rows),
        "log_topic": batch.column("topic"),
        "log_partition": batch.column("partition"),
        "log_offset": batch.column("offset"),
        "log_ms": pc.cast(pc.cast(batch.column("timestamp"), pa.timestamp("ms", "UTC"), safe=False), pa.int64()),
    }
    if not len(rest):
        nothing = {
            name: pa.nulls(batch.num_rows, DECODED.arrow.field(name).type) for name in ("reason", "key", "value")
        }
        return _batch(columns | nothing)
    rows = [_read_other(keys[at].as_py(), values[at].as_py(), is_fact=bool(is_fact[at])) for at in rest]
    return _batch(columns | _scattered(columns, rows, rest, batch.num_rows))


def _batch(columns: dict[str, Any]) -> Any:
    schema = DECODED.arrow
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _binary(column: Any) -> Any:
    return column.cast(pa.binary()) if column.type != pa.binary() else column


def _is_fact(topics: Any) -> Any:
    return np.asarray(pc.fill_null(pc.equal(topics, FACTS_TOPIC), False))


def _scattered(columns: dict[str, Any], rows: list[Row], at: Any, size: int) -> Row:
    """The few rows that were read one by one, put where they belong among the others."""
    which = np.arange(size)
    which[at] = size + np.arange(len(at))
    taken = pa.array(which)
    put = {}
    for name in ("kind", "reason", *_COMMIT_COLUMNS, "key", "value"):
        kind = DECODED.arrow.field(name).type
        before = columns[name] if name in columns else pa.nulls(size, kind)
        put[name] = pa.concat_arrays([before, pa.array([row.get(name) for row in rows], kind)]).take(taken)
    return put


def _read_other(key: bytes | None, value: bytes | None, *, is_fact: bool) -> Row:
    if is_fact:
        return {"kind": FACT, "group_id": (key or b"").decode(errors="replace"), "value": value}
    if key is None:
        return {"kind": GARBAGE, "reason": "a record without a key"}
    try:
        return decode_record(key, value)
    except MalformedError as error:
        return {"kind": GARBAGE, "reason": str(error)}


def decode_record(key: bytes, value: bytes | None) -> Row:
    """The plain reading of one record: what is not null in its row. MalformedError if it cannot be read."""
    record = read_key(key)
    if isinstance(record, Skipped):
        if record.type not in TYPES:
            return {"kind": f"type {record.type}"}
        reader = Reader(key, "key in __consumer_offsets", 2)
        return {"kind": GROUP, "group_id": reader.string(), "key": key, "value": value}
    if isinstance(record, GroupRecord):
        return {"kind": GROUP, "group_id": record.group_id, "key": key, "value": value}
    row: Row = {"kind": COMMIT, "group_id": record.group_id, "topic": record.topic, "partition": record.partition}
    return row | (_committed(read_offset_value(value)) if value is not None else {"tombstone": True})


def _committed(value: CommittedOffset) -> Row:
    row: Row = {
        "offset": value.offset,
        "leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "commit_ms": value.commit_timestamp_ms,
        "tombstone": False,
    }
    if value.expire_timestamp_ms is not None:
        row["expire_ms"] = value.expire_timestamp_ms
    if value.topic_id is not None:
        row["topic_id"] = topic_id_text(value.topic_id.bytes)
    return row
