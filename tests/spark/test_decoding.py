"""The decoder by columns, compared with the plain reader: on random, recorded and broken bytes (semantics 10)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.messages import CommittedOffset, GroupRecord, OffsetRecord, StoredGroup
from coterie.protocol.offsets_topic import (
    FLEXIBLE_FROM,
    OFFSET_VALUE_VERSIONS,
    OFFSETS_TOPIC,
    write_key,
    write_offset_value,
    write_record,
)
from coterie.spark.pipeline.decoding import decode, decode_batches, decode_record, read_commits
from coterie.spark.pipeline.schemas import COMMITS, DECODED
from protocol.recorded import lines, versions_of

Pair = tuple[bytes | None, bytes | None]

RECORDED: list[Pair] = [
    (bytes.fromhex(line["key"]), None if line["value"] is None else bytes.fromhex(line["value"]))
    for line in lines("consumer_offsets.jsonl")
]
KEY = write_key(OffsetRecord("orders", "t", 3, None))


def batch_of(pairs: list[Pair], topic: str = OFFSETS_TOPIC) -> Any:
    rows = len(pairs)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _ in pairs], pa.binary()),
            "value": pa.array([value for _, value in pairs], pa.binary()),
            "topic": pa.array([topic] * rows, pa.string()),
            "partition": pa.array([7] * rows, pa.int32()),
            "offset": pa.array(range(100, 100 + rows), pa.int64()),
            "timestamp": pa.array([1_700_000_000_123_000] * rows, pa.timestamp("us", "UTC")),
        }
    )


def decoded(batch: Any) -> list[dict[str, Any]]:
    """In the order of the log, without what is null; `kind` for all."""
    found = []
    for part in decode(batch):
        assert part.schema == DECODED.arrow
        part.validate(full=True)
        found += part.to_pylist()
    return [_filled(row) for row in sorted(found, key=lambda row: row["log_offset"])]


def _filled(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _filled(cell) if isinstance(cell, dict) else cell for name, cell in row.items() if cell is not None}


def read_plainly(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    if key is None:
        return {"other": {"kind": "garbage", "reason": "a record without a key"}}
    try:
        return decode_record(key, value)
    except MalformedError as error:
        return {"other": {"kind": "garbage", "reason": str(error)}}


def assert_equal_to_the_plain_reader(pairs: list[Pair]) -> None:
    where = {"log_partition": 7, "log_ms": 1_700_000_000_123}
    expected = [
        _filled(read_plainly(*pair)) | where | {"log_offset": 100 + number} for number, pair in enumerate(pairs)
    ]
    assert decoded(batch_of(pairs)) == expected


def taken_by_columns(pairs: list[Pair]) -> list[bool]:
    batch = batch_of(pairs)
    found = read_commits(batch.column("key"), batch.column("value"))
    assert sorted([*found.rows, *found.others]) == list(range(len(pairs)))
    return [number in found.rows for number in range(len(pairs))]


int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=12) | st.just("x" * 140)
committed = st.builds(
    CommittedOffset,
    offset=int64s,
    leader_epoch=int32s,
    metadata=texts,
    commit_timestamp_ms=int64s,
    expire_timestamp_ms=st.none() | int64s,
    topic_id=st.none() | st.uuids() | st.just(UUID(int=0)),
)
offset_pairs = st.builds(
    lambda group, topic, partition, value, version: (
        write_key(OffsetRecord(group, topic, partition, None)),
        None if value is None else write_offset_value(value, version),
    ),
    texts,
    texts,
    int32s,
    st.none() | committed,
    st.sampled_from(OFFSET_VALUE_VERSIONS),
)


@st.composite
def mutated(draw: st.DrawFn) -> Pair:
    """A good record with a few bytes changed, cut off or put in."""
    pair = draw(offset_pairs | st.sampled_from(RECORDED))
    broken = []
    for data in pair:
        if data is None or not draw(st.booleans()):
            broken.append(data)
            continue
        change = bytearray(data)
        at = draw(st.integers(0, max(len(change) - 1, 0)))
        change[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
        broken.append(bytes(change[: draw(st.integers(0, len(change)))] if draw(st.booleans()) else change))
    return broken[0], broken[1]


noise = st.tuples(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=60))


@given(st.lists(offset_pairs | mutated() | noise, max_size=20))
def test_columns_say_what_the_plain_reader_says(pairs: list[Pair]) -> None:
    assert_equal_to_the_plain_reader(pairs)


def test_everything_that_kafka_was_seen_to_write_is_read_alike() -> None:
    assert_equal_to_the_plain_reader(RECORDED)


def test_every_version_of_a_commit_is_read_by_columns() -> None:
    """The recordings are of Kafka's own classes; a version left to the slow way would be no error, but slow."""
    pairs: list[Pair] = [(KEY, value) for _, _, value in versions_of("OffsetCommitValue")]
    assert_equal_to_the_plain_reader(pairs)
    long_compact = [
        version >= FLEXIBLE_FROM and len(fields["metadata"].encode()) >= 127
        for version, fields, _ in versions_of("OffsetCommitValue")
    ]
    taken = taken_by_columns(pairs)
    assert taken == [not is_slow for is_slow in long_compact] and any(long_compact)
    assert {pairs[at][1][1] for at, is_taken in enumerate(taken) if is_taken} == set(OFFSET_VALUE_VERSIONS)  # type: ignore[index]


def test_a_name_that_is_no_utf8_costs_its_own_row_alone() -> None:
    good = write_record(OffsetRecord("größe", "t", 0, CommittedOffset(5)))
    bad = write_key(OffsetRecord("ok", "t", 0, None)).replace(b"ok", b"\xff\xfe"), good[1]
    assert_equal_to_the_plain_reader([good, bad, (KEY, good[1]), (KEY, None)])
    assert ["other" in row for row in decoded(batch_of([good, bad]))] == [False, True]


def test_types_of_others_are_named_and_those_of_groups_passed_on() -> None:
    group = write_record(GroupRecord("g", StoredGroup("consumer", 1)))
    share = (b"\x00\x0a\x00\x01g", b"\x00\x00")
    rows = decoded(batch_of([group, share, (b"\x00\x03\x00\x01g", None)]))
    assert [(row.get("group_id"), row["other"]) for row in rows] == [
        ("g", {"kind": "group", "key": group[0], "value": group[1]}),
        (None, {"kind": "type 10"}),
        ("g", {"kind": "group", "key": b"\x00\x03\x00\x01g"}),
    ]


def test_facts_are_passed_on_unread() -> None:
    """Even one whose key looks like an offset's."""
    (row,) = decoded(batch_of([(KEY, b"{}")], FACTS_TOPIC))
    assert row["other"] == {"kind": "fact", "value": b"{}"} and "offset" not in row


@pytest.mark.parametrize(("start", "length"), [(0, 1), (3, 5), (60, 16)])
def test_a_piece_of_a_column_is_read_as_the_piece(start: int, length: int) -> None:
    whole = decoded(batch_of(RECORDED))
    assert decoded(batch_of(RECORDED).slice(start, length)) == whole[start : start + length]


def test_empty_batches_are_left_out() -> None:
    assert list(decode_batches([batch_of([])])) == []
    commits, others = decode_batches([batch_of([]), batch_of(RECORDED)])
    assert commits.num_rows + others.num_rows == len(RECORDED) and commits.num_rows and others.num_rows


def test_what_is_decoded_holds_a_whole_commit() -> None:
    """Whether it is a tombstone is seen by the offset."""
    names = {column.name for column in COMMITS.columns} - {"tombstone"}
    assert names <= {column.name for column in DECODED.columns}
