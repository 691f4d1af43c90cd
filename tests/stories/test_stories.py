"""The scenario language itself: a story that fails says what it saw, in a form that can be played."""

from __future__ import annotations

import pytest

from coterie.coordinator.classic import ClassicGroupState
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


CONSUMER_GROUP = """
    at_ms | who | says                           | hears                | group
    0     | a   | heartbeat epoch=0              | epoch 2: 0 1 2 3 4 5 | Stable
    1000  | b   | heartbeat epoch=0 instance=i-b | epoch 3: nothing     | Reconciling
    1000  | a   | heartbeat                      | epoch 2: 0 1 2       | Reconciling
    1000  | b   | heartbeat                      | epoch 3              | Reconciling
    1010  | a   | heartbeat owned=0,1,2          | epoch 3              | Reconciling
    1010  | b   | heartbeat                      | epoch 3: 3 4 5       | Stable
    1010  | a   | heartbeat epoch=7              | FENCED_MEMBER_EPOCH  | Stable
    2000  |     | (coordinator moves)            | -                    | Stable
    2000  | b   | heartbeat epoch=-2             | epoch -2             | Reconciling
    2000  | b   | heartbeat epoch=0              | epoch 3: 3 4 5       | Stable
    2010  | b   | heartbeat epoch=-1             | epoch -1             | Assigning
    2010  | c   | heartbeat epoch=4              | UNKNOWN_MEMBER_ID    | Assigning
"""


def test_members_of_a_consumer_group_send_one_request() -> None:
    """K3, K8, K13, K14: they join, change over, are fenced and leave by ConsumerGroupHeartbeat."""
    story = check_story(CONSUMER_GROUP)
    assert str(story).split() == CONSUMER_GROUP.split()
    with pytest.raises(AssertionError, match="epoch 2: 0 1 2 3 4 5"):
        check_story(CONSUMER_GROUP.replace("0 1 2 3 4 5", "0 1 2 3 4  "))


def test_a_difference_prints_the_grid_that_was_seen() -> None:
    wrong = GRID.replace("a: leads gen 1  ", "a: follows gen 1")
    with pytest.raises(AssertionError, match="a: leads gen 1") as failure:
        check_story(wrong)
    assert "it should have been:" in str(failure.value)
    assert "a: follows gen 1" in str(failure.value)


def test_a_failed_expectation_prints_the_grid_too(group: Story) -> None:
    group.stable("a")
    with pytest.raises(AssertionError, match=r"expected the group to be Empty.*\n(.*\n)*.*sync a=61"):
        group.expect(state=ClassicGroupState.EMPTY)
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
