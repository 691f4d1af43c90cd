"""Kafka's orders of members and topics, which are Java's."""

from __future__ import annotations

from coterie.assignors import Member, Range, Topic
from coterie.assignors.model import by_id, by_instance_then_id, java_sorted

BEYOND_THE_BASIC_PLANE, PRIVATE_USE = "\U0001f600", "\ue000"


def test_names_are_sorted_by_utf_16_units() -> None:
    """`String.compareTo` puts surrogates before U+E000; Python goes by code points."""
    assert sorted([BEYOND_THE_BASIC_PLANE, PRIVATE_USE]) == [PRIVATE_USE, BEYOND_THE_BASIC_PLANE]
    assert java_sorted([PRIVATE_USE, BEYOND_THE_BASIC_PLANE]) == [BEYOND_THE_BASIC_PLANE, PRIVATE_USE]


def test_static_members_come_first_in_range_and_roundrobin_and_nowhere_else() -> None:
    members = [Member("a", []), Member("z", [], "i1"), Member("b", [], "i2")]
    assert [member.id for member in by_instance_then_id(members)] == ["z", "b", "a"]
    assert [member.id for member in by_id(members)] == ["a", "b", "z"]


def test_a_restarted_static_member_keeps_its_place() -> None:
    """KIP-345: the member id is new, the instance id is not."""
    topics = {"t": Topic(4)}
    before = Range().assign([Member("x", ["t"], "i1"), Member("a", ["t"])], topics)
    after = Range().assign([Member("zz", ["t"], "i1"), Member("a", ["t"])], topics)
    assert after["zz"] == before["x"]
