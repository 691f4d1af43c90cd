"""The demonstration's judge is one that can say no."""

from __future__ import annotations

from coterie.cli.demo.demo import check, removed_clients
from coterie.facts import AssignmentStored, Fact, MemberExpired, MemberJoined, MemberLeft, OffsetsStored
from coterie.protocol.subscription import Assignment, write_assignment

ENDS = {0: 3, 1: 1}
ALL = [(0, 0), (0, 1), (0, 2), (1, 0)]


def verdicts(
    done: dict[str, list[tuple[int, int]]],
    crashed: tuple[str, ...] = (),
    facts: tuple[Fact, ...] = (),
    static_rebalances: int | None = None,
) -> list[bool]:
    return [guarantee.held for guarantee in check(ENDS, done, crashed, facts, static_rebalances)]


def owns(**members: list[int]) -> AssignmentStored:
    given = {name: write_assignment(Assignment({"orders": numbers})) for name, numbers in members.items()}
    return AssignmentStored(0, "shop", 1, given)


def test_all_is_well() -> None:
    facts = (owns(a=[0], b=[1]), OffsetsStored(1, "shop", "a", [("orders", 0, 1)], transactional=False))
    assert verdicts({"a": ALL[:3], "b": ALL[3:]}, facts=facts, static_rebalances=0) == [True] * 5


def test_a_missing_order_is_noticed() -> None:
    found = check(ENDS, {"a": ALL[:3]}, (), (), None)
    assert not found[0].held and "partition 1 offset 0" in found[0].found


def test_an_order_done_twice_is_excused_by_a_crash_alone() -> None:
    assert not verdicts({"a": ALL, "b": [(0, 2)]})[1]
    assert verdicts({"a": ALL, "b": [(0, 2)]}, crashed=("b",))[1]
    assert not verdicts({"a": [*ALL, (0, 1)], "b": [(0, 2)]}, crashed=("b",))[1]


def test_two_owners_and_a_commit_that_goes_back_are_noticed() -> None:
    assert not verdicts({"a": ALL}, facts=(owns(a=[0, 1], b=[1]),))[2]
    commits = [OffsetsStored(at, "shop", "a", [("orders", 0, 9 - at)], transactional=False) for at in (1, 2)]
    assert not verdicts({"a": ALL}, facts=tuple(commits))[3]


def test_a_static_restart_that_costs_a_rebalance_is_noticed() -> None:
    assert not verdicts({"a": ALL}, static_rebalances=1)[4]


def test_a_static_restart_that_was_too_late_is_not_a_broken_promise() -> None:
    found = check(ENDS, {"a": ALL}, (), (), 1, 1)[4]
    assert found.held and "1 sessions timed out" in found.found


def test_who_was_put_out_is_known_from_the_facts() -> None:
    facts = [MemberJoined(0, "shop", "id-1", None, "tired", "h"), MemberJoined(0, "shop", "id-2", None, "awake", "h")]
    assert removed_clients([*facts, MemberExpired(9, "shop", "id-1", 6_000, never_heard=False)]) == {"tired"}
    assert removed_clients([*facts, MemberLeft(9, "shop", "id-2", None, None)]) == set()
