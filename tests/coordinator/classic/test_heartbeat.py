"""Rules 14, 15: a heartbeat moves a deadline, and is how a member hears of a rebalance."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.coordinator.classic import ClassicGroupState
from coterie.stories import Story


@pytest.mark.parametrize(
    ("options", "heard"),
    [
        ({}, "ok"),
        ({"gen": 0}, "ILLEGAL_GENERATION"),
        ({"gen": 2}, "ILLEGAL_GENERATION"),
        ({"gen": -1}, "ILLEGAL_GENERATION"),
        ({"id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"id": "nobody", "gen": 0}, "UNKNOWN_MEMBER_ID"),
        ({"instance": "i"}, "UNKNOWN_MEMBER_ID"),
        ({"instance": "i", "gen": 0}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_heartbeat_is_checked_in_kafkas_order(group: Story, options: dict[str, Any], heard: str) -> None:
    """Section 2, order of checks: an unknown member beats an old generation."""
    (a,) = group.stable("a")
    a.beats(expect=heard, **options)


def test_an_old_generation_is_illegal_in_every_state(group: Story) -> None:
    """Section 2, KAFKA-2557."""
    a, b = group.stable("a", "b")
    a.beats(gen=0, expect="ILLEGAL_GENERATION")
    a.joins()
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    b.beats(gen=0, expect="ILLEGAL_GENERATION")
    b.joins()
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE)
    b.beats(gen=1, expect="ILLEGAL_GENERATION")


def test_the_empty_group_id_is_refused() -> None:
    """Section 2, order of checks."""
    Story(group_id="").member("a").beats(expect="INVALID_GROUP_ID")


def test_a_member_hears_of_a_rebalance_by_its_heartbeat(group: Story) -> None:
    """Rule 15: nothing is pushed; and in Completing it is told nothing special."""
    a, b = group.stable("a", "b")
    a.joins()
    b.beats(expect="REBALANCE_IN_PROGRESS")
    b.joins()
    b.beats(expect="ok")
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE)


@pytest.mark.parametrize(
    "state", [ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE]
)
def test_an_answered_heartbeat_starts_the_session_anew(group: Story, state: ClassicGroupState) -> None:
    """Rule 14: answered NONE or REBALANCE_IN_PROGRESS."""
    a, b = group.stable("a", "b", session=10_000)
    if state is not ClassicGroupState.STABLE:
        a.joins()
    if state is ClassicGroupState.COMPLETING_REBALANCE:
        b.joins()
    group.expect(state=state)
    group.advance(ms=5_000)
    b.beats()
    assert group.group.members[b.member_id].deadline_ms == group.world.now_ms + 10_000


def test_a_refused_heartbeat_moves_nothing(group: Story) -> None:
    """Rule 14."""
    (a,) = group.stable("a", session=10_000)
    deadline_ms = group.group.members[a.member_id].deadline_ms
    group.advance(ms=5_000)
    a.beats(gen=0)
    assert group.group.members[a.member_id].deadline_ms == deadline_ms


def test_a_heartbeat_arms_no_timer(group: Story) -> None:
    """The deadline is a field; the timer looks at it when it rings."""
    (a,) = group.stable("a", session=10_000)
    group.advance(ms=5_000)
    armed, heap = dict(group.world.timers._armed), list(group.world.timers._heap)
    a.beats(expect="ok")
    assert (group.world.timers._armed, group.world.timers._heap) == (armed, heap)
