"""When the disk is slow or says no, at the moments that random lives of groups found to matter."""

from __future__ import annotations

import pytest

from coterie.coordinator.classic import ClassicGroupState, Group
from coterie.errors import ErrorCode
from coterie.facts import GroupCreated, GroupDied, GroupLoaded, GroupUnloaded, JoinPhaseStuck
from coterie.ledger import RebalanceOutcome
from coterie.protocol.messages import DeleteGroup
from coterie.stories import Story

FAILS = ErrorCode.NOT_ENOUGH_REPLICAS


def offset_of(group: Group, topic: str = "t") -> int | None:
    stored = group.offsets.get(topic, {}).get(0)
    return stored.offset if stored else None


# --- deletion ---------------------------------------------------------------------------------------------------------


def test_a_group_whose_deletion_fails_is_there_again_as_it_was(quick: Story) -> None:
    """Rule 24: also the time since when it is Empty, from which its offsets expire (rule 23)."""
    a = quick.stable("a")[0]
    a.commits({"t:0": 7}).leaves()
    since_ms, generation_id = quick.group.state_timestamp_ms, quick.group.generation_id
    quick.advance(ms=1_000)
    quick.hold_writes()
    a.deletes_group(expect="-")
    quick.end_writes(FAILS)
    assert (quick.state, quick.group.generation_id) == (ClassicGroupState.EMPTY, generation_id)
    assert quick.group.state_timestamp_ms == since_ms and offset_of(quick.group) == 7
    assert a.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_deletion_that_fails_loses_no_offset_to_a_new_group_of_the_same_name(quick: Story) -> None:
    """Rule 22: an acknowledged commit is not lost, not even from sight."""
    a = quick.member("a").commits({"t:0": 7}, expect="ok")
    quick.hold_writes()
    a.deletes_group()
    a.commits({"u:0": 8})  # waits for the deletion's end
    quick.end_writes(FAILS)
    assert (offset_of(quick.group, "t"), offset_of(quick.group, "u")) == (7, None)


def test_the_new_group_keeps_what_was_committed_to_it(quick: Story) -> None:
    a = quick.member("a").commits({"t:0": 7, "u:0": 7}, expect="ok")
    quick.hold_writes()
    a.deletes_group()
    a.commits({"u:0": 8})
    quick.world.end_write(FAILS)
    quick.end_writes()
    assert (offset_of(quick.group, "t"), offset_of(quick.group, "u")) == (7, 8)
    quick.crash()
    assert (offset_of(quick.group, "t"), offset_of(quick.group, "u")) == (7, 8)


def test_a_group_of_which_nothing_is_in_the_log_does_not_come_back(quick: Story) -> None:
    quick.hold_writes()
    quick.member("a").joins(expect="MEMBER_ID_REQUIRED").deletes_group()
    quick.end_writes(FAILS)
    assert quick.world.group("g") is None


def test_a_failed_commit_does_not_end_a_group_of_which_another_record_is_on_its_way(quick: Story) -> None:
    """The commit founded it, then members came and went: that it is Empty now will be in the log."""
    quick.hold_writes()
    a = quick.member("a").commits({"t:0": 7})
    a.enters(session=6_000)
    quick.advance(ms=6_000)
    quick.expect(state=ClassicGroupState.EMPTY, generation=2)
    quick.world.end_write(FAILS)
    quick.expect(state=ClassicGroupState.EMPTY, generation=2)
    quick.end_writes()
    quick.crash()
    quick.expect(state=ClassicGroupState.EMPTY, generation=2)


def test_if_neither_deletion_nor_rebirth_is_written_the_name_is_not_lost(quick: Story) -> None:
    a = quick.stable("a")[0]
    a.leaves().member_id = ""
    quick.hold_writes()
    a.deletes_group()
    a.joins()
    quick.end_writes(FAILS)
    assert quick.world.group("g") is not None  # for the log still has it
    quick.crash()
    assert quick.state is ClassicGroupState.EMPTY


def test_the_death_of_a_group_is_told_before_the_birth_of_the_next(quick: Story) -> None:
    """Else the ledger would end a rebalance of the new group with the old one."""
    a = quick.stable("a")[0]
    a.leaves().member_id = ""
    quick.hold_writes()
    a.deletes_group()
    a.joins()
    quick.end_writes()
    a.joins()
    lives = [type(fact) for fact in quick.world.facts if isinstance(fact, GroupCreated | GroupDied)]
    assert lives == [GroupCreated, GroupDied, GroupCreated]
    assert (
        quick.state is ClassicGroupState.PREPARING_REBALANCE
        and quick.rebalances[-1].outcome is RebalanceOutcome.RUNNING
    )


def test_a_group_that_is_being_deleted_when_its_coordinator_moves_is_read_back(quick: Story) -> None:
    """C4: the deletion may never have reached the log; nobody here will know."""
    a = quick.member("a").commits({"t:0": 7}, expect="ok")
    quick.hold_writes()
    a.deletes_group()
    quick.move_coordinator()
    assert a.answer is ErrorCode.NOT_COORDINATOR and offset_of(quick.group) == 7
    lives = [type(fact) for fact in quick.world.facts if isinstance(fact, GroupDied | GroupUnloaded | GroupLoaded)]
    assert lives == [GroupUnloaded, GroupLoaded]


# --- a slow disk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits_ms", [0, 1, 4_999, 5_000, 7_000])
def test_a_commit_behind_a_write_that_hangs_is_answered_in_time_however_late_it_comes(
    quick: Story, waits_ms: int
) -> None:
    """Rule 22: `offsets.commit.timeout.ms` is counted for each commit, also when an earlier one has been given up."""
    quick.hold_writes()
    quick.member("a").commits({"t:0": 1})
    quick.advance(ms=waits_ms)
    b = quick.member("b").commits({"t:0": 2})
    quick.advance(ms=4_999)
    assert not b.answer
    quick.advance(ms=1)
    assert b.answer.errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    quick.end_writes()
    assert offset_of(quick.group) == 2 and len(quick.world.timers) == 1


def test_a_static_member_whose_new_id_took_longer_than_its_session_can_expire(quick: Story) -> None:
    """Rules 9, 19: while it waited for us its alarm rang in vain; the answer starts its session again."""
    s = quick.stable("s", instance="i", session=6_000)[0]
    quick.hold_writes()
    s.member_id = ""
    s.joins()
    quick.advance(ms=6_000)
    quick.end_writes()
    assert s.answer.error is ErrorCode.NONE
    quick.advance(ms=5_999)
    quick.expect(state=ClassicGroupState.STABLE)
    quick.advance(ms=1)
    quick.expect(members=[])


# --- no time at all ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rebalance_ms", [0, -1, -(2**31)])
def test_a_phase_that_can_only_wait_does_not_spin_on_a_timeout_of_nothing(quick: Story, rebalance_ms: int) -> None:
    """Rule 6: only static members, none rejoined: the timer is armed again, for a second at least."""
    a = quick.stable("a")[0]
    s = quick.stable("s", instance="i", session=30_000)[0]
    s.member_id = ""
    s.joins(rebalance=rebalance_ms, expect="follows gen 2")
    a.leaves()
    quick.advance(ms=29_000)
    stuck = [fact for fact in quick.world.facts if isinstance(fact, JoinPhaseStuck)]
    assert 20 <= len(stuck) <= 30
    quick.advance(ms=1_000)
    quick.expect(state=ClassicGroupState.EMPTY)


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_a_rebalance_that_died_with_its_coordinator_ends_when_the_group_is_founded_again(quick: Story) -> None:
    """Nothing of the group was in the log, so that nobody could tell before."""
    quick.hold_writes()
    quick.member("a").enters()
    quick.crash()
    assert quick.world.group("g") is None
    quick.member("a").member_id = ""
    quick.member("a").joins(expect="MEMBER_ID_REQUIRED")
    assert [one.outcome for one in quick.rebalances] == [RebalanceOutcome.LOST]


def test_a_heartbeat_is_answered_at_once_even_while_its_group_is_being_deleted(quick: Story) -> None:
    """Section 2: an Empty group and an absent one say the same, so there is nothing to wait for."""
    a = quick.stable("a")[0]
    a.leaves()
    quick.hold_writes()
    quick.member("admin").deletes_group(expect="-")
    a.beats(expect="UNKNOWN_MEMBER_ID")


def test_a_second_deletion_waits_for_the_first_and_finds_nothing_left(quick: Story) -> None:
    a = quick.member("a").commits({"t:0": 7})
    quick.hold_writes()
    a.deletes_group()
    token = quick.world.token()
    quick.world.send(DeleteGroup(token, "g"))
    assert token not in quick.world.replies
    quick.end_writes()
    assert quick.world.replies[token] is ErrorCode.GROUP_ID_NOT_FOUND
