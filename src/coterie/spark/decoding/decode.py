"""Records of the two logs to rows of one shape: commits whole, records of groups and facts as they are, the rest named.

Runs in Spark's workers, where the records are read or by mapInArrow. Whatever the bytes are, there is a row for each
record and no error. Commits and the rest are batches of their own, in no order among each other: to put a few rows
back among thousands costs more than reading all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coterie.errors import MalformedError
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.buffer import Reader
from coterie.protocol.consumer_group_records import TYPES
from coterie.protocol.messages import CommittedOffset, GroupRecord
from coterie.protocol.offsets_topic import OFFSETS_TOPIC, Skipped, read_key, read_offset_value
from coterie.spark.decoding.commits import read_commits
from coterie.spark.decoding.topic_ids import topic_id_text
from coterie.spark.schemas import DECODED

__all__ = ["FACTS_TOPIC", "OFFSETS_TOPIC", "decode", "decode_batches", "decode_record"]

COMMIT, GROUP, FACT, GARBAGE = "commit", "group", "fact", "garbage"

Row = dict[str, Any]
_SCHEMA = DECODED.arrow


def decode_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """What mapInArrow is given."""
    for batch in batches:
        yield from decode(batch)


def decode(batch: Any) -> Iterator[Any]:
    """`batch` has the columns of the source: key, value, topic, partition, offset, timestamp."""
    keys, values = _binary(batch.column("key")), _binary(batch.column("value"))
    is_fact = _is_fact(batch.column("topic"))
    found = read_commits(keys, values, passed_over=is_fact)
    where = {
        "log_partition": batch.column("partition"),
        "log_offset": batch.column("offset"),
        "log_ms": pc.cast(pc.cast(batch.column("timestamp"), pa.timestamp("ms", "UTC"), safe=False), pa.int64()),
    }
    if len(found.rows):
        columns = found.columns | _of(where, found.rows)
        yield _batch(columns, len(found.rows))
    if len(found.others):
        rows = [_read_other(keys[at].as_py(), values[at].as_py(), is_fact=bool(is_fact[at])) for at in found.others]
        told = {name for row in rows for name in row}
        columns = {name: pa.array([row.get(name) for row in rows], _SCHEMA.field(name).type) for name in told}
        yield _batch(columns | _of(where, found.others), len(rows))


def _of(columns: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """These rows of columns of numbers."""
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
    """The plain reading of one record: what is not null in its row. MalformedError if it cannot be read."""
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
