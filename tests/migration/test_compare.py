"""Copies are compared: contents, order, and what compaction may remove."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.migration.compare import compare, contents
from coterie.migration.translation import Segment
from coterie.protocol.records import Record


def record(offset: int, key: str | None = "k", value: str | None = None, **more: Any) -> Record:
    encoded = None if value is None else value.encode()
    return Record("teas", 0, offset, more.pop("timestamp", 5), key=key.encode() if key else None, value=encoded, **more)


def records(*values: str, first: int = 0) -> list[Record]:
    return [record(first + at, f"key {value}", value) for at, value in enumerate(values)]


EXACT = [Segment.exact(0, 3, 4)]


def test_equal_records_have_equal_checksums_in_spite_of_other_offsets() -> None:
    found = compare(records(*"abcd"), records(*"abcd", first=3), EXACT, is_compacted=False)
    assert found.is_equal and found.compared == 4 and found.source_checksum == found.target_checksum


@pytest.mark.parametrize(
    ("copies", "problem"),
    [
        (records(*"abxd", first=3), "offset 2, 5 in the target: another key, value"),
        (records(*"acbd", first=3), "offset 1, 4 in the target: another key, value"),
        (records(*"abc", first=3), "offset 3: not in the target"),
    ],
)
def test_a_difference_is_named(copies: list[Record], problem: str) -> None:
    found = compare(records(*"abcd"), copies, EXACT, is_compacted=False)
    assert not found.is_equal and problem in found.problems


def test_a_record_that_the_source_does_not_have_is_a_difference() -> None:
    loose = [Segment(0, 0, 4, 4, 5)]
    found = compare(records(*"abcd"), records(*"abcdd"), loose, is_compacted=False)
    assert found.problems == ["offset 4 in the target: not in the source"]


def test_records_of_other_producers_are_passed_over() -> None:
    segments = [Segment.exact(0, 0, 2), Segment.exact(2, 4, 2)]
    copies = [*records("a", "b", "other", "other"), *records("c", "d", first=4), *records("other", first=6)]
    assert compare(records(*"abcdef"), copies, segments, is_compacted=False).is_equal


@pytest.mark.parametrize(
    "other",
    [
        record(0, "k", "v", timestamp=6),
        record(0, "l", "v"),
        record(0, None, "v"),
        record(0, "k", None),
        record(0, "kv", ""),
        record(0, "k", "v", headers=(("h", None),)),
        record(0, "k", "v", headers=(("h", b""),)),
    ],
)
def test_each_part_of_a_record_counts(other: Record) -> None:
    one = record(0, "k", "v")
    assert contents(one) != contents(other)
    assert not compare([one], [other], [Segment.exact(0, 0, 1)], is_compacted=False).is_equal


# --- compacted topics -------------------------------------------------------------------------------------------------

KEYED = [record(0, "a", "1"), record(1, "b", "1"), record(2, "a", "2"), record(3, "c", None)]


def copies_of(*kept: int) -> list[Record]:
    return [replace_offset(KEYED[at], at + 3) for at in kept]


def replace_offset(one: Record, offset: int) -> Record:
    return Record("teas", 0, offset, one.timestamp, key=one.key, value=one.value)


def test_either_side_may_have_compacted_records_that_have_later_ones() -> None:
    ours = [KEYED[at] for at in (1, 2, 3)]
    found = compare(ours, copies_of(0, 1, 2), EXACT, is_compacted=True)
    assert found.is_equal and (found.compared, found.only_source, found.only_target) == (2, 1, 1)
    found = compare(KEYED, copies_of(1, 2), EXACT, is_compacted=True)
    assert found.is_equal and found.only_source == 2, "an older record, and a tombstone"


def test_the_last_record_of_a_key_must_be_there() -> None:
    found = compare(KEYED, copies_of(0, 2, 3), EXACT, is_compacted=True)
    assert found.problems == ["offset 1: not in the target, and no later record has its key"]
    found = compare(KEYED, copies_of(0, 1, 3), EXACT, is_compacted=True)
    assert found.problems == ["offset 2: not in the target, and no later record has its key"]


def test_records_of_merged_segments_are_not_compared_if_compaction_may_have_removed_some() -> None:
    segments = [Segment(0, 0, 2, 3, 3), Segment.exact(3, 3, 1)]
    ours, copies = [KEYED[0], KEYED[2], KEYED[3]], [KEYED[2], KEYED[3]]
    found = compare(ours, copies, segments, is_compacted=True)
    assert found.is_equal and (found.compared, found.not_compared) == (1, 2)
