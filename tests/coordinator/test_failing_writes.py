"""When the disk is slow or says no, at the moments that random lives of groups found to matter."""

from __future__ import annotations

import pytest

from coterie.errors import ErrorCode
from coterie.facts import JoinPhaseStuck
from coterie.group import Group, State
from coterie.stories import Story

FAILS = ErrorCode.NOT_ENOUGH_REPLICAS


def offset_of(group: Group, topic: str = "t") -> int | None:
    stored = group.offsets.get(topic, {}).get(0)
    return stored.offset if stored else None


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
    quick.expect(state=State.EMPTY)
