"""A commit that stays the bytes that came is, to whoever asks, the words it would otherwise have been made into."""

from __future__ import annotations

from struct import pack
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.buffer import COMPACT
from coterie.protocol.commit_rows import (
    CommitRows,
    FetchedRows,
    OffsetRows,
    StoredRows,
    read_commit_rows,
    read_usual_commit,
    read_usual_commit_plainly,
)
from coterie.protocol.messages import CommitPartition, CommittedOffset, FetchedOffset, OffsetRecord
from coterie.protocol.offsets_topic import write_record
from coterie.protocol.records import joined

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.sampled_from(["t", "a longer name", "ü", "x" * 200])
ids = st.sampled_from([None, UUID(int=0), UUID(int=1), UUID(int=(1 << 128) - 1)])
fields = st.lists(st.tuples(int32, int64, int32), min_size=1, max_size=12)

ENDS = {True: b"\x01\x00", False: b"\x00\x00"}


def sent(rows: list[tuple[int, int, int]], *, flexible: bool) -> bytes:
    return b"".join(pack(">iqi", *row) + ENDS[flexible] for row in rows)


@given(rows=fields, topic=names, topic_id=ids, flexible=st.booleans(), before=st.binary(max_size=3))
def test_rows_are_the_partitions_that_were_sent(
    rows: list[tuple[int, int, int]], topic: str, topic_id: UUID | None, flexible: bool, before: bytes
) -> None:
    frame = before + sent(rows, flexible=flexible)
    found = read_commit_rows(frame + b"more", len(before), len(rows), topic, topic_id, flexible=flexible)
    assert found is not None and found[1] == len(frame)
    partitions = [CommitPartition(topic, number, offset, epoch, "", topic_id) for number, offset, epoch in rows]
    assert list(found[0]) == partitions and found[0] == partitions and partitions == found[0]
    assert len(found[0]) == len(rows) and found[0][-1] == partitions[-1]
    assert found[0] != partitions[1:]


@given(rows=fields, flexible=st.booleans(), at=st.integers(0, 11), other=st.binary(min_size=2, max_size=2))
def test_what_has_metadata_or_tags_or_ends_early_is_not_read_so(
    rows: list[tuple[int, int, int]], flexible: bool, at: int, other: bytes
) -> None:
    frame = bytearray(sent(rows, flexible=flexible))
    assert read_commit_rows(bytes(frame[:-1]), 0, len(rows), "t", None, flexible=flexible) is None
    end = 18 * (at % len(rows)) + 16
    frame[end : end + 2] = other
    found = read_commit_rows(bytes(frame), 0, len(rows), "t", None, flexible=flexible)
    assert (found is None) == (other != ENDS[flexible])


def body(
    group: str, generation: int, member: str, instance: str | None, topic: str, rows: list[tuple[int, int, int]]
) -> bytes:
    text = COMPACT.string
    before = text(group) + pack(">i", generation) + text(member) + text(instance) + b"\2" + text(topic)
    return before + COMPACT.length(len(rows)) + sent(rows, flexible=True) + b"\0\0"


bodies = st.builds(body, names, int32, names, st.none() | names, names, fields | fields.map(lambda rows: rows * 20))


@given(group=names, generation=int32, member=names, instance=st.none() | names, topic=names, rows=fields)
def test_a_commit_as_most_are_is_read_at_once_unless_a_name_is_long(
    group: str, generation: int, member: str, instance: str | None, topic: str, rows: list[tuple[int, int, int]]
) -> None:
    frame = body(group, generation, member, instance, topic, rows)
    numbers = tuple(row[0] for row in rows)
    all_short = max(len(name or "") for name in (group, member, instance, topic)) < 127
    usual = (group, generation, member, instance, topic, sent(rows, flexible=True), numbers, min(numbers), max(numbers))
    assert read_usual_commit(b"head" + frame, 4) == (usual if all_short else None)


@given(frame=bodies, at=st.integers(-1, 300), byte=st.integers(0, 255), end=st.integers(-3, 3))
def test_the_compiled_reader_of_a_commit_reads_what_its_twin_does_and_nothing_else(
    frame: bytes, at: int, byte: int, end: int
) -> None:
    changed = bytearray(frame)
    if 0 <= at < len(changed):
        changed[at] = byte
    given = bytes(changed[:end] if end < 0 else changed + bytes(end))
    assert read_usual_commit(given, 0) == read_usual_commit_plainly(given, 0)
    assert read_usual_commit(given[:at], 0) == read_usual_commit_plainly(given[:at], 0)


def test_a_body_that_begins_behind_the_end_is_no_commit() -> None:
    assert read_usual_commit(b"", 0) is None
    assert read_usual_commit(b"abc", 7) is read_usual_commit_plainly(b"abc", 7) is None


def committed(rows: list[tuple[int, int, int]], topic: str, topic_id: UUID | None, at_ms: int) -> OffsetRows:
    found = read_commit_rows(sent(rows, flexible=True), 0, len(rows), topic, topic_id, flexible=True)
    assert found is not None and type(found[0]) is CommitRows
    return OffsetRows("group", found[0], at_ms)


@given(rows=fields, topic=names, topic_id=ids, at_ms=st.sampled_from([-1, 0, 1_700_000_000_000]))
def test_what_is_written_of_them_is_what_is_written_of_the_records(
    rows: list[tuple[int, int, int]], topic: str, topic_id: UUID | None, at_ms: int
) -> None:
    records = [
        OffsetRecord("group", topic, number, CommittedOffset(offset, epoch, "", at_ms, None, topic_id))
        for number, offset, epoch in rows
    ]
    found = committed(rows, topic, topic_id, at_ms)
    assert found == records and found[0] == records[0] and len(found) == len(rows)
    pairs, size = found.written()
    assert list(pairs) == [write_record(record) for record in records] and pairs[0] == write_record(records[0])
    assert list(joined([pairs, pairs])) == list(joined([list(pairs), pairs])) == [*pairs, *pairs]
    assert size == sum(len(key) + len(value or b"") for key, value in pairs)


@given(rows=fields, position=st.integers(0, 1 << 40))
def test_what_is_stored_of_them_has_its_place_in_the_log(rows: list[tuple[int, int, int]], position: int) -> None:
    """Rule 22: of two offsets for one partition the later one counts, also within a commit."""
    found = committed(rows, "t", None, 7)
    told = [("t", number, offset) for number, offset, _ in rows]
    heard = StoredRows(found.of)
    assert heard == told and heard[-1] == told[-1] and len(heard) == len(told)
    expected = {}
    for at, record in enumerate(found, position):
        assert record.value is not None
        record.value.position = at
        expected[record.partition] = record.value
    found.position = position
    stored = found.stored()
    assert stored == expected and list(stored) == list(expected)
    assert [value.position for value in stored.values()] == [value.position for value in expected.values()]


@given(rows=fields)
def test_offsets_that_are_fetched_are_words_as_well(rows: list[tuple[int, int, int]]) -> None:
    stored = [CommittedOffset(offset, epoch) for _, offset, epoch in rows]
    packed = b"".join(pack(">iqiBhB", number, offset, epoch, 1, 0, 0) for number, offset, epoch in rows)
    words = [FetchedOffset("t", number, ErrorCode.NONE, offset, epoch) for number, offset, epoch in rows]
    for found in (
        FetchedRows.of_stored("t", [number for number, _, _ in rows], stored),
        FetchedRows.of_commit(committed(rows, "t", None, 7).of),
    ):
        assert found == words and found[0] == words[0] and len(found) == len(words)
        assert found.packed == packed


@pytest.mark.parametrize("group_id", ["g" * 40_000, "\ud800"])
def test_a_name_that_cannot_be_written_is_refused(group_id: str) -> None:
    rows = committed([(0, 1, 2)], "t", None, 7)
    rows.group_id = group_id
    with pytest.raises((MalformedError, UnicodeEncodeError)):
        rows.written()
