"""Offsets of the source become offsets of the target: exactly, and when segments are merged never too far."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.migration import translation
from coterie.migration.translation import Chunk, OffsetTable, Segment, segments_of

Pairs = list[tuple[int, int]]
gaps = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=40)
"""How far the next record is from the one before, on both sides."""


def pairs_of(steps: list[tuple[int, int]]) -> Pairs:
    source = target = -1
    found = []
    for one, other in steps:
        source, target = source + one, target + other
        found.append((source, target))
    return found


def table_of(pairs: Pairs, sizes: list[int], limit: int) -> OffsetTable:
    """Add the records in transactions of these sizes, in turn."""
    table, at, turn = OffsetTable(limit=limit), 0, 0
    while at < len(pairs):
        size = sizes[turn % len(sizes)]
        table.add(segments_of(pairs[at : at + size]))
        at, turn = at + size, turn + 1
    return table


def first_at_or_after(offsets: list[int], offset: int) -> int:
    """Return which record is read next."""
    return bisect_left(offsets, offset)


@given(gaps, st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_a_translated_offset_names_the_same_next_record(steps: list[tuple[int, int]], sizes: list[int]) -> None:
    pairs = pairs_of(steps)
    table = table_of(pairs, sizes, limit=1_000)
    sources, targets = [one for one, _ in pairs], [other for _, other in pairs]
    for committed in range(sources[-1] + 3):
        next_here = first_at_or_after(sources, committed)
        assert first_at_or_after(targets, table.translate(committed)) == next_here, committed


@given(gaps, st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(1, 6))
def test_with_few_segments_records_are_repeated_and_never_skipped(
    steps: list[tuple[int, int]], sizes: list[int], limit: int
) -> None:
    pairs = pairs_of(steps)
    table = table_of(pairs, sizes, limit)
    sources, targets = [one for one, _ in pairs], [other for _, other in pairs]
    assert table.records == len(pairs) and table.source_end == sources[-1] + 1 and table.target_end == targets[-1] + 1
    for committed in range(sources[-1] + 3):
        next_here = first_at_or_after(sources, committed)
        assert first_at_or_after(targets, table.translate(committed)) <= next_here, committed
    assert table.translate(table.source_end) == table.target_end


@given(gaps, st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(1, 6))
def test_a_table_that_is_stored_and_read_is_the_same(
    steps: list[tuple[int, int]], sizes: list[int], limit: int
) -> None:
    """Each chunk is stored under its slot. What a slot had before is overwritten, or covered by a merged chunk."""
    pairs = pairs_of(steps)
    table, at = OffsetTable(limit=limit), 0
    stored: dict[int, Chunk] = {}
    while at < len(pairs):
        size = sizes[at % len(sizes)]
        stored |= {chunk.slot: chunk for chunk in table.add(segments_of(pairs[at : at + size]))}
        at += size
        again = OffsetTable(stored.values(), limit=limit)
        assert list(again) == list(table)


def test_the_table_stays_small() -> None:
    table, slots = OffsetTable(limit=100), set()
    for one in range(10_000):
        slots |= {chunk.slot for chunk in table.add([Segment.exact(one, 2 * one, 1)])}
        assert len(table) <= 100
    assert len(slots) <= 101, "slots are used again"
    assert [table.translate(one) for one in range(9_990, 10_000)] == list(range(19_980, 20_000, 2)), "the end is exact"


def test_a_transaction_with_many_gaps_has_few_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation, "MOST_PER_TRANSACTION", 10)
    found = segments_of((2 * one, one) for one in range(95))
    assert len(found) == 10 and sum(one.records for one in found) == 95
    assert not any(one.is_exact for one in found)


def test_nothing_copied_is_the_start_and_what_was_deleted_before_is_the_first_copy() -> None:
    assert OffsetTable().translate(500) == 0
    table = OffsetTable()
    table.add([Segment.exact(100, 3, 10)])
    assert [table.translate(one) for one in (0, 99, 100, 105, 110, 999)] == [3, 3, 3, 8, 13, 13]


def test_a_merged_segment_of_equal_length_is_not_exact() -> None:
    """A gap in the source and then one in the target: in between, offsets are one apart."""
    found = translation.merged([Segment.exact(0, 0, 2), Segment.exact(3, 2, 2), Segment.exact(5, 5, 1)])
    assert found == Segment(0, 0, 5, 6, 6) and not found.is_exact
    assert OffsetTable([Chunk(0, (found,))]).translate(4) == 0


def test_segments_that_both_logs_still_have() -> None:
    exact, loose, last = Segment.exact(0, 0, 10), Segment(10, 11, 5, 20, 20), Segment.exact(20, 21, 5)
    table = OffsetTable([Chunk(0, (exact, loose, last))])
    assert table.since(0, 0) == [exact, loose, last]
    assert table.since(4, 2) == [Segment.exact(4, 4, 6), loose, last]
    assert table.since(10, 12) == [last]
    assert table.since(22, 21) == [Segment.exact(22, 23, 3)]
    assert table.since(25, 0) == []
