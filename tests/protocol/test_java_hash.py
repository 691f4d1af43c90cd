"""Java's String.hashCode and the order of a HashMap, against known values and a plain simulation of the table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.protocol.java_hash import capacity_for, hash_order, java_hash, map_order, spread, spreads

anything = st.text(st.characters(exclude_categories=()))
"""Lone surrogates too: Java has them."""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),  # whose absolute value Java cannot say
        ("héllo 😀", 395407605),  # two UTF-16 units for the last character
        ("Aa", 2112),
        ("BB", 2112),  # the classic collision
        ("\ud83d\ude00", 1772899),  # the same units as 😀
        ("\ud800", 0xD800),
    ],
)
def test_hashes_are_those_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value


def slow_hash(text: str) -> int:
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@given(anything)
def test_the_hash_is_the_sum_java_specifies(text: str) -> None:
    assert java_hash(text) == slow_hash(text)


def test_long_text_hashes_too() -> None:
    text = "coterie " * 10_000
    assert java_hash(text) == slow_hash(text)


def test_assignors_tie_in_the_order_kafka_hands_them_out() -> None:
    """Rule 8: seen on a running Kafka, whoever joined first."""
    wanted = ["sticky", "range", "roundrobin", "cooperative-sticky"]
    assert map_order(wanted) == map_order(wanted[::-1]) == map_order(sorted(wanted)) == wanted


def test_equal_buckets_go_by_insertion() -> None:
    assert map_order(["Aa", "BB"]) == ["Aa", "BB"] and map_order(["BB", "Aa"]) == ["BB", "Aa"]


@pytest.mark.parametrize(("size", "capacity"), [(0, 16), (12, 16), (13, 32), (24, 32), (25, 64), (100_000, 262_144)])
def test_a_map_doubles_beyond_three_quarters(size: int, capacity: int) -> None:
    assert capacity_for(size) == capacity


def test_a_map_never_shrinks() -> None:
    assert capacity_for(1, 64) == 64


class HashMap:
    """java.util.HashMap as a table of chains; what a chain becomes when it is long changes nothing about its order."""

    def __init__(self) -> None:
        self.table: list[list[str]] = [[] for _ in range(16)]
        self.size = 0

    def put(self, key: str) -> None:
        bucket = self.table[self._index(key)]
        if key in bucket:
            return
        bucket.append(key)
        self.size += 1
        if self.size > len(self.table) * 3 // 4:
            chains, self.table = self.table, [[] for _ in range(2 * len(self.table))]
            for chain in chains:
                for moved in chain:
                    self.table[self._index(moved)].append(moved)

    def remove(self, key: str) -> None:
        self.table[self._index(key)].remove(key)
        self.size -= 1

    def keys(self) -> list[str]:
        return [key for chain in self.table for key in chain]

    def _index(self, key: str) -> int:
        h = slow_hash(key) & 0xFFFFFFFF
        return (h ^ h >> 16) % len(self.table)


@given(st.lists(st.text("ABab", max_size=6) | anything, unique=True, max_size=200))
def test_map_order_is_that_of_a_real_table(keys: list[str]) -> None:
    table = HashMap()
    for key in keys:
        table.put(key)
    assert map_order(keys) == table.keys()


@given(st.lists(st.text("AaBb", min_size=1, max_size=4), max_size=120), st.data())
def test_keys_that_come_and_go_keep_the_order_of_a_table_that_never_shrinks(
    steps: list[str], data: st.DataObject
) -> None:
    """Rule 7: as a group keeps its members, with the number of buckets the only memory of those that left."""
    table, here, capacity = HashMap(), dict[str, None](), 16
    for key in steps:
        somebody_leaves = data.draw(st.booleans())
        if here and somebody_leaves:
            gone = next(iter(here))
            del here[gone]
            table.remove(gone)
        here[key] = None
        table.put(key)
        capacity = capacity_for(len(here), capacity)
        assert sorted(here, key=lambda one: spread(one) & (capacity - 1)) == table.keys()


def test_the_order_of_a_hash_map_does_not_depend_on_the_order_of_the_input() -> None:
    ids = [f"consumer-{number}" for number in range(200)]
    assert [ids[position] for position in hash_order(ids)] == map_order(ids)


@given(st.lists(st.text(max_size=12) | st.text(st.characters(codec="ascii"), max_size=60), max_size=20))
def test_many_hashes_at_once_are_the_same_as_one_by_one(ids: list[str]) -> None:
    assert spreads(ids) == [spread(text) for text in ids]


@pytest.mark.parametrize("text", ["\x7f" * 1024, "\x7f" * 2000, "", "\0"])
def test_the_longest_ids_do_not_spill_over_into_their_neighbours(text: str) -> None:
    assert spreads([text, "a", text]) == [spread(text), spread("a"), spread(text)]
