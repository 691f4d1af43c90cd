"""Rules 4-8, 10: what a rebalance waits for, how long, and what comes out of it."""

from __future__ import annotations

import pytest

from coterie.coordinator.classic import ClassicGroupState
from coterie.errors import ErrorCode
from coterie.facts import (
    Cause,
    GroupEmptied,
    JoinPhaseCompleted,
    JoinPhaseStuck,
    MemberLeft,
    MemberMissedJoin,
    MemberRejoined,
    WriteFailed,
)
from coterie.protocol.java_hash import map_order
from coterie.protocol.messages import GroupRecord, StoredGroup
from coterie.protocol.offsets_topic import read_record
from coterie.protocol.subscription import Subscription, write_subscription
from coterie.stories import PARKED, Story, check_story


def test_the_phase_ends_when_everybody_has_joined(group: Story) -> None:
    """Rule 4."""
    a, b = group.stable("a", "b")
    a.joins(expect=PARKED)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    b.joins(expect="follows gen 2")
    assert "a: leads gen 2" in group.steps[-1].hears


def test_the_deadline_is_the_largest_rebalance_timeout_fixed_at_the_start(group: Story) -> None:
    """Rule 4: the one that started it included; later joins do not move it."""
    a, b = group.stable("a", "b", session=60_000, rebalance=20_000)
    a.joins(rebalance=30_000)
    group.member("c").joins(old=True, rebalance=900_000)
    group.advance(ms=29_999)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    group.advance(ms=1)
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, members=["a", "c"])
    group.emitted(MemberMissedJoin, member_id="b")
    assert group.rebalances[-1].dropped == {b.member_id: "did not join in time"}
    assert group.rebalances[-1].waits_for == [b.member_id]


def test_a_pending_id_keeps_the_phase_open_but_not_past_the_deadline(group: Story) -> None:
    """Rules 3, 4."""
    a, b = group.stable("a", "b", session=60_000, rebalance=5_000)
    group.member("c").joins(session=60_000, expect="MEMBER_ID_REQUIRED")
    a.joins()
    b.joins(expect=PARKED)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    group.advance(ms=5_000)
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, members=["a", "b"])


def test_a_new_group_waits_for_others_even_if_all_have_joined() -> None:
    """Rule 5, KIP-134: 3 000 ms, though the rebalance timeout is shorter."""
    check_story("""
        at_ms | who | says               | hears              | group
        0     | a   | join rebalance=100 | MEMBER_ID_REQUIRED | Empty
        0     | a   | join               | -                  | PreparingRebalance
        2999  |     |                    | -                  | PreparingRebalance
        3000  |     |                    | a: leads gen 1     | CompletingRebalance
    """)


def test_a_newcomer_prolongs_the_initial_delay_as_long_as_there_is_rest() -> None:
    """Rule 5: rest is rebalance timeout - delay = 4 000: one more wait of 3 000, then one of 1 000."""
    check_story("""
        at_ms | who | says                    | hears                                              | group
        0     | a   | join old rebalance=7000 | -                                                  | PreparingRebalance
        1000  | b   | join old rebalance=7000 | -                                                  | PreparingRebalance
        3000  |     |                         | -                                                  | PreparingRebalance
        4000  | c   | join old rebalance=7000 | -                                                  | PreparingRebalance
        6000  |     |                         | -                                                  | PreparingRebalance
        6999  |     |                         | -                                                  | PreparingRebalance
        7000  |     |                         | a: leads gen 1, b: follows gen 1, c: follows gen 1 | CompletingRebalance
    """)


def test_a_known_member_that_joins_again_is_not_new(group: Story) -> None:
    """Rule 5."""
    a = group.member("a").enters()
    group.advance(ms=1_000)
    a.joins()
    group.advance(ms=2_000)
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE)


def test_pending_ids_do_not_hold_the_initial_delay_open(group: Story) -> None:
    """Rule 3."""
    group.member("a").enters()
    group.member("b").joins(expect="MEMBER_ID_REQUIRED")
    group.advance(ms=3_000)
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE)


def test_no_leave_ends_the_initial_delay_not_even_of_the_last_member(group: Story) -> None:
    """Rules 5, 10."""
    a = group.member("a").enters()
    a.leaves()
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=[])
    group.advance(ms=2_999)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    group.advance(ms=1)
    group.expect(state=ClassicGroupState.EMPTY, generation=1)


def test_nobody_left_means_empty_and_a_new_generation_written_down(group: Story) -> None:
    """Rule 6: leader and protocol cleared, type kept."""
    (a,) = group.stable("a")
    group.advance(ms=10)
    a.leaves()
    group.expect(state=ClassicGroupState.EMPTY, generation=2)
    group.emitted(GroupEmptied, generation_id=2)
    record = read_record(group.world.log[-1].key, group.world.log[-1].value)
    assert record == GroupRecord("g", StoredGroup("consumer", 2, None, None, group.world.now_ms, ()))
    assert group.group.subscribed_topics == frozenset()


def test_static_members_are_kept_though_they_did_not_rejoin(group: Story) -> None:
    """Rule 6, KAFKA-8220."""
    a, b = group.stable("a", "b", session=60_000, rebalance=10_000)
    c = group.member("c").joins(instance="i", session=60_000, rebalance=10_000)
    group.settle()
    a.joins(reason="again")
    group.advance(ms=10_000)
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, members=["a", "c"], generation=3)
    assert group.group.members[c.member_id].awaits_sync
    assert c.member_id not in group.emitted(JoinPhaseCompleted).joined_after_ms
    group.emitted(MemberMissedJoin, member_id="b")
    assert b.member_id not in group.group.members


def test_if_only_static_members_are_left_and_none_rejoined_the_phase_waits_again(group: Story) -> None:
    """Rule 6: no new generation."""
    a = group.member("a").joins(instance="i", session=900_000, rebalance=10_000)
    b = group.member("b").joins(session=6_000, rebalance=10_000, old=True)
    group.settle()
    group.advance(ms=6_000)  # b goes silent: a rebalance starts, and a does not come
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["a"], generation=1)
    group.advance(ms=10_000)
    group.emitted(JoinPhaseStuck)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["a"], generation=1)
    a.joins(expect="leads gen 2")
    assert b.answer is not None


def test_every_member_has_a_new_session_when_the_phase_ends(group: Story) -> None:
    """Rules 6, 14."""
    a, b = group.stable("a", "b", session=10_000)
    group.advance(ms=9_000)
    b.beats()
    a.joins()
    b.joins()
    now_ms = group.world.now_ms
    assert {m.deadline_ms for m in group.group.members.values()} == {now_ms + 10_000}


# --- leader (rule 7) --------------------------------------------------------------------------------------------------


def test_the_first_to_join_leads_and_stays_leader(group: Story) -> None:
    """Rule 7."""
    group.stable("m", "a", "z")
    group.expect(leader="m")
    group.member("b").enters()
    group.settle()
    group.expect(leader="m", generation=2)


def test_a_leader_that_left_is_followed_by_the_first_in_map_order(group: Story) -> None:
    """Rule 7: Java's HashMap, keyed by member id."""
    a, *others = group.stable(*[f"m{i}" for i in range(20)])
    a.leaves()
    assert group.group.leader_id == map_order([other.member_id for other in others])[0]


def test_a_leader_that_did_not_rejoin_is_followed_by_the_first_that_did(group: Story) -> None:
    """Rule 7: a static leader stays a member, but does not lead."""
    a = group.member("a").joins(instance="i", session=60_000, rebalance=5_000)
    b = group.member("b").joins(old=True, session=60_000, rebalance=5_000)
    group.settle()
    group.expect(leader="a")
    b.joins(protocols=("range", "sticky"))
    group.advance(ms=5_000)
    group.expect(leader="b", members=["a", "b"])
    assert a.member_id in group.group.members


def test_the_leader_is_told_the_members_in_map_order(group: Story) -> None:
    """Rule 7."""
    actors = group.stable(*[f"m{i}" for i in range(13)])  # 13 > 0.75 * 16: the map has grown to 32
    actors[0].joins()
    for actor in actors[1:]:
        actor.joins()
    told = [m.member_id for m in actors[0].answer.members]
    assert told == map_order([actor.member_id for actor in actors])
    assert all(actor.answer.members == () for actor in actors[1:])


# --- vote (rule 8) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lists", "winner"),
    [
        ([("range", "sticky"), ("sticky", "range"), ("sticky", "range")], "sticky"),
        ([("range", "sticky"), ("sticky", "roundrobin"), ("roundrobin", "sticky")], "sticky"),
        ([("roundrobin", "range"), ("range", "roundrobin")], "range"),
        ([("range", "roundrobin"), ("roundrobin", "range")], "range"),
        ([("cooperative-sticky", "sticky"), ("sticky", "cooperative-sticky")], "sticky"),
        ([("cooperative-sticky", "roundrobin"), ("roundrobin", "cooperative-sticky")], "roundrobin"),
    ],
)
def test_most_votes_win_and_ties_go_by_map_order(group: Story, lists: list[tuple[str, ...]], winner: str) -> None:
    """Rule 8: a member votes for the first of its own list that all can use."""
    for number, protocols in enumerate(lists):
        group.member(f"m{number}").enters(protocols=protocols)
    group.settle()
    assert group.group.protocol_name == winner


# --- expiry and leaves in the phase (rules 9, 10) ---------------------------------------------------------------------


def test_a_leave_while_preparing_re_checks_the_phase(group: Story) -> None:
    """Rule 10."""
    a, b, c = group.stable("a", "b", "c")
    a.joins()
    c.joins()
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    b.leaves()
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, members=["a", "c"])


def test_an_expiry_while_preparing_re_checks_the_phase(group: Story) -> None:
    """Rules 10, 14."""
    a, b = group.stable("a", "b", session=6_000, rebalance=60_000)
    a.joins()
    group.advance(ms=6_000)
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, members=["a"])
    assert group.rebalances[-1].cause is Cause.LEADER_REJOINED
    assert group.rebalances[-1].dropped == {b.member_id: "session expired"}


def test_a_leaving_member_has_its_parked_join_answered_first(group: Story) -> None:
    """Rule 9."""
    a, b = group.stable("a", "b")
    a.joins(expect=PARKED)
    admin = group.member("admin")
    admin.leaves(id=a.member_id)
    assert "a: UNKNOWN_MEMBER_ID" in group.steps[-1].hears
    assert a.answer.member_id == ""
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["b"])
    assert b.member_id == group.group.leader_id


def test_a_failed_write_of_emptiness_is_told_and_otherwise_harmless(group: Story) -> None:
    """Rule 6 and section 10: the generation before would come back after a crash, and expire."""
    (a,) = group.stable("a")
    group.hold_writes()
    a.leaves(expect="-")
    group.end_writes(ErrorCode.KAFKA_STORAGE_ERROR)
    assert group.steps[-1].hears == "a: NOT_COORDINATOR"
    group.emitted(WriteFailed)
    group.expect(state=ClassicGroupState.EMPTY)
    group.crash()
    group.expect(state=ClassicGroupState.STABLE, generation=1)


def test_a_phase_lists_who_joined_again_and_what_each_still_owned(group: Story) -> None:
    """A newcomer is not listed: it owned nothing. No join has a fact of its own."""
    a, b = group.stable("a", "b")
    group.member("c").joins(old=True, owned={"t": [7]})
    group.advance(ms=5)
    a.joins(owned={"t": [1]})
    group.advance(ms=7)
    b.joins(owned={"t": [2]})
    fact = group.emitted(JoinPhaseCompleted)
    (of_a, of_b) = (
        [write_subscription(Subscription(("t",), owned={"t": [number]})), [one.member_id]]
        for number, one in ((1, a), (2, b))
    )
    assert [list(one) for one in fact.rejoined] == [of_a, of_b] and fact.took_ms == 12
    assert not any(isinstance(one, MemberRejoined) for one in group.world.facts)


def test_a_join_that_no_phase_will_list_has_a_fact_of_its_own(group: Story) -> None:
    """The member joins once more, leaves, or its coordinator stops, before all have joined."""
    a, b, _c = group.stable("a", "b", "c", session=60_000)
    a.joins(reason="first", owned={"t": [1, 2]})
    began_ms = group.world.now_ms
    group.advance(ms=10)
    b.joins(owned={"t": [3]})
    a.joins(owned={"t": [1]})
    first = group.emitted(MemberRejoined, member_id="a")
    assert (first.at_ms, first.joined_at_ms) == (began_ms + 10, began_ms)
    assert (first.joined_at_ms, first.metadata) == (
        began_ms,
        write_subscription(Subscription(("t",), owned={"t": [1, 2]})),
    )
    group.advance(ms=10)
    b.leaves()
    assert [type(fact) for fact in group.world.facts[-2:]] == [MemberRejoined, MemberLeft]
    assert group.emitted(MemberRejoined, member_id="b").joined_at_ms == began_ms + 10
    group.move_coordinator()
    assert group.emitted(MemberRejoined, member_id="a").metadata == write_subscription(
        Subscription(("t",), owned={"t": [1]})
    )
