"""Offsets of one commit as records, all at once: the fast path beside `offsets_topic.write_record`, held equal to it.

A commit of a hundred partitions repeats group, topic, topic id and time a hundred times: what is said again is packed
once. Whatever is out of the ordinary, or too large to be written at all, is left to the plain path.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from uuid import UUID

from coterie.messages import OffsetRecord
from coterie.wire.offsets_topic import write_key, write_offset_value, write_record

__all__ = ["write_offset_records"]

_PARTITION = Struct(">i").pack
_HEAD = Struct(">hqiB").pack  # version 4, offset, leader epoch, the length of no metadata
_PARTITION_SIZE = 4
_HEAD_SIZE = 15


def write_offset_records(records: Sequence[OffsetRecord]) -> list[tuple[bytes, bytes | None]]:
    """Key and value of each."""
    written: list[tuple[bytes, bytes | None]] = []
    append = written.append
    group_id = topic = tail = None
    prefix = b""
    topic_id: UUID | None = None
    at_ms = -1
    for record in records:
        value = record.value
        if value is None or value.metadata or value.expire_timestamp_ms is not None:
            append(write_record(record))
            continue
        if record.topic is not topic or record.group_id is not group_id:
            group_id, topic = record.group_id, record.topic
            prefix = write_key(record)[:-_PARTITION_SIZE]
        if tail is None or value.topic_id is not topic_id or value.commit_timestamp_ms != at_ms:
            topic_id, at_ms = value.topic_id, value.commit_timestamp_ms
            tail = write_offset_value(value, 4)[_HEAD_SIZE:]
        try:
            append((prefix + _PARTITION(record.partition), _HEAD(4, value.offset, value.leader_epoch, 1) + tail))
        except error:
            append(write_record(record))  # which says what is wrong with it
    return written
