"""Run one group step by step with a virtual clock, by methods or from a text grid.

It is for tests of group behaviour. Read `story.py` first.
"""

from __future__ import annotations

from coterie.stories.grid import StoryStep, show
from coterie.stories.story import PARKED, Actor, Story, check_story
from coterie.stories.world import StoryWorld

__all__ = ["PARKED", "Actor", "Story", "StoryStep", "StoryWorld", "check_story", "show"]
