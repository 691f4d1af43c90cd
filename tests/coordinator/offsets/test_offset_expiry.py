"""Rule 23, KIP-211: what expires, when, and what does not."""

from __future__ import annotations

import pytest

from coterie.coordinator.classic import ClassicGroupState
from coterie.facts import GroupDied, OffsetsExpired
from coterie.stories import Story

MINUTE = 60_000
CHECK = 10 * MINUTE


@pytest.fixture
def story() -> Story:
    """Offsets are kept for an hour, and looked at every ten minutes."""
    return Story(offsets_retention_minutes=60)


def test_a_simple_group_keeps_each_offset_from_its_commit_on(story: Story) -> None:
    """Rule 23."""
    a = story.member("a").commits({"t:0": 1}, gen=-1)
    story.advance(ms=30 * MINUTE)
    a.commits({"t:1": 2}, gen=-1)
    story.advance(ms=30 * MINUTE)
    a.fetches(expect="t:1=2")
    story.emitted(OffsetsExpired, partitions=[("t", 0)])
    story.advance(ms=30 * MINUTE)
    story.expect(state=ClassicGroupState.DEAD)
    story.emitted(GroupDied)


def test_an_empty_group_keeps_them_from_when_it_became_empty(story: Story) -> None:
    """Rule 23."""
    (a,) = story.stable("a", session=1_800_000, rebalance=1_800_000)
    a.commits({"t:0": 1})
    for _ in range(4):
        story.advance(ms=20 * MINUTE)
        a.beats(expect="ok")
    a.leaves()
    story.advance(ms=50 * MINUTE)
    a.fetches(expect="t:0=1")
    story.advance(ms=20 * MINUTE)
    a.fetches(expect="nothing")
    story.expect(state=ClassicGroupState.DEAD)


def test_a_stable_consumer_loses_only_what_nobody_subscribes_to(story: Story) -> None:
    """Rule 23: from each commit."""
    (a,) = story.stable("a", session=1_800_000, rebalance=1_800_000, topics=("t",))
    a.commits({"t:0": 1, "old:0": 2})
    story.advance(ms=29 * MINUTE)
    a.beats()
    story.advance(ms=29 * MINUTE)
    a.beats()
    a.fetches(expect="t:0=1 old:0=2")
    story.advance(ms=2 * CHECK)
    a.fetches(expect="t:0=1")
    story.expect(state=ClassicGroupState.STABLE)


def test_nothing_expires_in_a_stable_group_of_another_type(story: Story) -> None:
    """Rule 23: its bytes are not looked into, so nobody knows what it still reads."""
    (a,) = story.stable("a", session=1_800_000, rebalance=1_800_000, type="connect")
    a.commits({"old:0": 2})
    for _ in range(6):
        story.advance(ms=25 * MINUTE)
        a.beats(expect="ok")
    a.fetches(expect="old:0=2")


def test_nothing_expires_while_a_rebalance_prepares(story: Story) -> None:
    """Rule 23: who will read what is being settled."""
    a, b = story.stable("a", "b", session=1_800_000, rebalance=600 * MINUTE)
    a.commits({"old:0": 2})
    a.joins()
    for _ in range(6):
        story.advance(ms=25 * MINUTE)
        b.beats(expect="REBALANCE_IN_PROGRESS")
    b.fetches(expect="old:0=2")


def test_a_commit_with_a_retention_of_its_own_expires_by_that(story: Story) -> None:
    """Rule 23: OffsetCommit 2-4."""
    a = story.member("a").commits({"t:0": 1}, gen=-1, retention=CHECK)
    a.commits({"t:1": 1}, gen=-1, retention=5 * 60 * MINUTE)
    story.advance(ms=CHECK)
    a.fetches(expect="t:1=1")
    story.advance(ms=2 * 60 * MINUTE)
    a.fetches(expect="t:1=1")


def test_an_empty_group_without_offsets_is_gone_at_the_next_check(story: Story) -> None:
    """Rule 23: a never finished join included; its next generation is 1."""
    (a,) = story.stable("a", session=10_000)
    a.leaves()
    story.expect(state=ClassicGroupState.EMPTY, generation=2)
    story.member("b").joins(session=1_800_000, expect="MEMBER_ID_REQUIRED")
    story.advance(ms=CHECK)
    story.expect(state=ClassicGroupState.DEAD)
    assert story.world.log[-1].value is None
    story.member("b").joins(expect="UNKNOWN_MEMBER_ID")
    story.stable("c")
    story.expect(generation=1)


def test_an_offset_of_an_open_transaction_does_not_expire(story: Story) -> None:
    """Rule 23: nor does its group."""
    a = story.member("a").commits({"t:0": 1}, gen=-1)
    a.commits({"t:0": 2}, gen=-1, producer=7)
    story.advance(ms=70 * MINUTE)
    a.fetches(expect="t:0=1")
    story.expect(state=ClassicGroupState.EMPTY)


def test_a_commit_on_its_way_to_the_log_is_not_expired_behind_its_back(story: Story) -> None:
    """Rule 22: what is acknowledged is never lost."""
    a = story.member("a").commits({"t:0": 1}, gen=-1)
    story.advance(ms=59 * MINUTE)
    story.hold_writes()
    a.commits({"t:0": 2}, gen=-1)
    story.advance(ms=1 * MINUTE)
    story.end_writes()
    a.fetches(expect="t:0=2")
    story.crash()
    a.fetches(expect="t:0=2")
