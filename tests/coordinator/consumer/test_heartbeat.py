"""K1 to K10: epochs, the checks of a heartbeat, and its answer."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.consumer.group_world import GroupWorld, pair
from coterie.coordinator.consumer.heartbeat import heartbeat_refusal
from coterie.facts import Cause, MemberExpired, RebalanceStarted
from coterie.protocol.messages import ConsumerGroupHeartbeat
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings


def test_the_first_member_gets_everything_at_epoch_2() -> None:
    """K1: a new group starts at 1 in memory."""
    world = GroupWorld(t=2)
    a = world.member("a").joins("t", expect={"t": [0, 1]})
    assert a.epoch == 2
    world.expect("Stable", 2)


def test_a_first_member_without_topics_sees_epoch_1() -> None:
    """K1: and nothing but the member is written."""
    world = GroupWorld(t=2)
    a = world.member("a").joins(expect={})
    assert a.epoch == 1
    world.expect("Stable", 1)
    assert [record.type for record in world.records()] == [5, 8]


@pytest.mark.parametrize(
    ("said", "epoch"),
    [
        ({"topics": ["t", "t"]}, 2),
        ({"topics": ["u", "t"]}, 3),
        ({"topics": []}, 3),
        ({"rebalance_timeout_ms": 1}, 2),
        ({"rack_id": "r"}, 2),
        ({"assignor": "range"}, 2),
        ({"pattern": ""}, 2),
    ],
)
def test_the_group_epoch_is_bumped_by_another_set_of_topics_alone(said: dict[str, Any], epoch: int) -> None:
    """K1, K7: order and repetition do not matter, nor do timeouts, rack or assignor."""
    world = GroupWorld(t=2, u=1)
    world.member("a").joins("t").beats(**said)
    assert world.group.group_epoch == epoch


def test_the_target_is_computed_once_in_an_interval() -> None:
    """K2: until then members work with the old target, and a newcomer gets its epoch and nothing."""
    world = GroupWorld({"group_consumer_assignment_interval_ms": 1_000}, t=2)
    a = world.member("a").joins("t")
    b = world.member("b").joins("t", expect={})
    assert b.epoch == 2
    world.expect("Assigning", 3, 2)
    world.world.advance(999)
    a.beats()
    world.expect("Assigning", 3, 2)
    world.world.advance(1)
    b.beats()
    world.expect("Reconciling", 3)


def test_nothing_but_a_heartbeat_computes_the_target() -> None:
    """K2: after a leave the group is Assigning until a member heartbeats."""
    world = GroupWorld(t=2)
    a, b = pair(world)
    b.leaves()
    world.world.advance(3_000)
    world.expect("Assigning", 4, 3)
    a.beats(expect={"t": [0, 1]})
    world.expect("Stable", 4)


def test_a_group_goes_through_its_states() -> None:
    """K3, K4."""
    world = GroupWorld(t=2)
    a = world.member("a").joins("t")
    world.expect("Stable", 2)
    b = world.member("b").joins("t")
    world.expect("Reconciling", 3)
    a.beats().gives_up()
    assert a.epoch == 3
    world.expect("Reconciling", 3)
    b.beats()
    world.expect("Stable", 3)
    a.leaves()
    world.expect("Assigning", 4, 3)
    b.leaves()
    world.expect("Empty", 5, 3)
    assert b.heard is not None
    assert (b.heard.member_epoch, b.heard.heartbeat_interval_ms, b.heard.assignment) == (-1, 0, None)


ORDER: list[dict[str, Any]] = [
    {"member_id": ""},
    {"group_id": ""},
    {"instance_id": ""},
    {"rack_id": ""},
    {"rebalance_timeout_ms": -1},
    {"owned": None},
    {"topics": None},
    {"assignor": "best"},
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_a_request_is_checked_in_kafkas_order(first: int) -> None:
    """K5: of several mistakes the first is told."""
    good = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 9, "topics": [], "owned": {}}
    settings = GroupCoordinatorSettings()
    alone = heartbeat_refusal(ConsumerGroupHeartbeat(0, **{**good, **ORDER[first]}), settings)
    assert alone is not None
    for later in ORDER[first + 1 :]:
        both = ConsumerGroupHeartbeat(0, **{**good, **ORDER[first], **later})
        assert heartbeat_refusal(both, settings) == alone


def test_an_error_answer_has_nothing_else() -> None:
    """K5."""
    answer = GroupWorld().member("a").says(3, expect="GROUP_ID_NOT_FOUND").heard
    assert answer is not None
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (None, 0, 0)
    assert answer.assignment is None


def test_a_full_group_is_told_before_an_unknown_member() -> None:
    """K6: except for a leave."""
    world = GroupWorld({"group_consumer_max_size": 1}, t=1)
    a = world.member("a").joins("t")
    world.member("b").joins("t", expect="GROUP_MAX_SIZE_REACHED")
    world.member("b").says(2, expect="GROUP_MAX_SIZE_REACHED")
    world.member("b").leaves(expect="UNKNOWN_MEMBER_ID")
    a.beats()


def test_a_bad_expression_leaves_no_group_behind() -> None:
    """K6: and a live member keeps its subscription."""
    world = GroupWorld(t=1)
    world.member("a").joins("t", pattern="(?=a)", expect="INVALID_REGULAR_EXPRESSION")
    assert world.world.consumer_group("g") is None
    a = world.member("a").joins("t")
    a.beats(pattern="[", expect="INVALID_REGULAR_EXPRESSION")
    a.beats()
    assert world.group.members["a"].metadata.pattern == ""


def test_an_expression_is_resolved_after_the_answer() -> None:
    """K7: the first answer has epoch 1 and nothing; the whole name must match."""
    world = GroupWorld(orders=2, orders2=1, orders22=1, other=1)
    a = world.member("a").joins(pattern="orders.", expect={})
    assert a.epoch == 1
    world.world.advance(1)
    a.beats(expect={"orders2": [0]})
    b = world.member("b").joins(pattern="orders.", assignor="range", expect={})
    assert b.epoch == 3  # it is resolved already: a bump at once


def test_a_group_resolves_every_ten_seconds_at_most() -> None:
    """K7: a second expression waits for the first heartbeat after that, its result for the one after."""
    world = GroupWorld(t=1, u=1)
    a = world.member("a").joins(pattern="t")
    world.world.advance(1)
    a.beats(expect={"t": [0]})
    a.beats(pattern="u", owned={})
    a.beats(expect=None)
    world.world.advance(1)
    a.beats(expect={"u": [0]})
    world.image.create("u2", 1)
    b = world.member("b").joins(pattern="u.*")
    world.world.advance(9_000)
    b.beats()
    world.world.advance(1)
    assert "u.*" not in world.group.resolved
    world.world.advance(1_100)
    b.beats()
    world.world.advance(1)
    assert list(world.group.resolved["u.*"].topics) == ["u", "u2"]


def test_a_dropped_expression_takes_its_topics_away_at_once() -> None:
    """K7."""
    world = GroupWorld(t=1, u=1)
    a = world.member("a").joins("u", pattern="t")
    world.world.advance(1)
    a.beats(expect={"t": [0], "u": [0]})
    a.beats(pattern="", expect={"u": [0]})
    assert world.group.resolved == {}


@pytest.mark.parametrize("epoch", [1, 2, 4, 5])
def test_a_wrong_epoch_is_fenced_and_changes_nothing(epoch: int) -> None:
    """K8."""
    world = GroupWorld(t=2)
    a, _ = pair(world)
    before = len(world.world.log)
    a.beats(epoch=epoch, expect="FENCED_MEMBER_EPOCH")
    assert len(world.world.log) == before
    a.beats()


def test_the_epoch_before_is_accepted_if_an_answer_may_have_been_lost() -> None:
    """K8: what it owns must be given, and be within its assignment."""
    world = GroupWorld(t=2)
    a, _ = pair(world)
    a.beats(epoch=2, owned={"t": [1]}, expect="FENCED_MEMBER_EPOCH")
    a.beats(epoch=1, owned={}, expect="FENCED_MEMBER_EPOCH")
    a.beats(epoch=2, owned={"t": [0]})
    a.beats(epoch=2, owned={})
    assert a.epoch == 3


def test_epoch_0_of_a_known_member_joins_again() -> None:
    """K8: same id and epoch, full assignment, no bump; what it had to give up is free at once."""
    world = GroupWorld(t=2)
    a, b = pair(world)
    a.joins("t", expect={"t": [0]})
    world.expect("Stable", 3)
    c = world.member("c").joins("t", assignor="range")
    a.beats()
    b.joins("t")
    c.beats()
    world.expect("Stable", 4)


def test_the_assignment_is_answered_if_it_changed_or_was_asked_for() -> None:
    """K9: by a join or a full request; null means that nothing has changed."""
    world = GroupWorld(t=1)
    a = world.member("a").joins("t", expect={"t": [0]})
    a.beats()
    assert a.heard is not None
    assert a.heard.assignment is None
    assert a.heard.heartbeat_interval_ms == 5_000
    a.beats(rebalance_timeout_ms=9, topics=["t"], owned={}, expect={"t": [0]})
    a.beats(rebalance_timeout_ms=9, pattern="", owned={}, expect={"t": [0]})


def test_a_silent_member_is_removed() -> None:
    """K10: a commit is no sign of life, a heartbeat is."""
    world = GroupWorld(t=2)
    a, b = pair(world)
    world.world.advance(44_000)
    a.beats()
    assert b.commits(1) == "NONE"
    world.world.advance(1_000)
    world.expect("Assigning", 4, 3)
    b.beats(expect="UNKNOWN_MEMBER_ID")
    assert isinstance(world.world.facts[-1], RebalanceStarted)
    assert world.world.facts[-1].cause is Cause.SESSION_EXPIRED
    assert MemberExpired(world.world.now_ms, "g", "b", 45_000, False) in world.world.facts


def test_the_config_of_a_group_wins() -> None:
    """K10, K29: session timeout, heartbeat interval and assignment interval."""
    world = GroupWorld(t=1)
    world.world.group_configs["g"] = {"consumer.session.timeout.ms": "100", "consumer.heartbeat.interval.ms": "50"}
    a = world.member("a").joins("t")
    assert a.heard is not None
    assert a.heard.heartbeat_interval_ms == 50
    world.world.advance(100)
    world.expect("Empty", 3, 2)
