"""Kafka's orders, which are Java's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.assignors import Member, Range, Topic
from coterie.assignors.java_order import by_id, by_instance_then_id, hash_order, java_sorted, spreads
from coterie.protocol.java_hash import map_order, spread

BEYOND_THE_BASIC_PLANE, PRIVATE_USE = "\U0001f600", "\ue000"


def test_names_are_sorted_by_utf_16_units() -> None:
    """`String.compareTo` puts surrogates before U+E000; Python goes by code points."""
    assert sorted([BEYOND_THE_BASIC_PLANE, PRIVATE_USE]) == [PRIVATE_USE, BEYOND_THE_BASIC_PLANE]
    assert java_sorted([PRIVATE_USE, BEYOND_THE_BASIC_PLANE]) == [BEYOND_THE_BASIC_PLANE, PRIVATE_USE]


def test_static_members_come_first_in_range_and_roundrobin_and_nowhere_else() -> None:
    members = [Member("a", []), Member("z", [], "i1"), Member("b", [], "i2")]
    assert [member.id for member in by_instance_then_id(members)] == ["z", "b", "a"]
    assert [member.id for member in by_id(members)] == ["a", "b", "z"]


def test_the_order_of_a_hash_map_does_not_depend_on_the_order_of_the_input() -> None:
    ids = [f"consumer-{number}" for number in range(200)]
    assert [ids[position] for position in hash_order(ids)] == map_order(ids)


@given(st.lists(st.text(max_size=12) | st.text(st.characters(codec="ascii"), max_size=60), max_size=20))
def test_many_hashes_at_once_are_the_same_as_one_by_one(ids: list[str]) -> None:
    assert spreads(ids) == [spread(text) for text in ids]


@pytest.mark.parametrize("text", ["\x7f" * 1024, "\x7f" * 2000, "", "\0"])
def test_the_longest_ids_do_not_spill_over_into_their_neighbours(text: str) -> None:
    assert spreads([text, "a", text]) == [spread(text), spread("a"), spread(text)]


def test_a_restarted_static_member_keeps_its_place() -> None:
    """KIP-345: the member id is new, the instance id is not."""
    topics = {"t": Topic(4)}
    before = Range().assign([Member("x", ["t"], "i1"), Member("a", ["t"])], topics)
    after = Range().assign([Member("zz", ["t"], "i1"), Member("a", ["t"])], topics)
    assert after["zz"] == before["x"]
