"""K25: classic members inside of a consumer group."""

from __future__ import annotations

import pytest

from coordinator.consumer.group_world import GROUP, GroupWorld, mixed_pair
from coterie.coordinator.consumer import MemberState
from coterie.coordinator.consumer.states import ON_CLASSIC_HEARTBEAT, ON_CLASSIC_SYNC, ClassicSituation
from coterie.errors import ErrorCode
from coterie.facts import MemberExpired, MemberMissedJoin, MemberMissedSync
from coterie.protocol.messages import LeaveGroup, LeavingMember, OffsetFetch
from coterie.protocol.subscription import read_assignment


def test_a_join_is_answered_at_once_without_leader_and_members() -> None:
    """K25: the generation is the member epoch, the protocol the first of its own list."""
    world = GroupWorld(t=4)
    world.member("z").joins("t", assignor="range")
    a = world.classic("a").joins(protocols=("best", "range"))
    answer = world.world.replies[world.world._tokens]
    assert (answer.leader_id, answer.members, answer.protocol_name) == ("", (), "best")
    assert answer.generation_id == a.generation == world.group.members["a"].epoch == 3


def test_a_newcomer_is_given_an_id_and_nothing_is_pending() -> None:
    """K25: any id that nobody has is adopted."""
    world = GroupWorld(t=4)
    world.member("z").joins("t")
    world.classic("a").joins(id="", needs_member_id=True, expect="MEMBER_ID_REQUIRED")
    assert set(world.group.members) == {"z"}
    world.classic("anything").joins(needs_member_id=True)
    assert set(world.group.members) == {"z", "anything"}


def test_an_id_that_the_group_makes_is_a_uuid_in_base64() -> None:
    """K25."""
    world = GroupWorld(t=4)
    world.member("z").joins("t")
    a = world.classic("a")
    a.id = "12345678-1234-1234-1234-123456789abc"
    a.joins(id="", needs_member_id=True, expect="MEMBER_ID_REQUIRED")
    world.classic("b").joins(id="")
    assert "fresh-b" in world.group.members


def test_static_members_are_not_adopted() -> None:
    """K25: an instance with an id must be the holder."""
    world = GroupWorld(t=4)
    world.member("z", "i").joins("t")
    world.classic("a", "j").joins(expect="UNKNOWN_MEMBER_ID")
    world.classic("a", "i").joins(expect="FENCED_INSTANCE_ID")
    world.classic("a", "j").joins(id="")
    assert set(world.group.static) == {"i", "j"}


def test_joins_that_are_refused_leave_the_group_unchanged() -> None:
    """K25: size and protocols are looked at before an id is given, the subscription last."""
    world = GroupWorld({"group_consumer_max_size": 3}, t=4)
    mixed_pair(world)
    b = world.classic("b")
    b.joins(type="connect", id="", needs_member_id=True, expect="INCONSISTENT_GROUP_PROTOCOL")
    b.joins(protocols=(), expect="INCONSISTENT_GROUP_PROTOCOL")
    b.joins(protocols=("other",), expect="INCONSISTENT_GROUP_PROTOCOL")
    b.joins(protocols=("range", "range"), expect="INCONSISTENT_GROUP_PROTOCOL")
    b.joins(metadata=b"\0\1\0", expect="UNKNOWN_SERVER_ERROR")
    b.joins(session=1, expect="INVALID_SESSION_TIMEOUT")
    assert set(world.group.members) == {"a", "z"}
    b.joins(protocols=("other", "range"))
    world.classic("c").joins(id="", needs_member_id=True, expect="GROUP_MAX_SIZE_REACHED")


def test_a_policy_of_disabled_refuses_classic_members() -> None:
    """K24, K25."""
    world = GroupWorld({"group_consumer_migration_policy": "disabled"}, t=4)
    world.member("z").joins("t")
    world.classic("a").joins(expect="INCONSISTENT_GROUP_PROTOCOL")


def test_what_each_situation_answers() -> None:
    """K25: the tables, walked by members that get into each situation."""
    world = GroupWorld(t=4)
    a, z = mixed_pair(world)
    seen = {ClassicSituation.UP_TO_DATE}
    a.beats().syncs({"t": [0, 1]})
    y = world.member("y").joins("t", assignor="range")
    seen.add(ClassicSituation.BEHIND)  # of two, a keeps both: it has only to join
    a.beats("REBALANCE_IN_PROGRESS").syncs("REBALANCE_IN_PROGRESS")
    a.joins()
    z.beats()
    z.gives_up()
    y.beats()
    z.leaves()
    y.leaves()
    assert world.world.consumer_group(GROUP) is None

    world = GroupWorld(t=4)
    z = world.member("z").joins("t", assignor="range")
    a = world.classic("a").joins()
    assert world.group.members["a"].state.name == "UNRELEASED_PARTITIONS"
    a.beats().syncs({})
    z.beats()
    z.gives_up()
    seen.add(ClassicSituation.CAN_TAKE_ALL)
    a.beats("REBALANCE_IN_PROGRESS").syncs({})
    a.joins().syncs({"t": [0, 1]})
    world.member("0").joins("t", assignor="range")
    a.beats("REBALANCE_IN_PROGRESS").joins()
    assert world.group.members["a"].state.name == "UNREVOKED_PARTITIONS"
    seen.add(ClassicSituation.MUST_GIVE_UP)
    a.beats("REBALANCE_IN_PROGRESS").syncs({})
    assert seen == set(ON_CLASSIC_HEARTBEAT) == set(ON_CLASSIC_SYNC)


def test_a_part_of_what_a_member_waits_for_is_not_enough() -> None:
    """K25: it is told to join when all of it is free."""
    world = GroupWorld(t=6)
    y = world.member("y").joins("t", assignor="range")
    z = world.member("z").joins("t", assignor="range")
    y.beats().gives_up()
    z.beats()
    between = world.classic("yy").joins()
    y.beats().gives_up()
    between.beats()
    z.beats().gives_up()
    between.beats("REBALANCE_IN_PROGRESS").joins().syncs({"t": [2, 3]})


def test_a_group_epoch_that_is_ahead_is_not_enough() -> None:
    """K2, K25: a heartbeat never computes the target."""
    world = GroupWorld(t=4)
    a, _ = mixed_pair(world)
    y = world.member("y").joins("t", assignor="range")
    a.joins()
    y.leaves()
    assert world.group.group_epoch == world.group.assignment_epoch + 1
    a.beats()
    assert world.group.group_epoch == world.group.assignment_epoch + 1


def test_requests_with_wrong_ids_and_generations() -> None:
    """K25: a consumer member is unknown to the classic requests."""
    world = GroupWorld(t=4)
    a, _ = mixed_pair(world)
    for wrong in (a.generation + 1, a.generation - 1):
        a.beats("ILLEGAL_GENERATION", generation=wrong)
        a.syncs("ILLEGAL_GENERATION", generation=wrong)
    a.beats("UNKNOWN_MEMBER_ID", instance="i")
    a.syncs("INCONSISTENT_GROUP_PROTOCOL", protocol_type="connect", protocol_name="range")
    a.syncs("INCONSISTENT_GROUP_PROTOCOL", protocol_type="consumer", protocol_name="best")
    for name in ("z", "stranger"):
        other = world.classic(name)
        other.generation = a.generation
        other.beats("UNKNOWN_MEMBER_ID").syncs("UNKNOWN_MEMBER_ID")


def test_an_assignment_has_the_version_of_the_subscription() -> None:
    """K25."""
    for version in (0, 3):
        world = GroupWorld(t=4)
        world.member("z").joins("t")
        world.classic("a").joins(version=version).syncs()
        assert read_assignment(world.world.replies[world.world._tokens].assignment).version == version


def test_a_subscription_of_version_0_owns_nothing() -> None:
    """K25: what it has to give up is free at once."""
    world = GroupWorld(t=4)
    a, _ = mixed_pair(world)
    world.member("0").joins("t", assignor="range")
    a.joins(version=0)
    assert world.group.members["a"].state is not MemberState.UNREVOKED_PARTITIONS


def test_commits_and_fetches_of_classic_members() -> None:
    """K19, K20: ILLEGAL_GENERATION, where a consumer member hears STALE_MEMBER_EPOCH."""
    world = GroupWorld(t=4)
    a, _ = mixed_pair(world)
    assert a.commits() == "NONE"
    assert a.commits(a.generation + 1) == "ILLEGAL_GENERATION"
    assert a.commits(a.generation - 1) == "ILLEGAL_GENERATION"
    fetch = OffsetFetch(0, GROUP, [("t", [0])], member_id="a", member_epoch=a.generation - 1)
    assert world.ask(fetch).error is ErrorCode.ILLEGAL_GENERATION


def test_a_member_changes_its_protocol_under_its_own_id() -> None:
    """K25: both ways, without a new epoch; the vote for an assignor stays."""
    world = GroupWorld(t=4)
    a, z = mixed_pair(world)
    epoch = world.group.group_epoch
    world.classic("z").joins(owned=z.owned).syncs(z.owned)
    assert world.group.members["z"].is_classic
    assert world.group.members["z"].metadata.server_assignor == "range"
    a_as_consumer = world.member("a")
    a_as_consumer.beats(epoch=a.generation)
    assert not world.group.members["a"].is_classic
    a.beats("UNKNOWN_MEMBER_ID")
    world.expect("Stable", epoch)


def test_a_classic_join_drops_the_regular_expression() -> None:
    """K25: a classic member subscribes to names alone."""
    world = GroupWorld(t=4)
    world.member("z").joins(pattern="t")
    world.world.advance(1)
    world.member("y").joins("t")
    world.classic("z").joins()
    assert world.group.members["z"].metadata.pattern == ""
    assert not world.group.resolved


def test_a_static_member_is_replaced_by_a_member_of_the_other_protocol() -> None:
    """K14, K25: at once, live or not, with its assignment."""
    world = GroupWorld(t=4)
    world.member("y").joins("t", assignor="range")
    a = world.classic("a", "i").joins(id="")
    world.member("b", "i").joins("t", assignor="range")
    a.beats("FENCED_INSTANCE_ID")
    epoch = world.group.group_epoch
    world.classic("c", "i").joins(id="")
    assert set(world.group.members) == {"y", "fresh-c"}
    assert world.group.group_epoch == epoch
    world.world.advance(29_999)
    assert "fresh-c" in world.group.members


def test_a_member_that_was_told_must_join_in_time() -> None:
    """K25: counted from the first time it was told, although it heartbeats."""
    world = GroupWorld(t=4)
    world.member("z").joins("t", assignor="range")
    a = world.classic("a").joins(timeout=5_000).syncs()
    world.member("y").joins("t", assignor="range")
    a.beats("REBALANCE_IN_PROGRESS")
    world.world.advance(4_999)
    a.beats("REBALANCE_IN_PROGRESS")
    world.world.advance(1)
    a.beats("UNKNOWN_MEMBER_ID")
    assert [fact.member_id for fact in world.world.facts if isinstance(fact, MemberMissedJoin)] == ["a"]


def test_a_member_that_joins_in_time_stays_and_must_sync_in_time() -> None:
    """K25."""
    world = GroupWorld(t=4)
    z = world.member("z").joins("t", assignor="range")
    a = world.classic("a").joins(timeout=5_000).syncs()
    world.member("y").joins("t", assignor="range")
    a.beats("REBALANCE_IN_PROGRESS")
    world.world.advance(4_999)
    a.joins(timeout=5_000)
    world.world.advance(4_999)
    assert "a" in world.group.members
    a.syncs()
    world.world.advance(5_000)
    assert "a" in world.group.members
    a.joins(timeout=5_000)
    world.world.advance(5_000)
    assert "a" not in world.group.members
    assert [fact.member_id for fact in world.world.facts if isinstance(fact, MemberMissedSync)] == ["a"]
    z.beats()


def test_a_member_that_turns_consumer_need_not_sync() -> None:
    """K25: it is removed neither for a join nor for a sync that it does not know."""
    world = GroupWorld(t=4)
    world.member("z").joins("t", assignor="range")
    a = world.classic("a").joins(timeout=5_000)
    member = world.member("a")
    member.beats(epoch=a.generation)
    world.world.advance(6_000)
    member.beats()


def test_the_session_timeout_of_a_classic_member_is_its_own() -> None:
    """K25: a load gives it the time of the group once (K27)."""
    world = GroupWorld(t=4)
    z = world.member("z").joins("t", assignor="range")
    a = world.classic("a").joins(session=10_000).syncs()
    world.world.advance(9_999)
    a.beats()
    world.world.advance(10_000)
    a.beats("UNKNOWN_MEMBER_ID")
    expired = [fact for fact in world.world.facts if isinstance(fact, MemberExpired)]
    assert [(fact.member_id, fact.session_timeout_ms) for fact in expired] == [("a", 10_000)]
    a.joins(session=10_000).syncs()
    world.world.crash()
    world.world.advance(44_999)
    z.beats()
    assert "a" in world.group.members
    world.world.advance(1)
    assert world.world.consumer_group(GROUP) is not None
    assert "a" not in world.group.members


def test_leave_group_removes_members_of_both_protocols() -> None:
    """K25: several are one bump, none found is none."""
    world = GroupWorld(t=4)
    mixed_pair(world)
    epoch = world.group.group_epoch
    assert world.classic("stranger").leaves() == "UNKNOWN_MEMBER_ID"
    assert world.group.group_epoch == epoch
    answer = world.ask(LeaveGroup(0, GROUP, [LeavingMember("a"), LeavingMember("z"), LeavingMember("a")]))
    assert [each.error.name for each in answer.members] == ["NONE", "NONE", "NONE"]
    world.expect("Empty", epoch + 1, epoch)


@pytest.mark.parametrize("what", ["join", "sync"])
def test_a_request_that_waits_for_a_write_that_fails_is_refused(what: str) -> None:
    """K27: and what it changed is taken back."""
    world = GroupWorld(t=4)
    a, _ = mixed_pair(world)
    world.world.holds_writes = True
    a.joins("t", "u", expect=None)
    if what == "sync":
        a.syncs(generation=world.group.members["a"].epoch)
    world.world.end_write(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.world.holds_writes = False
    answers = [world.world.replies[token] for token in (world.world._tokens, world.world._tokens - 1)]
    refused = answers if what == "sync" else answers[:1]
    assert {answer.error for answer in refused} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert world.group.members["a"].metadata.topics == ("t",)
    a.beats()
