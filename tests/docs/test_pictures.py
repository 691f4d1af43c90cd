"""The pictures of how-a-rebalance-works.md show what the blocks below them say, all of it."""

from __future__ import annotations

from html import escape

from coterie.stories.grid import read
from docs.blocks import ROOT
from pictures import PICTURES
from share_picture import share_picture
from story_picture import story_picture

GRID = """
    at_ms | who | says      | hears                         | group
    0     | a   | join old  | -                             | PreparingRebalance
    3000  |     |           | a: leads gen 1                | CompletingRebalance
    3000  | a   | sync a=0a | -                             | CompletingRebalance
    3010  |     | (on disk) | a: 0a                         | Stable
    5000  | b   | join old  | -                             | PreparingRebalance
    6000  | a   | beat      | REBALANCE_IN_PROGRESS         | PreparingRebalance
    6001  | a   | join      | leads gen 2, b: follows gen 2 | CompletingRebalance
"""


def test_a_story_is_drawn_with_every_word_and_state_of_it() -> None:
    drawn = story_picture(read(GRID), "who < whom")
    assert "<title>who &lt; whom</title>" in drawn
    for step in read(GRID):
        assert not step.says or f">{escape(step.says)}<" in drawn
        assert f">{step.group}<" in drawn
    for answer in ("leads gen 1", "0a", "leads gen 2", "follows gen 2"):
        assert f">{answer}<" in drawn
    assert drawn.count('marker-end="url(#ask)"') == 5
    assert drawn.count('marker-end="url(#tell)"') == 4
    assert drawn.count('marker-end="url(#no)"') == 1


def test_a_chip_for_each_partition_and_no_box_for_who_is_not_there() -> None:
    drawn = share_picture({"before": {"a": {"t": [0]}, "b": {"t": [1]}}, "after": {"a": {"t": [0, 1]}}}, "shares")
    assert drawn.count('class="chip"') == 4 and drawn.count('class="box"') == 3


def test_every_picture_is_drawn_from_a_block() -> None:
    """By `make docs`; and what it no longer draws is not left behind."""
    there = {f"pictures/{path.name}" for path in (ROOT / "docs" / "pictures").iterdir()}
    assert there == set(PICTURES)
