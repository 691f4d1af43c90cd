"""Rules 11-13: the assignment is on disk before anybody hears of it."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.coordinator.classic import ClassicGroupState
from coterie.errors import ErrorCode
from coterie.facts import AssignmentFailed, AssignmentStored, Cause, MemberMissedSync
from coterie.protocol.messages import SyncGroup
from coterie.stories import PARKED, Story, check_story
from coterie.stories.story import Actor


def completing(story: Story, *names: str, **options: Any) -> list[Actor]:
    """A group that has just been told its generation."""
    actors = [story.member(name).enters(**options) for name in names]
    while story.state is not ClassicGroupState.COMPLETING_REBALANCE:
        story.advance(ms=1_000)
    return actors


def test_nobody_is_answered_before_the_assignment_is_durable() -> None:
    """Rule 11."""
    check_story("""
        at_ms | who | says           | hears                            | group
        0     | a   | join old       | -                                | PreparingRebalance
        0     | b   | join old       | -                                | PreparingRebalance
        6000  |     |                | a: leads gen 1, b: follows gen 1 | CompletingRebalance
        6000  | b   | sync           | -                                | CompletingRebalance
        6000  | a   | sync a=01 b=02 | -                                | CompletingRebalance
        6005  |     | (on disk)      | a: 01, b: 02                     | Stable
    """)


def test_a_follower_that_syncs_first_waits_for_the_leader(group: Story) -> None:
    """Section 2: old brokers dropped it."""
    a, b = completing(group, "a", "b")
    b.syncs(expect=PARKED)
    a.syncs({"a": b"1", "b": b"2"}, expect=b"1".hex())
    assert b.answer.assignment == b"2"
    assert b.answer.protocol_name == "range"
    assert b.answer.protocol_type == "consumer"
    group.emitted(AssignmentStored, generation_id=1)


def test_only_the_leaders_list_counts(group: Story) -> None:
    """Rule 11: the last entry of a repeated member, no unknown ids, nothing for whoever was left out."""
    a, b = completing(group, "a", "b")
    b.syncs({"b": b"mine", "a": b"none"})
    group.world.send(
        SyncGroup(
            group.token_for(a), "g", a.member_id, None, 1, [(a.member_id, b"1"), ("ghost", b"x"), (a.member_id, b"2")]
        )
    )
    group.advance(ms=0)
    assert a.answer.assignment == b"2"
    assert b.answer.assignment == b""
    assert set(group.emitted(AssignmentStored).assignments) == {a.member_id, b.member_id}


def test_in_stable_everybody_hears_the_stored_assignment_again(group: Story) -> None:
    """Section 2: also the leader, whose new list is ignored."""
    a, b = group.stable("a", "b")
    a.syncs({"a": b"new", "b": b"new"}, expect=b"a".hex())
    b.syncs(expect=b"b".hex())


def test_a_second_sync_of_the_leader_does_not_overtake_its_first(group: Story) -> None:
    """Rules 10, 11: what is on disk and what members hear must be the same."""
    (a,) = completing(group, "a")
    group.hold_writes()
    a.syncs({"a": b"1"}, expect=PARKED)
    a.syncs({"a": b"2"}, expect=PARKED)
    group.end_writes()
    assert a.answer.assignment == b"1"
    group.crash()
    assert group.group.members[a.member_id].assignment == b"1"


@pytest.mark.parametrize(
    ("options", "heard"),
    [
        ({"gen": 0}, "ILLEGAL_GENERATION"),
        ({"id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"id": "nobody", "gen": 0}, "UNKNOWN_MEMBER_ID"),
        ({"instance": "i"}, "UNKNOWN_MEMBER_ID"),
        ({"type": "connect"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocol": "sticky"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocol": "sticky", "gen": 0}, "ILLEGAL_GENERATION"),
        ({"v5": True}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"v5": True, "id": "nobody"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"v5": True, "type": "consumer", "protocol": "range"}, b"a".hex()),
    ],
)
def test_a_sync_is_checked_in_kafkas_order(group: Story, options: dict[str, Any], heard: str) -> None:
    """Section 2, order of checks."""
    (a,) = group.stable("a")
    a.syncs(expect=heard, **options)


def test_a_sync_without_protocol_is_refused_even_before_its_group_id() -> None:
    """Section 2, order of checks."""
    story = Story(group_id="")
    story.member("a").syncs(v5=True, expect="INCONSISTENT_GROUP_PROTOCOL")
    story.member("a").syncs(expect="INVALID_GROUP_ID")


def test_a_failed_write_is_heard_by_all_and_starts_a_rebalance(group: Story) -> None:
    """Rule 11: assignments are cleared, the error is mapped."""
    a, b = completing(group, "a", "b")
    group.hold_writes()
    b.syncs()
    a.syncs({"a": b"1", "b": b"2"})
    group.end_writes(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert group.steps[-1].hears == "a: COORDINATOR_NOT_AVAILABLE, b: COORDINATOR_NOT_AVAILABLE"
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    assert all(m.assignment == b"" for m in group.group.members.values())
    assert group.rebalances[-1].cause is Cause.WRITE_FAILED
    group.emitted(AssignmentFailed, error=ErrorCode.NOT_ENOUGH_REPLICAS)


@pytest.mark.parametrize(
    ("log_says", "heard"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.NOT_ENOUGH_REPLICAS, "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.REQUEST_TIMED_OUT, "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "NOT_COORDINATOR"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "NOT_COORDINATOR"),
        (ErrorCode.MESSAGE_TOO_LARGE, "UNKNOWN_SERVER_ERROR"),
        (ErrorCode.RECORD_LIST_TOO_LARGE, "UNKNOWN_SERVER_ERROR"),
        (ErrorCode.INVALID_FETCH_SIZE, "UNKNOWN_SERVER_ERROR"),
        (ErrorCode.CORRUPT_MESSAGE, "CORRUPT_MESSAGE"),
    ],
)
def test_what_the_log_says_is_mapped_for_clients(group: Story, log_says: ErrorCode, heard: str) -> None:
    """Rule 11."""
    (a,) = completing(group, "a")
    group.hold_writes()
    a.syncs({"a": b"1"})
    group.end_writes(log_says)
    assert group.steps[-1].hears == f"a: {heard}"


def test_a_group_that_outgrows_the_largest_record_is_told_so() -> None:
    """Rule 11: too large is UNKNOWN_SERVER_ERROR."""
    story = Story(coterie_max_record_bytes=1_000)
    (a,) = completing(story, "a")
    a.syncs({"a": bytes(1_000)}, expect="UNKNOWN_SERVER_ERROR")
    assert story.rebalances[-1].cause is Cause.WRITE_FAILED


def test_state_and_generation_are_looked_at_again_when_the_write_ends(group: Story) -> None:
    """Rule 11: a join came in between; the assignment of the old generation is news of yesterday."""
    a, b = completing(group, "a", "b")
    group.hold_writes()
    a.syncs({"a": b"1", "b": b"2"})
    group.member("c").joins(old=True)
    assert "a: REBALANCE_IN_PROGRESS" in group.steps[-1].hears
    group.end_writes()
    assert group.steps[-1].hears == PARKED
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    assert b.member_id in group.group.members


def test_a_write_of_an_older_generation_ends_unheard_even_if_the_group_is_completing_again(group: Story) -> None:
    """Rule 11: the state is the same, the generation is not."""
    a, b = completing(group, "a", "b")
    group.hold_writes()
    a.syncs({"a": b"old", "b": b"old"})
    b.joins(topics=("t", "u"))
    a.joins()
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, generation=2)
    b.syncs(expect=PARKED)
    group.end_writes()
    assert group.steps[-1].hears == PARKED
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, generation=2)


# --- the sync timeout (rule 12) ---------------------------------------------------------------------------------------


def test_whoever_does_not_sync_in_time_is_removed_though_it_heartbeats(group: Story) -> None:
    """Rule 12, KAFKA-12890: also when the group is Stable by then."""
    a, b = completing(group, "a", "b", session=10_000, rebalance=15_000)
    a.syncs({"a": b"1", "b": b"2"})
    group.expect(state=ClassicGroupState.STABLE)
    group.advance(ms=9_000)
    a.beats(expect="ok")
    b.beats(expect="ok")
    b.commits({"t:0": 7}, expect="ok")
    group.advance(ms=5_999)
    group.expect(state=ClassicGroupState.STABLE, members=["a", "b"])
    group.advance(ms=1)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["a"])
    group.emitted(MemberMissedSync, member_id="b")
    assert group.rebalances[-1].cause is Cause.SYNC_TIMEOUT
    assert group.rebalances[-1].culprit == b.member_id


def test_the_sync_timeout_also_hits_static_members_and_a_completing_group(group: Story) -> None:
    """Rule 12."""
    a = group.member("a").joins(instance="i", session=60_000, rebalance=10_000)
    b = group.member("b").joins(old=True, session=60_000, rebalance=10_000)
    group.advance(ms=6_000)
    b.syncs(expect=PARKED)
    group.advance(ms=10_000)
    assert "b: REBALANCE_IN_PROGRESS" in group.steps[-1].hears
    assert a.member_id not in group.group.members
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)


def test_once_everybody_has_synced_the_timeout_does_nothing(group: Story) -> None:
    """Rule 12."""
    group.stable("a", "b", session=900_000, rebalance=10_000)
    group.advance(ms=10_000)
    group.expect(state=ClassicGroupState.STABLE, generation=1)


# --- a rebalance from Completing (rule 13) ----------------------------------------------------------------------------


def test_a_rebalance_from_completing_sends_waiting_syncs_back_and_clears_assignments(group: Story) -> None:
    """Rule 13."""
    a, b = group.stable("a", "b")
    a.joins()
    b.joins()
    b.syncs(expect=PARKED)
    group.member("c").joins(old=True)
    assert group.steps[-1].hears == "b: REBALANCE_IN_PROGRESS"
    assert all(m.assignment == b"" for m in group.group.members.values())


def test_the_parked_sync_of_a_member_that_leaves_is_never_answered(group: Story) -> None:
    """Rule 13."""
    _, b = completing(group, "a", "b")
    b.syncs(expect=PARKED)
    group.member("admin").leaves(id=b.member_id)
    assert group.steps[-1].hears == "ok"


def test_a_parked_sync_that_is_sent_back_starts_a_new_session(group: Story) -> None:
    """Rule 14: while it waited it could not expire."""
    _, b = completing(group, "a", "b", session=6_000)
    b.syncs(expect=PARKED)
    group.advance(ms=5_000)
    group.member("c").joins(old=True)
    member = group.group.members[b.member_id]
    assert member.deadline_ms == group.world.now_ms + 6_000
