"""Owned partitions that members send: conflicting, stale and impossible ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.assignors import CooperativeSticky, Member, Sticky, Topic
from coterie.assignors.owned_partitions import StickyMemberData, settle

BOTH = [frozenset({"t"}), frozenset({"t"})]


def kept(*data: StickyMemberData, size: int = 4) -> list[list[int]]:
    settled = settle(data, [frozenset({"t"})] * len(data), {"t": size})
    return [sorted(owned.get("t", ())) for owned in settled.owned]


def test_the_higher_generation_owns_what_two_claim() -> None:
    assert kept(StickyMemberData({"t": [0, 1]}, 4), StickyMemberData({"t": [1, 2]}, 5)) == [[0], [1, 2]]
    assert kept(StickyMemberData({"t": [0, 1]}, 5), StickyMemberData({"t": [1, 2]}, 4)) == [[0, 1], [2]]


def test_nobody_owns_what_two_claim_in_the_same_generation() -> None:
    assert kept(StickyMemberData({"t": [0, 1]}, 5), StickyMemberData({"t": [1, 2]}, 5)) == [[0], [2]]


def test_a_third_claimant_of_a_later_generation_ends_the_dispute() -> None:
    assert kept(StickyMemberData({"t": [1]}, 5), StickyMemberData({"t": [1]}, 5), StickyMemberData({"t": [1]}, 6)) == [
        [],
        [],
        [1],
    ]
    assert kept(StickyMemberData({"t": [1]}, 6), StickyMemberData({"t": [1]}, 5), StickyMemberData({"t": [1]}, 5)) == [
        [1],
        [],
        [],
    ]


@pytest.mark.parametrize("partition", [-1, -4, 4, 10**9, -(2**31)])
def test_a_claim_out_of_bounds_is_dropped(partition: int) -> None:
    assert kept(StickyMemberData({"t": [0, partition]}, 5), StickyMemberData({"t": [2]}, 5)) == [[0], [2]]


def test_a_partition_claimed_twice_by_one_member_is_claimed_once() -> None:
    assert kept(StickyMemberData({"t": [0, 0, 1]}, 5)) == [[0, 1]]


def test_topics_that_are_gone_or_no_longer_subscribed_are_not_owned() -> None:
    settled = settle(
        [StickyMemberData({"gone": [0], "t": [0], "u": [1]}, 5), StickyMemberData({}, 5)],
        [frozenset({"t"}), frozenset({"u"})],
        {"t": 2, "u": 2},
    )
    assert settled.owned == [{"t": [0]}, {}]
    assert list(settled.free("u")) == [0, 1]
    assert settled.claimed["u"] == b"\0\1"  # but it may still be read there, so it cannot be handed out at once


@given(st.lists(st.tuples(st.lists(st.integers(-3, 12), max_size=8), st.integers(1, 3)), min_size=1, max_size=5))
def test_what_is_owned_is_owned_once_and_the_rest_is_free(sent: list[tuple[list[int], int]]) -> None:
    settled = settle(
        [StickyMemberData({"t": ids}, gen) for ids, gen in sent], [frozenset({"t"})] * len(sent), {"t": 10}
    )
    owned = [partition for mine in settled.owned for partition in mine.get("t", ())]
    assert sorted([*owned, *settled.free("t")]) == list(range(10))


@pytest.mark.parametrize("ids", [[3, 1], range(1, 4, 2), (1, 3)], ids=["list", "range", "tuple"])
def test_any_sequence_of_ids_will_do(ids: list[int]) -> None:
    assert kept(StickyMemberData({"t": ids}, 1)) == [[1, 3]]


def test_a_disputed_partition_is_withheld_until_all_claimants_let_go() -> None:
    """KIP-429: both believe they own it, so whoever gets it must wait for the other."""
    members = [
        Member("a", ["t"], owned={"t": [0, 1]}, generation=5),
        Member("b", ["t"], owned={"t": [1]}, generation=5),
    ]
    assert CooperativeSticky().assign(members, {"t": Topic(2)}) == {"a": {"t": [0]}, "b": {}}


def test_what_a_member_no_longer_subscribes_to_is_withheld_until_it_lets_go() -> None:
    members = [Member("a", ["u"], owned={"t": [0]}, generation=5), Member("b", ["t", "u"], generation=5)]
    assert CooperativeSticky().assign(members, {"t": Topic(1), "u": Topic(1)}) == {"a": {"u": range(1)}, "b": {}}


def test_sticky_takes_its_history_from_user_data_if_there_is_any() -> None:
    data = Sticky().user_data(["t"], {"t": [2, 3]}, 7)
    members = [Member("a", ["t"], owned={"t": [0, 1]}, user_data=data), Member("b", ["t"])]
    answer = Sticky().assign(members, {"t": Topic(4)})
    assert {member: list(shares["t"]) for member, shares in answer.items()} == {"a": [2, 3], "b": [0, 1]}
