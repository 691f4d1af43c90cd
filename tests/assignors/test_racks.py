"""KIP-881: racks, where they matter and where they do not."""

from __future__ import annotations

import pytest

from coterie.assignors import CooperativeSticky, Member, Range, Sticky, Topic
from coterie.assignors.model import racks_matter, topic_racks

A, B = frozenset({"a"}), frozenset({"b"})


@pytest.mark.parametrize(
    ("members", "partitions", "matter"),
    [
        (["a", None], [A, B], True),
        ([None, ""], [A, B], False),
        (["x"], [A, B], False),
        (["a"], [A | B, A | B], False),
        (["a"], [A, frozenset()], True),
    ],
    ids=["some", "nobody has one", "none in common", "all are everywhere", "one replica has none"],
)
def test_racks_matter(members: list[str | None], partitions: list[frozenset[str]], matter: bool) -> None:
    assert racks_matter(members, [partitions]) is matter


def test_partitions_the_cluster_says_nothing_about_are_nowhere() -> None:
    assert topic_racks({"t": Topic(3, [["a"]])}, ["t"]) == {"t": [A, frozenset(), frozenset()]}
    assert topic_racks({"t": Topic(1, [["a"], ["b"]])}, ["t"]) == {"t": [A]}


@pytest.mark.parametrize("assignor", [Range(), Sticky(), CooperativeSticky()], ids=lambda one: one.name)
def test_members_get_partitions_of_their_own_rack(assignor: Range | Sticky | CooperativeSticky) -> None:
    members = [Member("m1", ["t"], rack="a"), Member("m2", ["t"], rack="b")]
    answer = assignor.assign(members, {"t": Topic(4, [["b"], ["a"], ["b"], ["a"]])})
    assert {member: sorted(shares["t"]) for member, shares in answer.items()} == {"m1": [1, 3], "m2": [0, 2]}


def test_range_keeps_co_partitioned_topics_together_even_against_a_rack() -> None:
    members = [Member("m1", ["t", "u"], rack="a"), Member("m2", ["t", "u"], rack="b")]
    topics = {"t": Topic(2, [["b"], ["a"]]), "u": Topic(2, [["a"], ["b"]])}
    answer = Range().assign(members, topics)
    assert {member: (list(shares["t"]), list(shares["u"])) for member, shares in answer.items()} == {
        "m1": ([0], [0]),
        "m2": ([1], [1]),
    }


def test_cooperative_members_keep_what_nobody_is_nearer_to() -> None:
    """Kafka takes both away here, each for the other, and gains nothing."""
    members = [
        Member("m1", ["t"], rack="x", owned={"t": [1]}, generation=1),
        Member("m2", ["t"], rack="x", owned={"t": [0]}, generation=1),
        Member("m3", ["t"], rack="a", owned={"t": [2]}, generation=1),
    ]
    topics = {"t": Topic(3, [["b"], ["b"], ["a"]])}
    answer = CooperativeSticky().assign(members, topics)
    assert {member: list(shares["t"]) for member, shares in answer.items()} == {"m1": [1], "m2": [0], "m3": [2]}


def test_cooperative_members_give_up_what_somebody_else_is_nearer_to() -> None:
    members = [
        Member("m1", ["t"], rack="a", owned={"t": [0]}, generation=1),
        Member("m2", ["t"], rack="b", owned={"t": [1]}, generation=1),
    ]
    assert CooperativeSticky().assign(members, {"t": Topic(2, [["b"], ["a"]])}) == {"m1": {}, "m2": {}}
