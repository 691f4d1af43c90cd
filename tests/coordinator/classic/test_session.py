"""Rules 3, 9, 14: who is not heard of is removed, and who waits for us is not."""

from __future__ import annotations

from coterie.coordinator.classic import ClassicGroupState
from coterie.facts import Cause, MemberExpired, MemberIdExpired
from coterie.stories import PARKED, Story


def test_a_silent_member_is_removed_and_the_ledger_names_it(group: Story) -> None:
    """Rule 14: no word for session_timeout_ms and you are out."""
    a, b = group.stable("a", "b", session=10_000)
    group.advance(ms=9_999)
    a.beats(expect="ok")
    group.advance(ms=1)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["a"])
    group.emitted(MemberExpired, member_id="b", never_heard=False)
    a.beats(expect="REBALANCE_IN_PROGRESS")
    assert group.rebalances[-1].cause is Cause.SESSION_EXPIRED
    assert group.rebalances[-1].culprit == b.member_id


def test_heartbeats_keep_a_member_for_as_long_as_they_come(group: Story) -> None:
    """Rule 14."""
    (a,) = group.stable("a", session=10_000, rebalance=900_000)
    for _ in range(50):
        group.advance(ms=9_999)
        a.beats(expect="ok")
    group.expect(state=ClassicGroupState.STABLE, generation=1)


def test_an_expiry_while_completing_starts_a_rebalance(group: Story) -> None:
    """Rule 14."""
    a = group.member("a").enters(session=6_000)
    b = group.member("b").enters(session=6_000)
    group.advance(ms=6_000)
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE)
    group.advance(ms=5_000)
    a.beats()
    group.advance(ms=1_000)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["a"])
    assert b.member_id not in group.group.members


def test_a_member_whose_join_is_parked_does_not_expire(group: Story) -> None:
    """Rule 9."""
    a, b = group.stable("a", "b", session=10_000, rebalance=100_000)
    a.joins()
    for _ in range(9):
        group.advance(ms=9_000)
        b.beats(expect="REBALANCE_IN_PROGRESS")
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["a", "b"])
    b.joins()
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, members=["a", "b"])
    group.advance(ms=10_000)  # from the answer on it can
    group.expect(members=[])


def test_a_member_whose_sync_is_parked_does_not_expire(group: Story) -> None:
    """Rule 9."""
    a = group.member("a").enters(session=6_000, rebalance=60_000)
    b = group.member("b").enters(session=6_000, rebalance=60_000)
    group.advance(ms=6_000)
    follower, leader = (b, a) if group.group.leader_id == a.member_id else (a, b)
    follower.syncs(expect=PARKED)
    for _ in range(8):
        group.advance(ms=5_000)
        leader.beats()
    group.expect(members=["a", "b"])
    leader.syncs()
    group.expect(state=ClassicGroupState.STABLE)
    group.advance(ms=5_999)
    group.expect(state=ClassicGroupState.STABLE)  # the answer began a new session (rule 14)
    group.advance(ms=1)
    group.expect(members=[])


def test_a_newcomers_join_is_parked_for_five_minutes_at_most(group: Story) -> None:
    """Rule 9, KAFKA-7610: it may have gone long ago, and sends nothing we would miss."""
    a, b = group.stable("a", "b", session=1_800_000, rebalance=1_800_000)
    group.member("c").joins(old=True, session=6_000, expect=PARKED)
    group.advance(ms=299_999)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    group.advance(ms=1)
    assert group.steps[-1].hears == "c: UNKNOWN_MEMBER_ID"
    assert len(group.group.members) == 2
    a.joins()
    b.joins()
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE)


def test_an_id_nobody_came_back_with_lapses_after_its_session_timeout(group: Story) -> None:
    """Rule 3: and otherwise nothing happens."""
    group.stable("a", session=900_000)
    b = group.member("b").joins(session=10_000, expect="MEMBER_ID_REQUIRED")
    group.advance(ms=9_999)
    assert group.group.pending
    group.advance(ms=1)
    group.emitted(MemberIdExpired, member_id="b")
    group.expect(state=ClassicGroupState.STABLE, generation=1)
    b.joins(expect="UNKNOWN_MEMBER_ID")


def test_a_lapsed_id_re_checks_a_join_phase(group: Story) -> None:
    """Rule 3."""
    (a,) = group.stable("a", session=60_000)
    group.member("b").joins(session=6_000)
    a.joins(expect=PARKED)
    group.advance(ms=6_000)
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, members=["a"])


def test_a_commit_is_a_sign_of_life_but_a_sync_or_an_unchanged_join_in_stable_is_not(group: Story) -> None:
    """Rule 14."""
    a, b = group.stable("a", "b", session=10_000)
    follower = b if group.group.leader_id == a.member_id else a
    member = group.group.members[follower.member_id]
    first_ms = member.deadline_ms
    group.advance(ms=1_000)
    follower.syncs()
    follower.joins()
    assert member.deadline_ms == first_ms
    follower.commits({"t:0": 1})
    assert member.deadline_ms == group.world.now_ms + 10_000


def test_a_commit_counts_as_a_sign_of_life_even_if_every_partition_fails(group: Story) -> None:
    """Rule 14."""
    (a,) = group.stable("a", session=10_000)
    group.advance(ms=1_000)
    a.commits({"t:0": 1}, metadata="x" * 5_000, expect="OFFSET_METADATA_TOO_LARGE")
    assert group.group.members[a.member_id].deadline_ms == group.world.now_ms + 10_000


def test_a_member_whose_commit_waits_for_the_disk_does_not_expire() -> None:
    """Its heartbeats wait behind the commit for our answer; when it has one, its session ends as any other."""
    group = Story(offsets_commit_timeout_ms=60_000)
    a, b = group.stable("a", "b", session=6_000)
    group.hold_writes()
    group.advance(ms=5_000)
    b.beats(expect="ok")
    a.commits({"t:0": 1}, expect=PARKED)
    group.advance(ms=4_999)
    b.beats(expect="ok")
    group.expect(state=ClassicGroupState.STABLE, members=["a", "b"])
    group.advance(ms=5_999)
    b.beats(expect="ok")
    group.end_writes()
    group.advance(ms=6_000)
    group.emitted(MemberExpired, member_id=a.member_id)
