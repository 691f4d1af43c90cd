"""Rows of an index: in memory, on disk and by plain search they answer alike."""

from __future__ import annotations

from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.storage.memory_files import MemoryFiles
from coterie.storage.segment_files import OFFSET_ROW, TIME_ROW, FileRows, IndexRows, MemoryRows

rising = st.lists(st.integers(0, 10_000), unique=True, max_size=30).map(sorted)


def both(shape: Struct, firsts: list[int], seconds: list[int]) -> tuple[MemoryRows, FileRows]:
    memory = MemoryRows(shape)
    for first, second in zip(firsts, seconds, strict=False):
        memory.append(first, second)
    file = MemoryFiles().open("index", create=True)
    file.append(memory.encode())
    return memory, FileRows(shape, file)


@given(rising, rising, st.integers(-5, 10_005), st.sampled_from([OFFSET_ROW, TIME_ROW]))
def test_a_lookup_is_a_plain_search(firsts: list[int], seconds: list[int], target: int, shape: Struct) -> None:
    rows = list(zip(firsts, seconds, strict=False))
    kinds: tuple[IndexRows, ...] = both(shape, firsts, seconds)
    for kind in kinds:
        assert [kind.row(slot) for slot in range(len(kind))] == rows
        assert kind.first_at_most(target) == sum(first <= target for first, _ in rows) - 1
        assert kind.second_at_most(target) == sum(second <= target for _, second in rows) - 1


@given(rising, rising)
def test_rows_are_read_back_and_an_unfinished_one_is_not(firsts: list[int], seconds: list[int]) -> None:
    memory, _ = both(TIME_ROW, firsts, seconds)
    again = MemoryRows.decode(TIME_ROW, memory.encode() + b"torn")
    assert again.encode() == memory.encode() and not again.ends_well() and memory.ends_well()
    assert again.encoded_size == len(memory.encode())


@pytest.mark.parametrize("rows", [[(1, 1), (1, 2)], [(1, 2), (2, 2)], [(2, 1), (1, 2)], [(0, 0)] * 3])
def test_rows_that_do_not_rise_are_noticed(rows: list[tuple[int, int]]) -> None:
    for kind in both(OFFSET_ROW, [row[0] for row in rows], [row[1] for row in rows]):
        assert not kind.ends_well()


def test_rows_have_kafkas_bytes() -> None:
    offsets, _ = both(OFFSET_ROW, [5], [4096])
    times, _ = both(TIME_ROW, [1_600_000_000_000], [5])
    assert offsets.encode().hex() == "0000000500001000"
    assert times.encode().hex() == "00000174876e800000000005"
