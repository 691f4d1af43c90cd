"""The same story under each design: what it costs, how that grows, and who owns what when things go wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from coterie.history.account import Account, Cost, Design
from coterie.history.compare import calm, play, split_brain, storms, stormy
from coterie.history.scenario import Do, scenario

PARTITIONS = 12
SIZES = (3, 8)
SEEDS = (0, 6)
TODAY = (Design.EAGER, Design.COOPERATIVE)
Costs = Mapping[tuple[Design, int, str], Cost]


@pytest.fixture(scope="module")
def costs() -> Costs:
    return {
        (one.design, one.scenario.members, chapter.name): one.cost(chapter)
        for one in calm(SIZES, PARTITIONS, seed=1)
        for chapter in one.scenario.chapters
    }


@pytest.fixture(scope="module")
def rough() -> Sequence[Account]:
    return [one for seed in SEEDS for one in stormy(seed, 4, PARTITIONS)]


@pytest.mark.parametrize("members", SIZES)
def test_the_herd_every_change_wakes_everybody_and_everybody_looks_at_everybody(costs: Costs, members: int) -> None:
    """Nothing moves when a broker comes, so nobody has to try twice: n looks at n members, their list, the brokers."""
    cost = costs[Design.WATCHERS, members, "a broker comes"]
    assert (cost.notified, cost.attempts) == (members, members)
    assert cost.reads == members * (members + 2) + PARTITIONS, "and where to begin, for each partition"
    joined = costs[Design.WATCHERS, members, "one joins"]
    assert joined.notified == members and joined.looks == joined.attempts * (members + 3)


def test_no_herd_under_the_designs_with_a_coordinator(costs: Costs) -> None:
    for members in SIZES:
        joined = costs[Design.SERVER, members, "one joins"]
        assert (joined.notified, joined.reads) == (1, 4), "by the coordinator, and the newcomer looks who that is"
        for design in TODAY:
            cost = costs[design, members, "one joins"]
            assert (cost.notified, cost.reads) == (0, 0)
    for design in (Design.SERVER, *TODAY):
        few, many = (costs[design, members, "one joins"].messages for members in (SIZES[0], SIZES[-1]))
        assert few < many <= few * (SIZES[-1] + 1) / (SIZES[0] + 1) * 1.1, "messages grow with the group, not faster"


def test_nobody_owns_what_another_owns_as_long_as_nothing_goes_wrong(costs: Costs) -> None:
    assert not any(cost.several.moments for cost in costs.values())
    assert all(cost.rest_ms is not None for cost in costs.values())


def test_a_broker_that_goes_costs_today_nothing(costs: Costs) -> None:
    """Its groups are read by another node, generation and all."""
    for members in SIZES:
        for design in TODAY:
            assert costs[design, members, "its broker goes"].nobody.ms == 0
        assert costs[Design.WATCHERS, members, "its broker goes"].nobody.moments == PARTITIONS


def test_cooperative_members_lose_only_what_moves(costs: Costs) -> None:
    eager, cooperative = (costs[design, 3, "one joins"].nobody.moments for design in TODAY)
    assert (eager, cooperative) == (PARTITIONS, PARTITIONS // 4)


def test_a_new_strategy_restarts_whoever_has_it(costs: Costs) -> None:
    for members in SIZES:
        restarts = {design: costs[design, members, "a new strategy"].restarts for design in Design}
        assert restarts == {one: 2 if one is Design.SERVER else members for one in Design}
        assert costs[Design.SERVER, members, "one joins"].restarts == 0


def test_a_strategy_that_not_all_have_leaves_partitions_unread_under_design_1_alone(costs: Costs) -> None:
    """Who decides alone must decide as all the others: until they do, claims collide."""
    for members in SIZES:
        watchers, *others = (costs[design, members, "a new strategy"].nobody.ms for design in Design)
        assert watchers > 2 * max(others)


def test_split_brain_is_had_under_design_1_by_seeds_that_never_give_it_under_the_others(
    rough: Sequence[Account],
) -> None:
    found = split_brain(rough)
    assert found is not None
    account, two = found
    assert account.design is Design.WATCHERS and account.scenario.seed == SEEDS[0]
    assert len(two.owners) == 2 and two.ended_ms - two.began_ms > 1_000
    by_design = {one.design: one for one in storms(rough)}
    assert by_design[Design.WATCHERS].split == len(SEEDS)
    assert [by_design[one].several.moments for one in Design if one is not Design.WATCHERS] == [0, 0, 0]


def test_a_follower_that_lags_is_enough_for_a_split_brain_under_design_1_and_not_under_2() -> None:
    """Two consumers see different children, each from its own server (semantics 13.1)."""
    told = scenario(23, 3, PARTITIONS, with_faults=True)
    assert {fault.do for fault in told.faults} == {Do.LAG}
    first, second = (play(design, told) for design in (Design.WATCHERS, Design.SERVER))
    assert first.several and not second.several


def test_two_believe_it_under_every_design_but_only_design_1_takes_what_both_commit(rough: Sequence[Account]) -> None:
    """The test of the fence: everybody commits every second, whatever it believes."""
    by_design = {one.design: one for one in storms(rough)}
    assert all(one.believed.moments for one in by_design.values())
    assert by_design[Design.WATCHERS].went_back > 0
    assert [by_design[one].went_back for one in Design if one is not Design.WATCHERS] == [0, 0, 0]


def test_when_the_faults_are_over_all_come_to_rest(rough: Sequence[Account]) -> None:
    assert all(one.came_to_rest for one in rough)


def test_the_same_seed_is_the_same_story() -> None:
    told, other = (scenario(seed, 3, 6, with_faults=True) for seed in (6, 7))
    assert told == scenario(6, 3, 6, with_faults=True) and told.faults != other.faults
    for design in (Design.WATCHERS, Design.SERVER, Design.EAGER):
        first, second = play(design, told), play(design, told)
        assert (first.owns.intervals, first.marks) == (second.owns.intervals, second.marks)
