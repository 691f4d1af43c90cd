"""K11 to K13 and the table of section 3: how members get from one target to the next."""

from __future__ import annotations

import pytest

from coordinator.consumer.group_world import GroupWorld, pair
from coterie.coordinator.consumer.states import ON_RECONCILE, MemberState, Situation
from coterie.facts import AssignmentStored, Cause, MemberMissedRevocation, RebalanceStarted

UNREVOKED, UNRELEASED = MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def test_every_state_has_its_situations() -> None:
    """Section 3: each situation belongs to one state."""
    assert set(ON_RECONCILE) == set(MemberState)
    assert sorted(each.name for row in ON_RECONCILE.values() for each in row) == sorted(each.name for each in Situation)


def test_a_newcomer_waits_for_what_another_gives_up() -> None:
    """K13: step by step."""
    world = GroupWorld(t=4)
    a = world.member("a").joins("t", assignor="range")
    b = world.member("b").joins("t", assignor="range", expect={})
    assert (a.epoch, b.epoch) == (2, 3)
    a.beats(expect={"t": [0, 1]})
    assert a.epoch == 2
    a.gives_up()
    assert a.epoch == 3
    b.beats(expect={"t": [2, 3]})
    assert b.epoch == 3


def test_no_partition_ever_has_two_owners() -> None:
    """K11: a partition is free when its owner's record has it neither assigned nor to be revoked."""
    world = GroupWorld(t=4)
    a = world.member("a").joins("t", assignor="range")
    b = world.member("b").joins("t", assignor="range")
    a.beats()
    b.beats()
    assert world.group.members["a"].state is UNREVOKED
    assert world.group.members["b"].state is UNRELEASED
    assert world.shares() == {"a": {"t": [0, 1]}, "b": {}}
    topic = world.image.topics["t"].id
    assert world.group.holders[topic] == dict.fromkeys(range(4), "a")


@pytest.mark.parametrize(
    ("owned", "goes_on"), [(None, False), ({"t": [0, 1, 2]}, False), ({"t": [0]}, True), ({}, True)]
)
def test_a_member_must_report_that_it_gave_up_everything(owned: dict[str, list[int]] | None, goes_on: bool) -> None:
    """Section 3: not to say what it owns does not count; one partition left is too many."""
    world = GroupWorld(t=4)
    a = world.member("a").joins("t", assignor="range")
    world.member("b").joins("t", assignor="range")
    a.beats()
    a.beats(owned=owned)
    assert (a.epoch == 3) is goes_on


def test_a_member_that_gives_up_goes_on_to_the_target_of_that_moment() -> None:
    """Section 3: what it had to give up may be taken back."""
    world = GroupWorld(t=4)
    a = world.member("a").joins("t", assignor="range")
    b = world.member("b").joins("t", assignor="range")
    a.beats(expect={"t": [0, 1]})
    b.leaves()
    a.beats()
    assert world.group.members["a"].state is UNREVOKED
    a.gives_up(expect={"t": [0, 1, 2, 3]})
    world.expect("Stable", 4)


def test_freed_partitions_arrive_one_by_one_in_the_same_epoch() -> None:
    """Section 3, UnreleasedPartitions."""
    world = GroupWorld(t=4, u=1)
    a = world.member("a").joins("t", assignor="range")
    b = world.member("b").joins("t", assignor="range")
    a.beats().gives_up()
    b.beats(expect={"t": [2, 3]})
    c = world.member("0").joins("t", assignor="range", expect={})
    epoch = c.epoch
    a.beats().gives_up()
    c.beats()
    b.beats().gives_up()
    c.beats()
    a.beats()
    assert c.epoch == epoch
    assert world.shares() == {"a": {"t": [2]}, "b": {"t": [3]}, "0": {"t": [0, 1]}}


def test_dropped_topics_are_revoked_before_there_is_a_new_target() -> None:
    """Section 3: in the same epoch, while the target waits for its interval."""
    world = GroupWorld({"group_consumer_assignment_interval_ms": 1_000}, t=1, u=1)
    a = world.member("a").joins("t", "u")
    a.beats(topics=["t"], expect={"t": [0]})
    assert a.epoch == 2
    assert world.group.members["a"].state is UNREVOKED
    a.gives_up()
    world.world.advance(1_000)
    a.beats()
    assert a.epoch == 3
    world.expect("Stable", 3)


def test_a_member_that_does_not_give_up_in_time_is_removed_although_it_heartbeats() -> None:
    """K12: its own rebalance timeout counts."""
    world = GroupWorld(t=2)
    a = world.member("a").joins("t", timeout=1_500)
    b = world.member("b").joins("t")
    a.beats()
    world.world.advance(1_000)
    a.beats()
    world.world.advance(499)
    a.beats()
    world.world.advance(1)
    a.beats(expect="UNKNOWN_MEMBER_ID")
    b.beats(expect={"t": [0, 1]})
    assert MemberMissedRevocation(world.world.now_ms, "g", "a") in world.world.facts
    causes = [fact.cause for fact in world.world.facts if isinstance(fact, RebalanceStarted)]
    assert causes[-1] is Cause.REVOCATION_TIMEOUT


def test_a_member_that_gave_up_is_not_removed() -> None:
    """K12: there is no other rebalance timer."""
    world = GroupWorld(t=2)
    a = world.member("a").joins("t", timeout=1_500)
    world.member("b").joins("t", timeout=1)
    a.beats().gives_up()
    world.world.advance(5_000)
    a.beats()
    assert set(world.group.members) == {"a", "b"}


def test_partitions_of_a_deleted_topic_are_revoked_like_others() -> None:
    """K11, K28."""
    world = GroupWorld(t=1, u=1)
    a = world.member("a").joins("t", "u")
    world.image.delete("u")
    a.beats(expect={"t": [0]})
    assert a.epoch == 2
    a.gives_up()
    assert a.epoch == 3


def test_the_ledger_knows_what_moved() -> None:
    """A rebalance of a consumer group is told by the same facts as one of a classic group."""
    world = GroupWorld(t=4)
    pair(world)
    first, second = world.world.ledger.rebalances
    assert (first.cause, second.cause) == (Cause.NEW_MEMBER, Cause.NEW_MEMBER)
    assert (second.culprit, second.outcome.value, second.protocol_name) == ("b", "stable", "range")
    assert sorted(move.partition for move in second.moves) == [("t", 2), ("t", 3)]
    assert [fact.generation_id for fact in world.world.facts if isinstance(fact, AssignmentStored)] == [2, 3]


def test_a_member_reaches_the_epoch_of_the_target_and_not_the_group_epoch() -> None:
    """K3: the group epoch is ahead while the interval between two targets lasts (K2)."""
    world = GroupWorld({"group_consumer_assignment_interval_ms": 1_000}, t=2)
    a = world.member("a").joins("t", assignor="range")
    world.world.advance(1_000)
    b = world.member("b").joins("t", assignor="range", expect={})
    world.member("c").joins("t", assignor="range", expect={})
    world.expect("Assigning", 4, 3)
    a.beats(expect={"t": [0]}).gives_up()
    b.beats(expect={"t": [1]})
    world.expect("Assigning", 4, 3)
    assert (a.epoch, b.epoch) == (3, 3)
    assert world.group.members["b"].assigned == {world.image.topics["t"].id: {1: 3}}
