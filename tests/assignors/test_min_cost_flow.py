"""Unequal subscriptions: balance, moves and rack matches equal an independent optimum, case by case."""

from __future__ import annotations

import pytest

from assignors.oracle import check_valid, optimum, worth
from assignors.random_cases import after_an_event, holding, random_case
from coterie.assignors import Sticky
from coterie.assignors.cases import Case
from coterie.assignors.min_cost_flow import solve

STICKY = Sticky()


def check(case: Case) -> None:
    assignment = STICKY.assign(case.members, case.topics)
    check_valid(case, assignment)
    assert worth(case, assignment) == optimum(case), case.id


@pytest.mark.parametrize("start", range(0, 6000, 1000))
def test_small_groups_are_optimal(start: int) -> None:
    for seed in range(start, start + 1000):
        check(random_case(seed))


@pytest.mark.parametrize("start", range(0, 2000, 1000))
def test_small_groups_with_racks_are_optimal(start: int) -> None:
    for seed in range(start, start + 1000):
        case = random_case(seed, racks=True)
        if len({frozenset(member.topics) for member in case.members}) > 1:
            check(case)


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_medium_groups_are_optimal(start: int) -> None:
    for seed in range(start, start + 50):
        check(random_case(seed, 30, 20, 20))


def test_groups_stay_optimal_from_event_to_event() -> None:
    for seed in range(300):
        case = random_case(seed)
        for step in range(4):
            case = after_an_event(10 * seed + step, holding(case, STICKY.assign(case.members, case.topics)))
            check(case)


def test_many_levels_are_told_apart() -> None:
    """Every member alone with a topic of its own size: nothing can be shared, and every load is another block."""
    sizes = [3 * number for number in range(60)]
    have = solve(sizes, [1 << number for number in range(60)], [{}] * 60)
    assert [sum(piles.values()) for piles in have] == sizes


def test_nothing_to_share_and_nobody_to_share_it() -> None:
    assert solve([], [], []) == []
    assert solve([], [], [{}, {}]) == [{}, {}]
    assert solve([0], [0b11], [{}, {}]) == [{}, {}]
