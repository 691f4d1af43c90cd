"""K2, K16: targets that take time to compute, by an assignor of a user or for a large group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from coordinator.consumer.group_world import ConsumerMember, GroupWorld
from coterie.assignors import Member, Topic
from coterie.coordinator.consumer.target_assignment import ASSIGNORS, Assign, TargetComputation, assignment_error
from coterie.errors import ErrorCode
from coterie.facts import AssignorFailed

MINE = {"group_consumer_assignors": ("mine", "uniform")}


def all_to_the_last(members: Sequence[Member], topics: Mapping[str, Topic]) -> dict[str, dict[str, list[int]]]:
    last = max(member.id for member in members)
    return {last: {name: list(range(topic.partitions)) for name, topic in topics.items()}}


def raises(_members: Sequence[Member], _topics: Mapping[str, Topic]) -> dict[str, dict[str, list[int]]]:
    raise ValueError("no idea")


def answer(world: GroupWorld, assign: Assign = all_to_the_last) -> TargetComputation:
    """Let the assignor end that was asked last."""
    asked: TargetComputation = world.world.computations[-1].then
    world.world.send(asked.compute(assign, is_kafkas=False))
    return asked


def failures(world: GroupWorld) -> list[str]:
    return [fact.why for fact in world.world.facts if isinstance(fact, AssignorFailed)]


def joined(settings: dict[str, Any] | None = None) -> tuple[GroupWorld, ConsumerMember]:
    """Return a group of one member that has everything, by the assignor of a user."""
    world = GroupWorld({**MINE, **(settings or {})}, t=4)
    a = world.member("a").joins("t", expect={})
    answer(world)
    return world, a.beats(expect={"t": [0, 1, 2, 3]})


def test_members_work_with_the_last_target_until_the_assignor_has_answered() -> None:
    """K2: a newcomer has the old assignment epoch and nothing; it is asked to come back soon."""
    world = GroupWorld(MINE, t=4)
    a = world.member("a").joins("t", expect={})
    assert a.heard is not None and (a.epoch, a.heard.heartbeat_interval_ms) == (1, 500)
    world.expect("Assigning", 2, 1)
    answer(world)
    world.expect("Reconciling", 2)
    a.beats(expect={"t": [0, 1, 2, 3]})
    assert (a.epoch, a.heard.heartbeat_interval_ms) == (2, 5_000)
    world.expect("Stable", 2)


def test_a_group_asks_once_however_many_heartbeats_come() -> None:
    """K2."""
    world = GroupWorld(MINE, t=4)
    a = world.member("a").joins("t")
    for _ in range(3):
        a.beats()
    assert len(world.world.computations) == 1


WRONG: Mapping[str, tuple[Callable[..., Any], str]] = {
    "raises": (raises, "it raised ValueError: no idea"),
    "unknown member": (lambda _m, _t: {"x": {"t": [0, 1, 2, 3]}}, "'x', which is not a member"),
    "twice": (lambda _m, _t: {"a": {"t": [0, 1, 1, 2, 3]}}, "partition 1 of t to two members"),
    "two members": (lambda _m, _t: {"a": {"t": [0, 1, 2, 3]}, "b": {"t": [3]}}, "partition 3 of t to two members"),
    "not subscribed": (lambda _m, _t: {"a": {"t": [0, 1, 2, 3], "u": [0]}}, "topic 'u' to a, which does not subscribe"),
    "no such partition": (lambda _m, _t: {"a": {"t": [0, 1, 2, 3, 4]}}, "partition 4, which does not exist"),
    "no number": (lambda _m, _t: {"a": {"t": ["0"]}}, "partition '0', which does not exist"),
    "missing": (lambda _m, _t: {"a": {"t": [0, 1, 3]}}, "it leaves t-2 without a member"),
    "nothing": (lambda _m, _t: None, "not a mapping of members, but NoneType"),
    "no shares": (lambda _m, _t: {"a": None}, "it raised AttributeError"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_group_keeps_its_last_target_if_the_assignor_fails(case: str) -> None:
    """K2: a fact says why; it is asked again when the group has changed, and not at each heartbeat."""
    assign, why = WRONG[case]
    world, a = joined()
    b = world.member("b").joins("t", expect={})
    answer(world, assign)
    assert len(failures(world)) == 1 and why in failures(world)[0]
    world.expect("Assigning", 3, 2)
    for member in (a, b, a, b):
        member.beats()
    assert (len(world.world.computations), a.owned, b.owned) == (2, {"t": [0, 1, 2, 3]}, {})
    world.member("c").joins("t")
    assert len(world.world.computations) == 3
    answer(world)
    a.beats(expect={}).gives_up()
    assert len(failures(world)) == 1 and world.group.assignment_epoch == 4


def test_an_assignor_that_takes_too_long_is_not_waited_for() -> None:
    """K2: its answer is not taken any more; the next change asks again."""
    world, _ = joined({"coterie_assignor_timeout_ms": 300})
    world.member("b").joins("t")
    late: TargetComputation = world.world.computations[-1].then
    world.world.advance(299)
    assert not failures(world)
    world.world.advance(1)
    assert failures(world) == ["it took more than 300 ms (coterie.assignor.timeout.ms)"]
    world.world.send(late.compute(all_to_the_last, is_kafkas=False))
    world.expect("Assigning", 3, 2)
    world.member("c").joins("t")
    answer(world)
    assert world.group.assignment_epoch == 4 and len(failures(world)) == 1


def test_a_target_counts_for_the_epoch_that_it_was_computed_for() -> None:
    """K2: a member that has come since has nothing in it, one that has left is left out; then there is the next."""
    world, a = joined()
    b = world.member("b").joins("t")
    world.member("c").joins("t")
    b.leaves()
    answer(world)
    world.expect("Assigning", 5, 3)
    assert set(world.group.targets) == {"a"} and not world.group.targets["a"]
    a.beats(expect={})
    answer(world)
    assert world.group.assignment_epoch == 5 and set(world.group.targets) == {"a", "c"}


def test_a_target_is_computed_again_if_a_static_member_was_replaced_meanwhile() -> None:
    """K14: this does not change the group epoch, and the target names the old member."""
    world = GroupWorld(MINE, t=4)
    a = world.member("a", "i").joins("t")
    a.goes_away()
    new = world.member("b", "i").joins("t")
    answer(world)
    world.expect("Assigning", 2, 1)
    new.beats()
    answer(world)
    new.beats(expect={"t": [0, 1, 2, 3]})
    world.expect("Stable", 2)


def test_a_change_that_cannot_be_written_takes_its_computation_along() -> None:
    """K27: the target would be for an epoch that never was."""
    world, _ = joined()
    world.world.holds_writes = True
    world.member("b").joins("t")
    world.world.end_writes(ErrorCode.NOT_ENOUGH_REPLICAS)
    answer(world)
    world.world.end_writes()
    world.expect("Stable", 2)


def test_a_restart_asks_again() -> None:
    """K27: that an assignor has failed is not stored."""
    world, a = joined()
    world.member("b").joins("t")
    answer(world, raises)
    world.world.crash()
    a.beats()
    answer(world)
    assert world.group.assignment_epoch == 3


def test_an_assignor_may_change_what_it_is_given() -> None:
    """It has copies: the group still knows its last target."""

    def spoils(members: Sequence[Member], topics: Mapping[str, Topic]) -> dict[str, Any]:
        (first, second) = members
        first.owned.clear()  # type: ignore[attr-defined]
        second.owned["t"] = [0, 1, 2, 3]  # type: ignore[index]
        return {first.id: first.owned, second.id: second.owned}

    world, a = joined()
    b = world.member("b").joins("t")
    answer(world, spoils)
    a.beats(expect={}).gives_up()
    b.beats(expect={"t": [0, 1, 2, 3]})


def test_the_target_of_a_large_group_is_computed_away_from_the_loop() -> None:
    """K2, K18: and is what it would have been at once."""
    world = GroupWorld(t=3_000)
    a = world.member("a").joins("t", expect={})
    (asked,) = (effect.then for effect in world.world.computations)
    world.world.send(asked.compute(ASSIGNORS["uniform"], is_kafkas=True))
    a.beats(expect={"t": list(range(3_000))})


def test_kafkas_assignors_make_sense() -> None:
    """K17, K18."""
    members = [Member(f"m{number}", ("t", "u") if number % 2 else ("t",)) for number in range(5)]
    topics = {"t": Topic(7), "u": Topic(3)}
    for assign in ASSIGNORS.values():
        assert assignment_error(members, topics, assign(members, topics)) == ""
