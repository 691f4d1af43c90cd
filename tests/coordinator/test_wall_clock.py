"""What is written has the wall clock's time; what is counted does not follow it; what is deleted does not trust it."""

from __future__ import annotations

import pytest

from coterie.coordinator.classic import ClassicGroupState
from coterie.coordinator.wall_clock import DOUBT_MS, STEP_MS, WallClock
from coterie.facts import MemberExpired, OffsetsExpired
from coterie.protocol.offsets_topic import read_record
from coterie.stories import Story

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.fixture
def story() -> Story:
    return Story(offsets_retention_minutes=24 * 60)


def set_clock(story: Story, ahead_ms: int) -> int:
    return story.world.shard.wall.read(ahead_ms, story.world.now_ms)


def test_a_clock_that_is_slewed_was_not_set() -> None:
    wall = WallClock()
    for ahead_ms in range(0, 10 * STEP_MS, STEP_MS):
        assert wall.read(ahead_ms, 0) == 0
        assert wall.at(5) == wall.surely(5) == 5 + ahead_ms


def test_a_clock_that_was_set_forward_is_doubted_for_an_hour() -> None:
    wall = WallClock()
    assert wall.read(DAY, 1_000) == DAY
    assert (wall.at(1_000), wall.surely(1_000)) == (1_000 + DAY, 1_000)
    assert wall.read(2 * DAY, 2_000) == DAY  # and once more: what it was before the first time counts
    assert wall.surely(2_000) == 2_000
    assert wall.surely(2_000 + DOUBT_MS) == 2_000 + DOUBT_MS + 2 * DAY


def test_a_clock_that_was_set_back_is_believed() -> None:
    wall = WallClock()
    assert wall.read(-DAY, 1_000) == -DAY
    assert wall.at(1_000) == wall.surely(1_000) == 1_000 - DAY
    assert wall.read(0, 2_000) == DAY
    assert wall.surely(2_000) == 2_000 - DAY


def test_commits_and_states_are_stamped_by_the_wall_clock(story: Story) -> None:
    (a,) = story.stable("a")
    set_clock(story, 5 * HOUR)
    wall_ms = story.world.now_ms + 5 * HOUR
    a.commits({"t:0": 1})
    a.leaves()
    entries = [read_record(entry.key, entry.value) for entry in story.world.log]
    commit, group = entries[-2].value, entries[-1].value  # type: ignore[union-attr]
    assert commit.commit_timestamp_ms == wall_ms  # type: ignore[union-attr]
    assert group.state_timestamp_ms == wall_ms  # type: ignore[union-attr]


@pytest.mark.parametrize("ahead_ms", [365 * DAY, -365 * DAY])
def test_nobodys_session_ends_with_a_clock_that_is_set(story: Story, ahead_ms: int) -> None:
    a, b = story.stable("a", "b", session=10_000)
    story.advance(ms=9_000)
    set_clock(story, ahead_ms)
    story.advance(ms=999)
    a.beats(expect="ok")
    story.expect(state=ClassicGroupState.STABLE, members=["a", "b"])
    story.advance(ms=1)
    story.emitted(MemberExpired, member_id=b.member_id)


def test_offsets_do_not_expire_when_the_clock_goes_wrong_and_is_set_right(story: Story) -> None:
    a = story.member("a").commits({"t:0": 1}, gen=-1)
    set_clock(story, 365 * DAY)
    story.advance(ms=30 * MINUTE)
    a.fetches(expect="t:0=1")
    set_clock(story, 0)
    story.advance(ms=12 * HOUR)
    a.fetches(expect="t:0=1")
    story.advance(ms=12 * HOUR)
    story.emitted(OffsetsExpired, partitions=[("t", 0)])


def test_offsets_expire_though_the_clock_was_set_back(story: Story) -> None:
    """Later by as much, and not never."""
    a = story.member("a").commits({"t:0": 1}, gen=-1)
    set_clock(story, -2 * HOUR)
    story.advance(ms=DAY)
    a.fetches(expect="t:0=1")
    story.advance(ms=2 * HOUR)
    a.fetches(expect="nothing")
