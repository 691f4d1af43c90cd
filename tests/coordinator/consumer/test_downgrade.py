"""K26: a consumer group in which only classic members are left becomes a classic group."""

from __future__ import annotations

import pytest

from coordinator.consumer.group_world import GROUP, ClassicMember, ConsumerMember, GroupWorld, classic_pair, mixed_pair
from coterie.coordinator.classic import ClassicGroupState
from coterie.coordinator.classic.member_bytes import count_held
from coterie.errors import ErrorCode
from coterie.facts import Cause, RebalanceStarted
from coterie.protocol.messages import LeaveGroup, LeavingMember
from coterie.protocol.subscription import read_assignment


def _leaves(world: GroupWorld, z: ConsumerMember) -> None:
    z.leaves()


def _leaves_by_leave_group(world: GroupWorld, _z: ConsumerMember) -> None:
    world.ask(LeaveGroup(0, GROUP, [LeavingMember("z")]))


def _expires(world: GroupWorld, _z: ConsumerMember) -> None:
    for _ in range(3):
        world.world.advance(15_000)
        if world.world.consumer_group(GROUP):
            world.classic("a").beats(generation=world.group.members["a"].epoch)


@pytest.mark.parametrize("goes", [_leaves, _leaves_by_leave_group, _expires])
def test_the_group_is_classic_again_when_the_last_consumer_member_is_gone(goes: object) -> None:
    """K26: the generation is the group epoch, without a bump; assignments are the targets; a rebalance begins."""
    world = GroupWorld(t=4)
    a, z = mixed_pair(world)
    epoch = world.group.group_epoch
    goes(world, z)  # type: ignore[operator]
    group = world.classic_group
    assert (group.state, group.generation_id) == (ClassicGroupState.PREPARING_REBALANCE, epoch)
    assert dict(read_assignment(group.members["a"].assignment).partitions) == {"t": [0, 1]}
    a.beats("REBALANCE_IN_PROGRESS").joins()
    a.syncs({"t": [0, 1, 2, 3]}, give={a: {"t": [0, 1, 2, 3]}})
    assert a.generation == epoch + 1


def test_a_consumer_member_that_does_not_give_up_in_time_may_be_the_last() -> None:
    """K12, K26."""
    world = GroupWorld(t=4)
    z = world.member("z").joins("t", assignor="range", timeout=2_000)
    world.classic("a").joins().syncs()
    z.beats()
    world.world.advance(2_000)
    assert world.classic_group.state is ClassicGroupState.PREPARING_REBALANCE
    causes = [fact.cause for fact in world.world.facts if isinstance(fact, RebalanceStarted)]
    assert causes[-1] is Cause.REVOCATION_TIMEOUT


def test_members_behind_the_generation_hear_it() -> None:
    """K26: ILLEGAL_GENERATION, then they join."""
    world = GroupWorld(t=4)
    a, b = classic_pair(world)
    world.member("z").joins("t", assignor="range").leaves()
    for member in (a, b):
        member.beats("ILLEGAL_GENERATION")
    a.joins(expect=None)
    b.joins()
    a.hears()


def test_a_group_whose_members_turned_classic_waits_for_one_to_go() -> None:
    """K25, K26."""
    world = GroupWorld(t=4)
    a, z = mixed_pair(world)
    world.classic("z").joins(owned=z.owned).syncs()
    world.expect("Stable", world.group.group_epoch)
    assert world.classic("z").leaves() == "NONE"
    a.beats("REBALANCE_IN_PROGRESS")
    assert set(world.classic_group.members) == {"a"}


def test_nobody_left_is_an_empty_consumer_group() -> None:
    """K26."""
    world = GroupWorld(t=4)
    a, z = mixed_pair(world)
    a.leaves()
    z.leaves()
    assert world.group.state.value == "Empty"


@pytest.mark.parametrize(
    "settings",
    [
        {"group_consumer_migration_policy": "upgrade"},
        {"group_max_size": 1},
    ],
)
def test_a_downgrade_may_be_forbidden(settings: dict[str, object]) -> None:
    """K26: then it stays a consumer group of classic members."""
    world = GroupWorld(settings, t=4)
    a, z = mixed_pair(world)
    world.classic("b").joins()
    z.leaves()
    assert set(world.group.members) == {"a", "b"}
    assert world.group.group_epoch == world.group.assignment_epoch + 1
    a.beats("REBALANCE_IN_PROGRESS")


def test_a_static_replacement_that_changes_nothing_leaves_the_group_stable() -> None:
    """K26: a sync brings the assignment."""
    world = GroupWorld(t=4)
    world.member("z", "i").joins("t", assignor="range")
    epoch = world.group.group_epoch
    a = world.classic("a", "i").joins(id="")
    group = world.classic_group
    assert (group.state, group.generation_id, a.generation) == (ClassicGroupState.STABLE, epoch, epoch)
    a.syncs({"t": [0, 1, 2, 3]}).beats()
    assert a.commits() == "NONE"


def test_a_static_replacement_with_other_topics_is_followed_by_a_rebalance() -> None:
    """K26: the generation is the group epoch that was."""
    world = GroupWorld(t=4, u=1)
    world.member("z", "i").joins("t", assignor="range")
    epoch = world.group.group_epoch
    a = world.classic("a", "i").joins("u", id="")
    assert (world.classic_group.state, world.classic_group.generation_id) == (
        ClassicGroupState.PREPARING_REBALANCE,
        epoch,
    )
    assert a.generation == 0
    a.beats("ILLEGAL_GENERATION").joins("u")


def _downgraded_but_for_the_write() -> tuple[GroupWorld, ClassicMember, ConsumerMember]:
    world = GroupWorld(t=4)
    a, z = mixed_pair(world)
    world.world.holds_writes = True
    z.leaves()
    assert z.heard is None
    return world, a, z


def test_a_downgrade_survives_a_crash_when_it_is_durable() -> None:
    """K26, K27: one write; before it the consumer group returns, after it the classic one, Stable."""
    world, a, z = _downgraded_but_for_the_write()
    world.world.holds_writes = False
    world.world.crash()
    z.beats()
    a.beats()
    z.leaves()
    world.world.crash()
    assert world.world.consumer_group(GROUP) is None
    assert (world.classic_group.state, set(world.classic_group.members)) == (ClassicGroupState.STABLE, {"a"})
    a.beats().syncs({"t": [0, 1]})


def test_a_downgrade_that_cannot_be_written_changes_nothing() -> None:
    """K26, K27: the leave is refused, and the member that stays may leave again."""
    world, a, z = _downgraded_but_for_the_write()
    held = world.world.shard.held_in_all.total
    world.world.end_write(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.world.holds_writes = False
    assert world.world.replies[world.world._tokens].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.world.shard.held_in_all.total == world.group.held_bytes < held
    world.expect("Stable", world.group.group_epoch)
    z.beats()
    a.beats()
    z.leaves()
    assert world.world.shard.held_in_all.total == count_held(world.classic_group)


def test_an_expiry_whose_downgrade_cannot_be_written_is_tried_again() -> None:
    """K10, K26."""
    world = GroupWorld(t=4)
    a, _ = mixed_pair(world)
    world.world.advance(29_999)
    a.beats()
    world.world.holds_writes = True
    world.world.advance(15_001)
    world.world.end_write(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.world.holds_writes = False
    assert set(world.group.members) == {"a", "z"}
    a.beats()
    world.world.advance(29_999)
    a.beats()
    world.world.advance(15_001)
    assert set(world.classic_group.members) == {"a"}


def test_requests_wait_while_a_downgrade_is_written() -> None:
    """K26: a join goes to the group that follows; a heartbeat is answered by the one that is."""
    world, a, _ = _downgraded_but_for_the_write()
    a.beats()
    a.joins(expect=None)
    world.world.end_writes()
    world.world.holds_writes = False
    a.hears()
    assert a.generation == world.classic_group.generation_id


def test_a_static_replacement_that_cannot_be_written_is_taken_back() -> None:
    """K26, K27."""
    world = GroupWorld(t=4)
    z = world.member("z", "i").joins("t", assignor="range")
    world.world.holds_writes = True
    world.classic("a", "i").joins(id="", expect=None)
    world.world.end_write(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.world.holds_writes = False
    assert world.group.static == {"i": "z"}
    z.beats()
    world.world.advance(44_999)
    assert set(world.group.members) == {"z"}
    world.world.advance(1)
    assert world.group.members == {}


def test_what_waits_for_a_write_that_fails_is_not_written_either() -> None:
    """K27: a downgrade that follows from a change that failed fails with it."""
    world = GroupWorld(t=4)
    a, z = mixed_pair(world)
    world.world.holds_writes = True
    a.joins("t", "u", expect=None)
    z.leaves()
    world.world.end_write(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.world.holds_writes = False
    assert set(world.group.members) == {"a", "z"}
    a.beats()
    z.beats()


def test_a_coordinator_that_moves_during_a_downgrade_leaves_what_is_durable() -> None:
    """K27."""
    world, a, z = _downgraded_but_for_the_write()
    world.world.move_coordinator()
    world.world.holds_writes = False
    assert world.world.replies[world.world._tokens].error is ErrorCode.NOT_COORDINATOR
    a.beats()
    z.beats()
    assert world.world.shard.held_in_all.total == world.group.held_bytes
