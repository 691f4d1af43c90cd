"""K14, K15: static members."""

from __future__ import annotations

from coordinator.consumer.group_world import GROUP, GroupWorld
from coterie.facts import InstanceIdFenced, MemberReplaced
from coterie.protocol.messages import Heartbeat, JoinGroup, LeaveGroup, LeavingMember, Protocol, SyncGroup


def test_a_live_instance_is_not_taken_over() -> None:
    """K14: not even by its own member id."""
    world = GroupWorld(t=1)
    a = world.member("a", "i").joins("t")
    world.member("b", "i").joins("t", expect="UNRELEASED_INSTANCE_ID")
    a.joins("t", expect="UNRELEASED_INSTANCE_ID")
    a.beats()


def test_a_static_member_that_returns_takes_its_place() -> None:
    """K14: assignment and epoch, without a bump; what it got before counts as assigned at epoch 0."""
    world = GroupWorld(t=2)
    a = world.member("a", "i").joins("t")
    a.goes_away()
    assert a.heard is not None
    assert (a.heard.member_epoch, a.heard.heartbeat_interval_ms) == (-2, 0)
    world.expect("Reconciling", 2)
    b = world.member("b", "i").joins("t", expect={"t": [0, 1]})
    assert b.epoch == 2
    world.expect("Stable", 2)
    assert list(world.group.members) == ["b"]
    assert b.commits(epoch=1) == "NONE"
    assert any(isinstance(fact, MemberReplaced) for fact in world.world.facts)


def test_what_a_static_member_had_to_give_up_is_free_when_it_goes_away() -> None:
    """K14."""
    world = GroupWorld(t=2)
    a = world.member("a", "i").joins("t", assignor="range")
    b = world.member("b").joins("t", assignor="range")
    a.beats()
    a.goes_away()
    b.beats(expect={"t": [1]})
    assert world.shares() == {"a": {"t": [0]}, "b": {"t": [1]}}


def test_the_time_to_give_up_partitions_ends_when_a_static_member_goes_away() -> None:
    """K12, K14: it has given up what it had to, and is removed with its session only."""
    world = GroupWorld(t=2)
    a = world.member("a", "i").joins("t", assignor="range", timeout=1_500)
    world.member("b").joins("t", assignor="range")
    a.beats()
    a.goes_away()
    world.world.advance(2_000)
    assert set(world.group.members) == {"a", "b"}


def test_going_away_does_not_restart_the_session() -> None:
    """K14: nobody came back."""
    world = GroupWorld(t=1)
    a = world.member("a", "i").joins("t")
    world.world.advance(40_000)
    a.goes_away()
    world.world.advance(4_999)
    assert world.group.members
    world.world.advance(1)
    world.expect("Empty", 3, 2)


def test_other_requests_of_static_members() -> None:
    """K15."""
    world = GroupWorld(t=1)
    a = world.member("a", "i").joins("t")
    a.beats(instance_id="j", expect="UNKNOWN_MEMBER_ID")
    b = world.member("b", "i")
    b.says(2, instance_id="i", expect="FENCED_INSTANCE_ID")
    b.goes_away(expect="FENCED_INSTANCE_ID")
    b.says(-1, instance_id="i", expect="FENCED_INSTANCE_ID")
    a.beats()
    assert world.group.members["a"].metadata.instance_id == "i"
    a.goes_away().goes_away()
    a.says(2, instance_id="i", expect="FENCED_MEMBER_EPOCH")
    a.leaves()
    world.expect("Empty", 3, 2)


def test_a_member_may_become_static_while_it_reconciles() -> None:
    """A difference from Kafka, which forgets the member's target until the next epoch."""
    world = GroupWorld(t=2)
    a = world.member("a").joins("t", assignor="range")
    world.member("b").joins("t", assignor="range")
    a.beats()
    a.joins("t", instance_id="i", expect={"t": [0]})


def test_a_refused_instance_id_is_told_once_for_each_member() -> None:
    """K14: whoever repeats its request adds no fact, nor does the member that has the instance id."""
    world = GroupWorld(t=1)
    a = world.member("a", "i").joins("t")
    for _ in range(3):
        world.member("b", "i").joins("t", expect="UNRELEASED_INSTANCE_ID")
        world.member("c", "i").says(1, instance_id="i", expect="FENCED_INSTANCE_ID")
        world.member("d", "i").says(-1, instance_id="i", expect="FENCED_INSTANCE_ID")
        a.joins("t", expect="UNRELEASED_INSTANCE_ID")
    told = [fact for fact in world.world.facts if isinstance(fact, InstanceIdFenced)]
    assert [(fact.member_id, fact.error.name) for fact in told] == [
        ("b", "UNRELEASED_INSTANCE_ID"),
        ("c", "FENCED_INSTANCE_ID"),
        ("d", "FENCED_INSTANCE_ID"),
    ]
    assert {(fact.instance_id, fact.holder_id, fact.request) for fact in told} == {("i", "a", "ConsumerGroupHeartbeat")}


def test_classic_requests_with_the_instance_id_of_another_member_are_told() -> None:
    """K25: each request that a consumer group can refuse so."""
    world = GroupWorld(t=1)
    world.member("a", "i").joins("t")
    asked = [
        JoinGroup(0, GROUP, "b", "i", "consumer", [Protocol("range", b"")], 10_000, 10_000, "fresh"),
        SyncGroup(0, GROUP, "d", "i", 1),
        Heartbeat(0, GROUP, "e", "i", 1),
        LeaveGroup(0, GROUP, [LeavingMember("f", "i")]),
    ]
    for request in (*asked, *asked):
        world.ask(request)
    told = [fact for fact in world.world.facts if isinstance(fact, InstanceIdFenced)]
    assert [(fact.request, fact.member_id) for fact in told] == [
        ("JoinGroup", "b"),
        ("SyncGroup", "d"),
        ("Heartbeat", "e"),
        ("LeaveGroup", "f"),
    ]
