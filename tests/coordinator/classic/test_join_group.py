"""Rules 1-3, 18, 19: who may enter, under which id, and what a static member finds when it comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coterie.coordinator.classic import ClassicGroupState
from coterie.coordinator.classic.fenced_facts import MOST_REFUSED
from coterie.errors import ErrorCode
from coterie.facts import (
    Cause,
    GroupCreated,
    GroupDied,
    InstanceIdFenced,
    MemberIdGiven,
    MemberJoined,
    MemberReplaced,
    MemberTurnedAway,
    WriteFailed,
)
from coterie.protocol.messages import Protocol
from coterie.protocol.offsets_topic import read_record
from coterie.stories import PARKED, Actor, Story


@pytest.mark.parametrize(
    ("session_ms", "heard"),
    [
        (5_999, "INVALID_SESSION_TIMEOUT"),
        (6_000, "MEMBER_ID_REQUIRED"),
        (1_800_000, "MEMBER_ID_REQUIRED"),
        (1_800_001, "INVALID_SESSION_TIMEOUT"),
        (-1, "INVALID_SESSION_TIMEOUT"),
    ],
)
def test_both_ends_of_the_session_bounds_are_allowed(group: Story, session_ms: int, heard: str) -> None:
    """Rule 1."""
    group.member("a").joins(session=session_ms, expect=heard)


def test_a_refused_session_timeout_creates_no_group(group: Story) -> None:
    """Section 2, order of checks: the bounds come before the group is even looked for."""
    group.member("a").joins(session=1, id="nobody", expect="INVALID_SESSION_TIMEOUT")
    group.expect(state=ClassicGroupState.DEAD)


def test_the_empty_group_id_is_refused_before_anything_else() -> None:
    """Section 2, order of checks."""
    story = Story(group_id="")
    story.member("a").joins(session=1, expect="INVALID_GROUP_ID")


# --- size (rule 1) ----------------------------------------------------------------------------------------------------


def test_a_full_stable_group_takes_nobody_new() -> None:
    """Rule 1."""
    story = Story(group_max_size=2)
    story.stable("a", "b")
    story.member("c").joins(expect="GROUP_MAX_SIZE_REACHED")
    assert story.actors["c"].answer.member_id == ""
    story.expect(state=ClassicGroupState.STABLE, members=["a", "b"])
    story.emitted(MemberTurnedAway)


def test_a_full_completing_group_takes_nobody_new() -> None:
    """Rule 1."""
    story = Story(group_max_size=1, group_initial_rebalance_delay_ms=0)
    story.member("a").enters()
    story.advance(ms=0)
    story.expect(state=ClassicGroupState.COMPLETING_REBALANCE)
    story.member("b").joins(old=True, expect="GROUP_MAX_SIZE_REACHED")


def test_a_full_group_turns_away_even_a_static_member_that_comes_back() -> None:
    """Rule 1: it comes without an id, so it counts as one more."""
    story = Story(group_max_size=1)
    story.stable("a", instance="i")
    story.member("a").joins(id="", expect="GROUP_MAX_SIZE_REACHED")


def test_while_a_rebalance_prepares_the_last_to_rejoin_are_dropped() -> None:
    """Rule 1: as many parked joins as the limit; a known member that comes too late is removed."""
    story = Story(group_max_size=2)
    a, b = story.stable("a", "b")
    story.member("c").joins(old=True, expect="GROUP_MAX_SIZE_REACHED")
    a.joins(protocols=("range", "sticky"), expect=PARKED)
    story.member("c").joins(old=True, expect=PARKED)
    b.joins(expect="GROUP_MAX_SIZE_REACHED")
    story.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["a"])
    assert sorted(m.client_id for m in story.group.members.values()) == ["a", "c"]
    a.joins()  # completion is only looked at again with the next event
    story.expect(state=ClassicGroupState.COMPLETING_REBALANCE, generation=2)


def test_whoever_is_parked_may_send_its_join_again_in_a_full_group() -> None:
    """Rule 1: unless this member's own join is parked."""
    story = Story(group_max_size=1)
    a = story.member("a").enters()
    a.joins(expect=PARKED)
    story.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["a"])


def test_pending_ids_do_not_count_so_more_are_given_out_than_there_is_room() -> None:
    """Rule 1."""
    story = Story(group_max_size=1)
    story.member("a").joins(expect="MEMBER_ID_REQUIRED")
    story.member("b").joins(expect="MEMBER_ID_REQUIRED")
    story.member("a").joins(expect=PARKED)
    story.member("b").joins(expect="GROUP_MAX_SIZE_REACHED")
    assert not story.group.pending


# --- protocols (rule 2) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "protocols"), [("", ("range",)), ("consumer", ()), ("consumer", ("range", "range"))])
def test_an_empty_group_wants_a_type_and_a_list_without_repetition(
    group: Story, kind: str, protocols: tuple[str, ...]
) -> None:
    """Rule 2: and a refused first join still leaves the Empty group behind."""
    group.member("a").joins(type=kind, protocols=protocols, expect="INCONSISTENT_GROUP_PROTOCOL")
    group.expect(state=ClassicGroupState.EMPTY, generation=0)
    group.emitted(GroupCreated, simple=False)


def test_a_type_must_match_and_one_name_must_be_known_to_all(group: Story) -> None:
    """Rule 2."""
    group.stable("a", protocols=("range", "sticky"))
    b = group.member("b")
    b.joins(type="connect", protocols=("range",), expect="INCONSISTENT_GROUP_PROTOCOL")
    b.joins(type="consumer", protocols=("roundrobin",), expect="INCONSISTENT_GROUP_PROTOCOL")
    b.joins(protocols=("roundrobin", "sticky"), expect="MEMBER_ID_REQUIRED")


def test_a_lone_member_cannot_switch_to_a_disjoint_list(group: Story) -> None:
    """Rule 2: its own previous list counts too."""
    (a,) = group.stable("a", protocols=("range",))
    a.joins(protocols=("sticky",), expect="INCONSISTENT_GROUP_PROTOCOL")
    a.joins(protocols=("sticky", "range"))
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, generation=2)


# --- ids (rule 3) -----------------------------------------------------------------------------------------------------


def test_a_dynamic_newcomer_is_given_its_id_and_has_to_come_back_with_it(group: Story) -> None:
    """Rule 3, KIP-394: the id is the client id and a fresh UUID."""
    a = group.member("a").joins(expect="MEMBER_ID_REQUIRED")
    assert a.member_id == "a-1"
    group.emitted(MemberIdGiven, member_id="a")
    group.expect(state=ClassicGroupState.EMPTY)
    a.joins(expect=PARKED)
    group.emitted(MemberJoined, member_id="a")
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["a"])


def test_old_clients_and_static_members_join_at_once(group: Story) -> None:
    """Rule 3: JoinGroup 0-3; a static member's id begins with its instance id."""
    group.member("a").joins(old=True, expect=PARKED)
    group.member("b").joins(instance="i1", expect=PARKED)
    assert [m.member_id for m in group.group.members.values()] == ["a-1", "i1-2"]


def test_an_id_nobody_was_given_is_never_adopted(group: Story) -> None:
    """Rule 3, and section 2: an absent group is not created for it."""
    stranger = group.member("x")
    stranger.joins(id="made-up", expect="UNKNOWN_MEMBER_ID")
    group.expect(state=ClassicGroupState.DEAD)
    group.stable("a")
    stranger.joins(id="made-up", expect="UNKNOWN_MEMBER_ID")


def test_a_pending_id_is_no_member_yet(group: Story) -> None:
    """Rule 3: not for Heartbeat, Sync or Commit, nor for whoever describes the group."""
    group.stable("a")
    b = group.member("b").joins(expect="MEMBER_ID_REQUIRED")
    b.beats(gen=1, expect="UNKNOWN_MEMBER_ID")
    b.syncs(gen=1, expect="UNKNOWN_MEMBER_ID")
    b.commits({"t:0": 1}, gen=1, expect="UNKNOWN_MEMBER_ID")
    assert len(group.group.members) == 1


def test_a_pending_id_is_added_in_any_state(group: Story) -> None:
    """Rule 3: its rejoin starts the rebalance that its id alone did not."""
    group.stable("a")
    b = group.member("b").joins()
    group.expect(state=ClassicGroupState.STABLE)
    b.joins(reason="scaling out", expect=PARKED)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    assert group.rebalances[-1].cause is Cause.NEW_MEMBER
    assert group.rebalances[-1].culprit == b.member_id
    assert group.rebalances[-1].reason == "scaling out"


def test_a_pending_id_that_comes_back_as_a_static_member_is_unknown(group: Story) -> None:
    """Rule 3: Kafka answers UNKNOWN_SERVER_ERROR by accident."""
    a = group.member("a").joins()
    a.joins(instance="i", expect="UNKNOWN_MEMBER_ID")


# --- known members (section 2) ----------------------------------------------------------------------------------------


def test_an_unchanged_rejoin_of_a_follower_repeats_its_answer_and_changes_nothing(group: Story) -> None:
    """Section 2: not the timeouts, not the session timer, no rebalance."""
    a, b = group.stable("a", "b", session=10_000)
    follower = b if group.group.leader_id == a.member_id else a
    member = group.group.members[follower.member_id]
    group.advance(ms=4_000)
    deadline_ms = member.deadline_ms
    follower.joins(session=60_000, expect="follows gen 1")
    assert member.deadline_ms == deadline_ms
    assert member.session_timeout_ms == 10_000
    group.expect(state=ClassicGroupState.STABLE, generation=1)


def test_a_rejoin_of_the_leader_starts_a_rebalance_even_if_nothing_changed(group: Story) -> None:
    """Section 2: its way to say that topics have changed."""
    a, _ = group.stable("a", "b")
    a.joins(reason="cached metadata has changed", expect=PARKED)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    assert group.rebalances[-1].cause is Cause.LEADER_REJOINED
    assert group.rebalances[-1].reason == "cached metadata has changed"


def test_in_completing_the_current_answer_is_repeated_to_the_leader_with_members(quick: Story) -> None:
    """Section 2: its first answer was lost."""
    a = quick.member("a").enters()
    quick.advance(ms=0)
    a.joins(expect="leads gen 1")
    assert [m.member_id for m in a.answer.members] == [a.member_id]
    quick.expect(state=ClassicGroupState.COMPLETING_REBALANCE, generation=1)


@pytest.mark.parametrize("change", ["names", "bytes", "order"])
def test_protocols_are_the_same_only_in_names_bytes_and_order(group: Story, change: str) -> None:
    """Section 2."""
    first = [Protocol("range", b"one"), Protocol("sticky", b"two")]
    changed = {
        "names": [*first, Protocol("roundrobin", b"three")],
        "bytes": [Protocol("range", b"other"), Protocol("sticky", b"two")],
        "order": first[::-1],
    }[change]
    a, b = group.stable("a", "b", protocols=first, type="custom")
    follower = b if group.group.leader_id == a.member_id else a
    follower.joins(protocols=changed, expect=PARKED)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    assert group.rebalances[-1].cause is Cause.PROTOCOLS_CHANGED


def test_a_join_again_takes_over_the_parked_place(group: Story) -> None:
    """Rule 10: the earlier request is never answered."""
    a = group.member("a").enters()
    a.joins(expect=PARKED)
    group.advance(ms=3_000)
    assert group.steps[-1].hears == "a: leads gen 1"  # once, to the second request
    assert group.group.parked_joins == 0


# --- static members (rules 18, 19) ------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_a_stable_group_without_a_rebalance(group: Story) -> None:
    """Rules 18, 19: its place and assignment go to the new id; the old one is fenced."""
    _a, _b = group.stable("a", "b", instance=None)
    group.advance(ms=0)
    c = group.member("c").joins(instance="i")
    group.settle()
    old_id = c.member_id
    c.joins(id="", expect="follows gen 2")
    assert c.member_id != old_id
    group.expect(state=ClassicGroupState.STABLE, generation=2)
    group.emitted(MemberReplaced, member_id="c", old_member_id=old_id)
    c.syncs(expect=b"c".hex())
    c.beats(id=old_id, expect="FENCED_INSTANCE_ID")
    c.beats(id="", expect="FENCED_INSTANCE_ID")
    c.beats(id=old_id, instance=None, expect="UNKNOWN_MEMBER_ID")
    c.beats(instance="other", expect="UNKNOWN_MEMBER_ID")
    c.beats(instance=None, expect="ok")
    assert len(group.rebalances) == 2


def fenced(group: Story) -> list[InstanceIdFenced]:
    return [fact for fact in group.world.facts if isinstance(fact, InstanceIdFenced)]


def test_a_fenced_member_is_told_once_however_often_it_asks(group: Story) -> None:
    """Rule 18: a flood of refused requests is one fact for each holder of the instance id."""
    (a,) = group.stable("a", instance="i")
    first = a.member_id
    a.joins(id="")
    second = a.member_id
    for _ in range(20):
        a.beats(id=first, expect="FENCED_INSTANCE_ID")
        a.commits({"t:0": 1}, id=first, expect="FENCED_INSTANCE_ID")
    a.joins(id="")
    third = a.member_id
    a.beats(id=first, expect="FENCED_INSTANCE_ID")
    a.syncs(id=second, expect="FENCED_INSTANCE_ID")
    a.joins(id=second, expect="FENCED_INSTANCE_ID")
    told = [(fact.member_id, fact.instance_id, fact.holder_id, fact.request) for fact in fenced(group)]
    assert told == [
        (first, "i", second, "Heartbeat"),
        (first, "i", third, "Heartbeat"),
        (second, "i", third, "SyncGroup"),
    ]


@pytest.mark.parametrize(
    ("request_name", "ask"),
    [
        ("Heartbeat", lambda a: a.beats(id="x", expect="FENCED_INSTANCE_ID")),
        ("SyncGroup", lambda a: a.syncs(id="x", expect="FENCED_INSTANCE_ID")),
        ("JoinGroup", lambda a: a.joins(id="x", expect="FENCED_INSTANCE_ID")),
        ("OffsetCommit", lambda a: a.commits({"t:0": 1}, id="x", expect="FENCED_INSTANCE_ID")),
        ("LeaveGroup", lambda a: a.leaves(id="x", expect="FENCED_INSTANCE_ID")),
    ],
)
def test_every_request_of_a_fenced_member_is_told(group: Story, request_name: str, ask: Callable[[Actor], Any]) -> None:
    """Section 2: all of them check the instance id."""
    (a,) = group.stable("a", instance="i")
    holder_id = a.member_id
    ask(a)
    (fact,) = fenced(group)
    assert (fact.request, fact.member_id, fact.holder_id, fact.was_waiting) == (request_name, "x", holder_id, False)


def test_many_refused_members_do_not_make_many_facts(group: Story) -> None:
    """Rule 18: a process that is started again and again comes with another id each time."""
    (a,) = group.stable("a", instance="i")
    for number in range(100):
        a.beats(id=f"x{number}", expect="FENCED_INSTANCE_ID")
    assert len(fenced(group)) == MOST_REFUSED


def test_a_request_that_waited_when_its_member_was_replaced_is_told_so(group: Story) -> None:
    """Rule 18: whoever sent it may be gone, since it is the broker that answers late."""
    a = group.member("a").joins(instance="i", expect=PARKED)
    old_id = group.group.leader_id
    a.joins(id="", expect="FENCED_INSTANCE_ID")
    (fact,) = fenced(group)
    assert (fact.request, fact.member_id, fact.holder_id) == ("JoinGroup", old_id, group.group.leader_id)
    assert fact.was_waiting


def test_a_returning_static_leader_leads_and_may_skip_the_assignment(group: Story) -> None:
    """Rule 19, KIP-814: from version 9 with the member list."""
    (a,) = group.stable("a", instance="i")
    a.joins(id="", expect="leads gen 1 skip")
    assert [m.instance_id for m in a.answer.members] == ["i"]


def test_below_version_9_a_returning_static_leader_is_told_the_old_leader(group: Story) -> None:
    """Rule 19, KIP-814: so that it acts as a follower."""
    (a,) = group.stable("a", instance="i", v8=True)
    old_id = a.member_id
    a.joins(id="", expect="follows gen 1")
    assert a.answer.leader_id == old_id
    assert a.answer.members == ()
    assert group.group.leader_id == a.member_id


def test_changed_metadata_of_a_returning_static_member_starts_no_rebalance(group: Story) -> None:
    """Rule 19: only the name of the selected protocol counts; the new bytes show in Describe."""
    (a,) = group.stable("a", instance="i")
    a.joins(id="", topics=("t", "u"), expect="leads gen 1 skip")
    group.expect(state=ClassicGroupState.STABLE, generation=1)
    member = group.group.members[a.member_id]
    assert b"u" in member.metadata("range")
    assert member.assignment == b"a"


def test_a_returning_static_member_that_changes_the_vote_starts_a_rebalance(group: Story) -> None:
    """Rule 19."""
    (a,) = group.stable("a", instance="i", protocols=("range", "sticky"))
    a.joins(id="", protocols=("sticky", "range"))
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, generation=2)
    assert group.rebalances[-1].cause is Cause.STATIC_MEMBER_CHANGED_VOTE


def test_a_static_member_that_comes_back_while_completing_starts_a_rebalance(group: Story) -> None:
    """Rule 19, KAFKA-9801; rule 18: the old id's parked sync is answered FENCED_INSTANCE_ID."""
    a = group.member("a").joins(instance="i")
    b = group.member("b").joins(instance="j")
    group.advance(ms=6_000)
    follower = b if group.group.leader_id == a.member_id else a
    follower.syncs(expect=PARKED)
    follower.joins(id="")
    assert group.steps[-1].hears == "FENCED_INSTANCE_ID"  # its sync; the new join is parked
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    assert group.rebalances[-1].cause is Cause.STATIC_MEMBER_REPLACED


def test_a_static_member_that_comes_back_while_preparing_is_parked_like_any_join(group: Story) -> None:
    """Rules 18, 19: the old id's parked join is answered FENCED_INSTANCE_ID; leadership goes along."""
    a = group.member("a").joins(instance="i", expect=PARKED)
    old_id = group.group.leader_id
    a.joins(id="", expect="FENCED_INSTANCE_ID")
    assert group.group.leader_id != old_id
    group.advance(ms=6_000)
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, leader="a")


def test_the_first_session_of_a_returning_static_member_has_the_old_timeout(group: Story) -> None:
    """Rule 19: the new timeouts are taken, but not for the first timer."""
    (a,) = group.stable("a", instance="i", session=10_000)
    now_ms = group.world.now_ms
    a.joins(id="", session=6_000)
    member = group.group.members[a.member_id]
    assert member.deadline_ms == now_ms + 10_000
    a.beats()
    assert member.deadline_ms == now_ms + 6_000
    group.advance(ms=6_000)
    group.expect(state=ClassicGroupState.EMPTY, members=[])


def test_a_failed_write_gives_a_static_member_its_old_id_back(group: Story) -> None:
    """Rule 19: a failed write reverts."""
    (a,) = group.stable("a", instance="i", session=10_000)
    old_id = a.member_id
    group.hold_writes()
    a.joins(id="", session=20_000, topics=("u",), expect=PARKED)
    group.end_writes(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert group.steps[-1].hears == "a: COORDINATOR_NOT_AVAILABLE"
    assert a.answer.member_id == ""
    assert list(group.group.members) == [old_id]
    assert group.group.members[old_id].session_timeout_ms == 10_000
    assert group.group.leader_id == old_id
    group.emitted(WriteFailed)
    a.beats(expect="ok")


def test_a_rebalance_that_begins_while_a_static_id_is_written_takes_the_join_along(group: Story) -> None:
    """Rule 11's second look, for rule 19's write."""
    (a,) = group.stable("a", instance="i")
    group.hold_writes()
    a.joins(id="", expect=PARKED)
    group.member("b").joins(old=True, expect="follows gen 2")
    assert group.steps[-1].hears == "follows gen 2, a: leads gen 2"
    group.end_writes()
    assert group.steps[-1].hears == PARKED
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, generation=2)


# --- the record of a group's birth (section 10) -----------------------------------------------------------------------


def test_a_group_is_written_down_at_its_first_join_even_if_that_only_gets_an_id(group: Story) -> None:
    """Section 10: generation 0, type "", no members."""
    group.member("a").joins(expect="MEMBER_ID_REQUIRED")
    (entry,) = group.world.log
    record = read_record(entry.key, entry.value)
    assert "GroupRecord(group_id='g'" in repr(record)
    assert "generation_id=0" in repr(record)


def test_a_group_whose_birth_cannot_be_written_never_was(group: Story) -> None:
    """Section 10; its parked joins hear why."""
    group.hold_writes()
    group.member("a").joins(old=True, expect=PARKED)
    group.end_writes(ErrorCode.KAFKA_STORAGE_ERROR)
    assert group.steps[-1].hears == "a: NOT_COORDINATOR"
    group.expect(state=ClassicGroupState.DEAD)
    group.emitted(GroupDied)
    assert len(group.world.timers) == 1  # the shard's own


def test_the_birth_record_does_not_matter_once_there_is_a_generation(quick: Story) -> None:
    """Section 10."""
    quick.hold_writes()
    a = quick.member("a").joins(old=True)
    quick.advance(ms=0)
    a.beats(gen=1, expect="ok")
    quick.end_writes(ErrorCode.KAFKA_STORAGE_ERROR)
    quick.expect(state=ClassicGroupState.COMPLETING_REBALANCE, members=["a"])
