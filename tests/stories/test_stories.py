"""The scenario language itself: a story that fails says what it saw, in a form that can be played."""

from __future__ import annotations

import pytest

from coterie.coordinator.classic import State
from coterie.coordinator.classic.effects import Reply
from coterie.errors import CoterieError
from coterie.stories import Story, check_story

GRID = """
    at_ms | who | says                | hears              | group
    0     | a   | join session=6000   | MEMBER_ID_REQUIRED | Empty
    0     | a   | join                | -                  | PreparingRebalance
    3000  |     |                     | a: leads gen 1     | CompletingRebalance
    3000  | a   | sync a=01           | -                  | CompletingRebalance
    3004  |     | (on disk)           | a: 01              | Stable
    3004  | a   | beat                | ok                 | Stable
    3004  | a   | beat gen=7          | ILLEGAL_GENERATION | Stable
    3004  | a   | commit t:0=5        | -                  | Stable
    3010  |     | (on disk)           | a: ok              | Stable
    3010  | a   | fetch               | t:0=5              | Stable
    3010  | a   | delete              | NON_EMPTY_GROUP    | Stable
    3010  |     | (coordinator moves) | -                  | Stable
    3010  | a   | leave               | -                  | Empty
    3010  |     | (disk fails)        | a: NOT_COORDINATOR | Empty
    3010  |     | (crash)             | -                  | Stable
    9010  |     |                     | -                  | Empty
"""


def test_a_grid_can_be_played_and_is_shown_as_it_was_written() -> None:
    story = check_story(GRID)
    assert str(story).split() == GRID.split()


def test_a_difference_prints_the_grid_that_was_seen() -> None:
    wrong = GRID.replace("a: leads gen 1  ", "a: follows gen 1")
    with pytest.raises(AssertionError, match="a: leads gen 1") as failure:
        check_story(wrong)
    assert "it should have been:" in str(failure.value)
    assert "a: follows gen 1" in str(failure.value)


def test_a_failed_expectation_prints_the_grid_too(group: Story) -> None:
    group.stable("a")
    with pytest.raises(AssertionError, match=r"expected the group to be Empty.*\n(.*\n)*.*sync a=61"):
        group.expect(state=State.EMPTY)
    with pytest.raises(AssertionError, match="a to hear UNKNOWN_MEMBER_ID"):
        group.actors["a"].beats(expect="UNKNOWN_MEMBER_ID")
    with pytest.raises(AssertionError, match="no fact like AssertionError"):
        group.emitted(AssertionError)  # type: ignore[type-var]


def test_what_a_failure_prints_can_be_played_again(group: Story) -> None:
    """So that what a report pastes is a test."""
    a, b = group.stable("a", "b", session=10_000, protocols=("range", "sticky"))
    group.advance(ms=5_000)
    a.beats()
    group.advance(ms=5_000)
    b.joins()
    played = str(group).replace("| 61, b: 62 ", "| -         ")
    with pytest.raises(AssertionError, match="Stable"):  # writes are held in a grid, so only the disk is missing
        check_story(played)


@pytest.mark.parametrize(
    ("grid", "complaint"),
    [
        ("", "begins with"),
        ("who | says", "begins with"),
        ("at_ms | who | says | hears | group\nsoon | a | join | - | Empty", "a time in ms"),
        ("at_ms | who | says | hears | group\n0 | a | join | -", "5 columns"),
        ("at_ms | who | says | hears | group\n0 | a | dance | - | Empty", "known are join"),
        ("at_ms | who | says | hears | group\n5 | | | - | Dead\n0 | | | - | Dead", "time goes forward"),
    ],
)
def test_a_grid_that_cannot_be_read_says_why(grid: str, complaint: str) -> None:
    with pytest.raises(CoterieError, match=complaint):
        check_story(grid)


def test_a_token_answered_twice_is_an_error_in_every_story(group: Story) -> None:
    group.world._perform([Reply(1, None)])
    with pytest.raises(CoterieError, match="answered twice"):
        group.world._perform([Reply(1, None)])
