"""What holds for every group, whatever it looks like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors.oracle import check_valid, worth
from assignors.random_cases import after_an_event, holding, random_case, shuffled
from coterie.assignors import Assignor, CooperativeSticky, Member, Range, RoundRobin, Sticky, Topic
from coterie.assignors.cases import Case, run

ASSIGNORS = [Range(), RoundRobin(), Sticky(), CooperativeSticky()]
every_assignor = pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda one: one.name)
sticky_kinds = pytest.mark.parametrize("assignor", ASSIGNORS[2:], ids=lambda one: one.name)

cases = st.builds(random_case, st.integers(0, 10**9), equal=st.booleans(), racks=st.booleans())
seeds = st.integers(0, 10**9)


@every_assignor
@given(case=cases)
def test_everything_is_assigned_once_and_to_a_subscriber(assignor: Assignor, case: Case) -> None:
    check_valid(case, run(assignor, case)[0])


@every_assignor
@given(case=cases, seed=seeds)
def test_the_order_of_the_input_does_not_matter(assignor: Assignor, case: Case, seed: int) -> None:
    other = shuffled(seed, case)
    one, two = assignor.assign(case.members, case.topics), assignor.assign(other.members, other.topics)
    assert {m: {t: sorted(p) for t, p in shares.items()} for m, shares in one.items()} == {
        m: {t: sorted(p) for t, p in shares.items()} for m, shares in two.items()
    }


@sticky_kinds
@given(seed=seeds, racks=st.booleans())
def test_equal_subscriptions_have_loads_that_differ_by_one_at_most(assignor: Assignor, seed: int, racks: bool) -> None:
    case = random_case(seed, equal=True, racks=racks)
    loads = [sum(map(len, shares.values())) for shares in run(assignor, case)[0].values()]
    assert max(loads) - min(loads) <= 1


@sticky_kinds
@given(case=cases)
def test_a_group_at_rest_stays_as_it_is(assignor: Assignor, case: Case) -> None:
    """Nothing moves in a group that has what it was assigned.

    Except that Kafka's `sticky`, with equal subscriptions, goes on looking for better racks.
    """
    rested = holding(case, run(assignor, case)[0])
    again, rebalances = run(assignor, rested)
    assert rebalances == 1
    if assignor.cooperative or not any(member.rack for member in case.members):
        assert worth(rested, again).moves == 0


@given(seed=seeds, racks=st.booleans(), equal=st.booleans())
def test_cooperative_groups_are_done_in_two_rebalances(seed: int, racks: bool, equal: bool) -> None:
    """Rule 20 (KIP-429), and always: Kafka's own needs up to five with racks, and three with unequal subscriptions."""
    assignor = CooperativeSticky()
    case = random_case(seed, 8, 4, 8, equal=equal, racks=racks)
    for step in range(3):
        final, rebalances = run(assignor, case)
        assert rebalances <= 2
        case = after_an_event(seed + step, holding(case, final))


@given(seed=seeds, racks=st.booleans())
def test_the_second_rebalance_gives_what_the_first_withheld_and_takes_nothing(seed: int, racks: bool) -> None:
    assignor = CooperativeSticky()
    case = random_case(seed, racks=racks)
    first = assignor.assign(case.members, case.topics)
    owned = {(t, p): m.id for m in case.members for t, ids in m.owned.items() for p in ids}
    for member, shares in first.items():
        for topic, ids in shares.items():
            assert all(owned.get((topic, partition), member) == member for partition in ids)
    second = assignor.assign(holding(case, first).members, case.topics)
    for member, shares in first.items():
        for topic, ids in shares.items():
            assert set(ids) <= set(second[member].get(topic, ()))


@every_assignor
def test_no_members_and_no_topics_are_no_trouble(assignor: Assignor) -> None:
    assert assignor.assign([], {"t": Topic(3)}) == {}
    assert assignor.assign([Member("m", ["gone"]), Member("n", [])], {}) == {"m": {}, "n": {}}
    assert assignor.assign([Member("m", ["t", "t"])], {"t": Topic(0)}) == {"m": {}}


@every_assignor
def test_a_topic_named_twice_is_one_subscription(assignor: Assignor) -> None:
    answer = assignor.assign([Member("m", ["t", "t"]), Member("n", ["t"])], {"t": Topic(4)})
    assert [sum(map(len, shares.values())) for shares in answer.values()] == [2, 2]
