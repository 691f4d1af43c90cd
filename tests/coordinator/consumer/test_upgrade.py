"""K24: a consumer member joins a classic group that has members."""

from __future__ import annotations

import pytest

from coordinator.consumer.group_world import GROUP, GroupWorld, classic_pair
from coterie.coordinator.classic import ClassicGroupState
from coterie.coordinator.classic.member_bytes import count_held
from coterie.errors import ErrorCode
from coterie.facts import GroupDied
from coterie.protocol.messages import (
    CommitPartition,
    DescribeConsumerGroup,
    GroupRecord,
    Heartbeat,
    JoinGroup,
    OffsetCommit,
    Protocol,
    TransactionMarker,
)
from coterie.protocol.offsets_topic import read_record
from coterie.protocol.subscription import (
    Assignment,
    Subscription,
    read_assignment,
    write_assignment,
    write_subscription,
)


def test_a_stable_classic_group_is_upgraded_while_its_members_own_what_they_had() -> None:
    """K24: epochs are the generation, then the join begins the next epoch."""
    world = GroupWorld(t=4)
    a, b = classic_pair(world)
    generation = a.generation
    z = world.member("z").joins("t", assignor="range", expect={})
    assert z.epoch == generation + 1
    world.expect("Reconciling", generation + 1)
    assert {member.epoch for member in world.group.members.values() if member.is_classic} == {generation}
    assert world.shares() == {a.id: {"t": [0, 1]}, b.id: {"t": [2, 3]}, "z": {}}
    described = world.ask(DescribeConsumerGroup(0, GROUP))
    assert {member.member_id: member.is_classic for member in described.members} == {a.id: True, b.id: True, "z": False}


def test_members_give_up_partitions_by_joining_again() -> None:
    """K24, K25: no partition has two owners on the way."""
    world = GroupWorld(t=3)
    a = world.classic("a").joins(id="", expect=None)
    world.world.advance(3_000)
    a.hears().syncs(give={a: {"t": [0, 1, 2]}})
    z = world.member("z").joins("t", assignor="range", expect={})
    a.beats("REBALANCE_IN_PROGRESS").joins().syncs({"t": [0, 1]})
    z.beats(expect=None)
    a.beats("REBALANCE_IN_PROGRESS").joins().syncs({"t": [0, 1]}).beats()
    z.beats(expect={"t": [2]})
    world.expect("Stable", 2)


def test_parked_joins_and_syncs_are_answered_when_the_group_is_upgraded() -> None:
    """K24: they have to join again, in PreparingRebalance and in CompletingRebalance."""
    world = GroupWorld(t=4)
    a, b = classic_pair(world)
    a.joins("t", "u", expect=None)
    assert world.classic_group.state is ClassicGroupState.PREPARING_REBALANCE
    world.member("z").joins("t")
    a.hears("REBALANCE_IN_PROGRESS")

    world = GroupWorld(t=4)
    a, b = classic_pair(world)
    a.joins("t", "u", expect=None)
    b.joins()
    assert world.classic_group.state is ClassicGroupState.COMPLETING_REBALANCE
    b.syncs()
    world.member("z").joins("t")
    b.hears("REBALANCE_IN_PROGRESS")
    assert set(world.group.members) == {a.id, b.id, "z"}


def test_the_first_rebalance_of_a_group_may_be_interrupted_by_an_upgrade() -> None:
    """K24: nobody is assigned anything yet."""
    world = GroupWorld(t=4)
    a = world.classic("a").joins(id="", expect=None)
    world.world.advance(3_000)
    a.hears()
    world.member("z").joins("t", expect={"t": [2, 3]}, assignor="range")
    a.beats("REBALANCE_IN_PROGRESS").joins().syncs()


def _refused(world: GroupWorld) -> str:
    before = world.classic_group.state, world.classic_group.generation_id, len(world.world.log)
    z = world.member("z").joins("t", expect="GROUP_ID_NOT_FOUND")
    after = world.classic_group.state, world.classic_group.generation_id, len(world.world.log)
    assert after == before
    assert z.heard is not None
    return z.heard.message or ""


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_the_policy_may_forbid_an_upgrade(policy: str) -> None:
    """K24: the group stays as it is, and the reason is said."""
    world = GroupWorld({"group_consumer_migration_policy": policy}, t=4)
    a, _ = classic_pair(world)
    assert "group.consumer.migration.policy" in _refused(world)
    a.beats()


def test_a_group_that_is_too_large_is_not_upgraded() -> None:
    """K24."""
    world = GroupWorld({"group_consumer_max_size": 1}, t=4)
    classic_pair(world)
    assert "group.consumer.max.size" in _refused(world)


def test_a_group_of_another_protocol_type_is_not_upgraded() -> None:
    """K24."""
    world = GroupWorld(t=4)
    world.classic("a").joins(id="", type="connect", expect=None)
    world.world.advance(3_000)
    assert "connect" in _refused(world)


def test_assignments_that_cannot_be_carried_over_refuse_an_upgrade() -> None:
    """K24: user data, bytes that cannot be read, and a partition that two members own."""
    world = GroupWorld(t=4)
    a, b = classic_pair(world)
    group = world.classic_group
    group.assign(group.members[a.id], write_assignment(Assignment({"t": [0]}, b"data")))
    assert "user data" in _refused(world)
    group.assign(group.members[a.id], b"\0\1\0")
    assert "int32" in _refused(world)
    group.assign(group.members[a.id], write_assignment(Assignment({"t": [0, 2]})))
    assert "two members" in _refused(world)
    b.beats()


def test_a_heartbeat_with_another_epoch_upgrades_nothing() -> None:
    """K24."""
    world = GroupWorld(t=4)
    a, _ = classic_pair(world)
    for epoch in (1, -1):
        world.member("z").says(epoch, expect="GROUP_ID_NOT_FOUND")
    world.member("z").joins("t", expect="INVALID_REGULAR_EXPRESSION", pattern="(?=a)")
    a.beats()
    assert world.classic_group.held_bytes == count_held(world.classic_group) == world.world.shard.held_in_all.total


def test_a_static_classic_member_is_replaced_by_a_consumer_member_in_the_upgrade() -> None:
    """K14, K24: with the same topics there is no new epoch."""
    world = GroupWorld(t=4)
    a = world.classic("a", "i").joins(id="", expect=None)
    world.world.advance(3_000)
    a.hears().syncs(give={a: {"t": [0, 1, 2, 3]}})
    z = world.member("z", "i").joins("t", expect={"t": [0, 1, 2, 3]})
    assert z.epoch == a.generation
    a.beats("FENCED_INSTANCE_ID")


def test_an_upgrade_is_one_write_and_survives_a_crash() -> None:
    """K24, K27: the tombstone of the classic group comes first; a crash in between leaves the classic group."""
    world = GroupWorld(t=4)
    a, b = classic_pair(world)
    at = len(world.world.log)
    world.member("z").joins("t", assignor="range")
    first = read_record(world.world.log[at].key, world.world.log[at].value)
    assert isinstance(first, GroupRecord)
    assert first.value is None
    kinds = [record.type for record in world.records(at)]
    assert kinds[:8] == [5, 5, 3, 7, 7, 6, 8, 8]
    shares = world.shares()
    world.world.crash()
    assert world.shares() == shares
    a.beats("REBALANCE_IN_PROGRESS")

    world = GroupWorld(t=4)
    a, b = classic_pair(world)
    world.world.holds_writes = True
    z = world.member("z").joins("t")
    assert z.heard is None
    world.world.holds_writes = False
    world.world.crash()
    a.beats()
    b.beats()
    assert world.world.consumer_group(GROUP) is None


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance"])
def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group(state: str) -> None:
    """K24, K27: in every state its members go on, and so do their timers."""
    world = GroupWorld(t=4)
    a, b = classic_pair(world)
    if state != "Stable":
        a.joins("t", "u", expect=None)
    if state == "CompletingRebalance":
        b.joins("t", "u")
        a.hears()
    world.world.holds_writes = True
    z = world.member("z").joins("t")
    assert world.world.consumer_group(GROUP) is not None
    world.world.end_write(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.world.holds_writes = False
    assert world.world.replies[world.world._tokens].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert z.heard is None
    assert world.world.shard.held_in_all.total == count_held(world.classic_group)
    if state == "Stable":
        a.beats()
        world.world.advance(29_999)
        assert set(world.classic_group.members) == {a.id, b.id}
    else:
        assert world.classic_group.state is ClassicGroupState.PREPARING_REBALANCE
        a.joins("t", "u", expect=None)
        b.joins("t", "u")
        a.hears()
    world.world.advance(30_000)
    if state == "Stable":
        assert world.classic_group.members == {}


def test_a_coordinator_that_moves_during_an_upgrade_leaves_what_is_durable() -> None:
    """K27."""
    world = GroupWorld(t=4)
    a, _ = classic_pair(world)
    world.world.holds_writes = True
    world.member("z").joins("t")
    world.world.move_coordinator()
    world.world.holds_writes = False
    assert world.world.replies[world.world._tokens].error is ErrorCode.NOT_COORDINATOR
    a.beats()
    assert world.world.shard.held_in_all.total == count_held(world.classic_group)


def test_offsets_of_an_open_transaction_survive_an_upgrade_and_a_load() -> None:
    """K24: what is committed later counts, as it would without the upgrade."""
    world = GroupWorld(t=4)
    classic_pair(world)
    world.ask(OffsetCommit(0, GROUP, "", None, -1, [CommitPartition("t", 3, 9)], producer_id=5, producer_epoch=0))
    world.member("z").joins("t")
    world.world.crash()
    world.ask(TransactionMarker(0, 5, 0, committed=True))
    assert world.group.offsets["t"][3].offset == 9
    assert not [fact for fact in world.world.facts if isinstance(fact, GroupDied)]


def test_members_of_an_upgraded_group_expire_by_their_own_session_timeout() -> None:
    """K25."""
    world = GroupWorld(t=4)
    a, b = classic_pair(world)
    z = world.member("z").joins("t")
    world.world.advance(29_999)
    assert len(world.group.members) == 3
    a.beats("REBALANCE_IN_PROGRESS")
    world.world.advance(1)
    assert set(world.group.members) == {a.id, "z"}
    b.beats("UNKNOWN_MEMBER_ID")
    z.beats()


def test_a_protocol_that_is_not_used_may_have_any_bytes() -> None:
    """K24 to K26: upgrade, sync and downgrade look at them only for the version of the assignment."""
    world = GroupWorld(t=4)
    subscription = write_subscription(Subscription(["t"], version=1))
    protocols = [Protocol("odd", b""), Protocol("range", subscription)]
    requests = [
        JoinGroup(0, GROUP, "", None, "consumer", [protocols[order] for order in orders], 30_000, 60_000, fresh)
        for orders, fresh in (([0, 1], "a"), ([1], "b"))
    ]
    for request in requests:
        request.needs_member_id = False
        world.ask(request)
    world.world.advance(10_000)
    joined = [world.world.replies[request.token] for request in requests]  # type: ignore[index]
    assert {answer.protocol_name for answer in joined} == {"range"}
    z = world.member("z").joins("t", assignor="range")
    member_id = joined[0].member_id
    assert world.ask(Heartbeat(0, GROUP, member_id, None, 1)) is ErrorCode.REBALANCE_IN_PROGRESS
    again = JoinGroup(0, GROUP, member_id, None, "consumer", protocols, 30_000, 60_000, "c")
    assert world.ask(again).error is ErrorCode.UNKNOWN_SERVER_ERROR
    z.leaves()
    assert read_assignment(world.classic_group.members[member_id].assignment).version == 1


def test_a_newcomer_that_does_not_know_the_last_protocol_is_upgraded_with_the_others() -> None:
    """K24: it has joined for the next rebalance, by its own subscription."""
    world = GroupWorld(t=4)
    a = world.classic("a").joins(id="", protocols=("range", "sticky"), expect=None)
    world.world.advance(3_000)
    a.hears().syncs(give={a: {"t": [0, 1, 2, 3]}})
    b = world.classic("b").joins(id="", protocols=("sticky",), expect=None)
    world.member("z").joins("t", assignor="range")
    b.hears("REBALANCE_IN_PROGRESS")
    assert len(world.group.members) == 3
