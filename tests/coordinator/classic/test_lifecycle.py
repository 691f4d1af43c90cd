"""C4: a coordinator loses its groups and another one, or the same, reads them back."""

from __future__ import annotations

import pytest

from coterie.coordinator.classic import ClassicGroupState
from coterie.facts import Cause, GroupLoaded, GroupUnloaded, MemberExpired
from coterie.stories import PARKED, Story


def test_losing_a_partition_answers_whoever_waits(group: Story) -> None:
    """C4: NOT_COORDINATOR, to joins, syncs and commits."""
    a, b = group.stable("a", "b")
    a.joins(expect=PARKED)
    group.hold_writes()
    b.commits({"t:0": 1}, expect=PARKED)
    group.move_coordinator()
    assert group.steps[-1].hears == "a: NOT_COORDINATOR, b: NOT_COORDINATOR"
    group.emitted(GroupUnloaded)


def test_parked_syncs_are_answered_too_and_the_half_written_rebalance_is_forgotten(group: Story) -> None:
    """C4: one that died in its first Completing is Empty at generation 0."""
    a = group.member("a").enters()
    b = group.member("b").enters()
    group.advance(ms=6_000)
    group.hold_writes()
    b.syncs(expect=PARKED)
    a.syncs({"a": b"1"}, expect=PARKED)
    group.move_coordinator()
    assert sorted(group.heard) == ["a: NOT_COORDINATOR", "b: NOT_COORDINATOR"]
    group.expect(state=ClassicGroupState.EMPTY, generation=0, members=[])


def test_a_group_that_was_preparing_is_stable_again_at_its_last_generation(group: Story) -> None:
    """C4: pending ids, parked requests and the unfinished rebalance do not come back."""
    a, b = group.stable("a", "b")
    group.member("c").joins(expect="MEMBER_ID_REQUIRED")
    a.joins()
    group.move_coordinator()
    group.expect(state=ClassicGroupState.STABLE, generation=1, members=["a", "b"], leader="a")
    assert not group.group.pending
    group.emitted(GroupLoaded, state="Stable")
    b.beats(expect="ok")
    b.syncs(expect=b"b".hex())


def test_static_ids_offsets_and_the_state_timestamp_come_back(group: Story) -> None:
    """C4."""
    (a,) = group.stable("a", instance="i", session=12_345, rebalance=54_321)
    a.commits({"t:0": 5})
    group.crash()
    member = group.group.members[a.member_id]
    assert group.group.static == {"i": a.member_id}
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (12_345, 54_321)
    assert (member.client_id, member.client_host) == ("a", "/127.0.0.1")
    assert group.group.state_timestamp_ms == 3_000  # when its last record was made
    assert group.group.subscribed_topics == frozenset({"t"})
    a.fetches(expect="t:0=5")


def test_every_member_has_a_fresh_session_and_the_ledger_knows_who_never_came_back(group: Story) -> None:
    """C4; section 12: coordinator moved and a member did not come back."""
    a, b = group.stable("a", "b", session=10_000)
    group.advance(ms=9_000)
    group.move_coordinator()
    group.advance(ms=9_999)
    a.beats(expect="ok")
    group.advance(ms=1)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["a"])
    group.emitted(MemberExpired, member_id="b", never_heard=True)
    assert group.rebalances[-1].cause is Cause.COORDINATOR_MOVED
    assert group.rebalances[-1].culprit == b.member_id


def test_after_loading_the_first_unchanged_join_with_several_protocols_counts_as_changed(group: Story) -> None:
    """C4: only the selected protocol is on disk."""
    a, b = group.stable("a", "b", protocols=("range", "sticky"))
    group.move_coordinator()
    follower = b if group.group.leader_id == a.member_id else a
    follower.joins(expect=PARKED)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    assert group.rebalances[-1].cause is Cause.COORDINATOR_MOVED


def test_after_loading_an_unchanged_join_with_one_protocol_is_unchanged(group: Story) -> None:
    """C4."""
    a, b = group.stable("a", "b", protocols=("range",))
    group.move_coordinator()
    follower = b if group.group.leader_id == a.member_id else a
    follower.joins(expect="follows gen 1")


def test_a_group_over_the_limit_is_sent_into_a_rebalance_at_load(group: Story) -> None:
    """C4: so that its members can commit before some are dropped."""
    a, b = group.stable("a", "b")
    group.world.settings = Story(group_max_size=1).world.settings
    group.crash()
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["a", "b"])
    assert group.rebalances[-1].cause is Cause.OVER_SIZE_AT_LOAD
    a.commits({"t:0": 1}, expect="ok")
    a.joins(expect=PARKED)
    b.joins(expect="GROUP_MAX_SIZE_REACHED")


@pytest.mark.parametrize("moves", [0, 1, 3])
def test_an_empty_and_a_simple_group_come_back_as_they_were(group: Story, moves: int) -> None:
    """C4."""
    (a,) = group.stable("a")
    a.commits({"t:0": 5})
    a.leaves()
    for _ in range(moves):
        group.move_coordinator()
    group.expect(state=ClassicGroupState.EMPTY, generation=2)
    assert group.group.protocol_type == "consumer"
    a.fetches(expect="t:0=5")


def test_nothing_of_a_lost_group_stays_armed(group: Story) -> None:
    """C4: all is forgotten."""
    group.stable("a", "b")
    group.member("c").joins()
    group.world._perform(group.world.shard.unload(group.world.now_ms))
    assert len(group.world.timers) == 0
