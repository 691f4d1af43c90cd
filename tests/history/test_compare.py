"""The same scenario under each design: what it costs, how that grows, and who owns what when things go wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from coterie.history.compare import (
    HEARTBEAT_MS,
    fault_totals,
    runs_with_faults,
    runs_without_faults,
    simulate_design,
    split_brain,
)
from coterie.history.design_costs import ChangeCost, Design, DesignRun
from coterie.history.scenario import ActionKind, scenario

PARTITIONS = 12
SIZES = (3, 8)
SEEDS = (0, 6)
CLASSIC = (Design.EAGER, Design.COOPERATIVE)
TODAY = (*CLASSIC, Design.CONSUMER)
Costs = Mapping[tuple[Design, int, str], ChangeCost]


@pytest.fixture(scope="module")
def costs() -> Costs:
    return {
        (one.design, one.scenario.members, period.name): one.cost(period)
        for one in runs_without_faults(SIZES, PARTITIONS, seed=1)
        for period in one.scenario.periods
    }


@pytest.fixture(scope="module")
def rough() -> Sequence[DesignRun]:
    return [one for seed in SEEDS for one in runs_with_faults(seed, 4, PARTITIONS)]


@pytest.mark.parametrize("members", SIZES)
def test_the_herd_every_change_wakes_everybody_and_everybody_looks_at_everybody(costs: Costs, members: int) -> None:
    """Nothing moves when a broker comes, so nobody has to try twice: n reads of n members, their list, the brokers."""
    cost = costs[Design.WATCHERS, members, "a broker comes"]
    assert (cost.notified, cost.attempts) == (members, members)
    assert cost.reads == members * (members + 2) + PARTITIONS, "and where to begin, for each partition"
    joined = costs[Design.WATCHERS, members, "one joins"]
    assert joined.notified == members and joined.membership_reads == joined.attempts * (members + 3)


def test_no_herd_under_the_designs_with_a_coordinator(costs: Costs) -> None:
    for members in SIZES:
        joined = costs[Design.SERVER, members, "one joins"]
        assert (joined.notified, joined.reads) == (1, 4), "by the coordinator, and the newcomer reads who that is"
        for design in TODAY:
            cost = costs[design, members, "one joins"]
            assert (cost.notified, cost.reads) == (0, 0)
    for design in (Design.SERVER, *CLASSIC):
        few, many = (costs[design, members, "one joins"].messages for members in (SIZES[0], SIZES[-1]))
        assert few < many <= few * (SIZES[-1] + 1) / (SIZES[0] + 1) * 1.1, "messages grow with the group, not faster"


def test_nobody_owns_what_another_owns_as_long_as_nothing_goes_wrong(costs: Costs) -> None:
    assert not any(cost.two_owners.count for cost in costs.values())
    assert all(cost.stable_after_ms is not None for cost in costs.values())


def test_a_broker_that_goes_costs_today_nothing(costs: Costs) -> None:
    """Its groups are read by another node, generation and all."""
    for members in SIZES:
        for design in TODAY:
            assert costs[design, members, "its broker goes"].unassigned.ms == 0
        assert costs[Design.WATCHERS, members, "its broker goes"].unassigned.count == PARTITIONS


def test_cooperative_members_lose_only_what_moves(costs: Costs) -> None:
    found = {design: costs[design, 3, "one joins"].unassigned.count for design in TODAY}
    moved = PARTITIONS // 4
    assert found == {Design.EAGER: PARTITIONS, Design.COOPERATIVE: moved, Design.CONSUMER: moved}


def test_what_moves_stops_for_a_heartbeat_interval_if_cooperative_and_for_a_part_of_it_under_kip_848(
    costs: Costs,
) -> None:
    """The follow-up rebalance of KIP-429 is heard of with the next heartbeat; KIP-848 waits for one member alone (K13).

    Clocks run up to 2 % fast or slow, and a rebalance takes some milliseconds.
    """
    moved = PARTITIONS // 4
    cooperative, consumer = (
        costs[design, 3, "one joins"].unassigned.ms / moved for design in (Design.COOPERATIVE, Design.CONSUMER)
    )
    assert 0.97 * HEARTBEAT_MS <= cooperative <= 1.03 * HEARTBEAT_MS + 100
    assert 0 < consumer < cooperative


def test_members_of_an_eager_group_do_not_learn_of_a_rebalance_at_the_same_moment(costs: Costs) -> None:
    """Each stops at its own heartbeat, and waits for the last one's: heartbeats are spread over the interval."""
    cost = costs[Design.EAGER, SIZES[-1], "one joins"].unassigned
    assert cost.ms / cost.count > HEARTBEAT_MS / 8


def test_kip_848_needs_fewer_messages_for_a_join_than_the_classic_protocol(costs: Costs) -> None:
    """No member joins or syncs again: only those that give up or get partitions say or hear anything."""
    for members in SIZES:
        eager, cooperative, consumer = (costs[design, members, "one joins"].messages for design in TODAY)
        assert consumer < eager < cooperative


def test_a_new_strategy_restarts_whoever_has_it(costs: Costs) -> None:
    for members in SIZES:
        restarts = {design: costs[design, members, "a new strategy"].restarts for design in Design}
        assert restarts == {one: 2 if one is Design.SERVER else members for one in Design}
        assert costs[Design.SERVER, members, "one joins"].restarts == 0


def test_a_strategy_that_not_all_have_leaves_partitions_unread_under_design_1_alone(costs: Costs) -> None:
    """Who decides alone must decide as all the others: until they do, claims collide."""
    for members in SIZES:
        watchers, *others = (costs[design, members, "a new strategy"].unassigned.ms for design in Design)
        assert watchers > 2 * max(others)


def test_split_brain_is_had_under_design_1_by_seeds_that_never_give_it_under_the_others(
    rough: Sequence[DesignRun],
) -> None:
    found = split_brain(rough)
    assert found is not None
    account, two = found
    assert account.design is Design.WATCHERS and account.scenario.seed == SEEDS[0]
    assert len(two.owners) == 2 and two.ended_ms - two.began_ms > 1_000
    by_design = {one.design: one for one in fault_totals(rough)}
    assert by_design[Design.WATCHERS].split == len(SEEDS)
    assert not any(by_design[one].two_owners.count for one in Design if one is not Design.WATCHERS)


def test_a_follower_that_lags_is_enough_for_a_split_brain_under_design_1_and_not_under_2() -> None:
    """Two consumers see different children, each from its own server (semantics 13.1)."""
    faulty = scenario(23, 3, PARTITIONS, with_faults=True)
    assert {fault.do for fault in faulty.faults} == {ActionKind.LAG}
    first, second = (simulate_design(design, faulty) for design in (Design.WATCHERS, Design.SERVER))
    assert first.two_owners and not second.two_owners


def test_two_believe_it_under_every_design_but_only_design_1_takes_what_both_commit(rough: Sequence[DesignRun]) -> None:
    """The test of the fence: every process commits every second, whatever it believes."""
    by_design = {one.design: one for one in fault_totals(rough)}
    assert all(one.believed.count for one in by_design.values())
    assert by_design[Design.WATCHERS].went_back > 0
    assert not any(by_design[one].went_back for one in Design if one is not Design.WATCHERS)


def test_when_the_faults_are_over_all_come_to_rest(rough: Sequence[DesignRun]) -> None:
    assert all(one.is_stable_at_end for one in rough)


def test_the_same_seed_is_the_same_story() -> None:
    faulty, other = (scenario(seed, 3, 6, with_faults=True) for seed in (6, 7))
    assert faulty == scenario(6, 3, 6, with_faults=True) and faulty.faults != other.faults
    for design in (Design.WATCHERS, Design.SERVER, Design.EAGER, Design.CONSUMER):
        first, second = simulate_design(design, faulty), simulate_design(design, faulty)
        assert (first.owns.intervals, first.marks) == (second.owns.intervals, second.marks)
