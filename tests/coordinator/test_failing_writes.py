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
