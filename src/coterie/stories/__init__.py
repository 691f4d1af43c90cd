"""The scenario language: a group driven step by step under a clock of its own, as methods or as a text grid.

Used by the tests and by whatever else plays groups. Read `story.py` first.
"""

from __future__ import annotations

from coterie.stories.check import check_story
from coterie.stories.grid import Step, show
from coterie.stories.story import PARKED, Actor, Story
from coterie.stories.world import World

__all__ = ["PARKED", "Actor", "Step", "Story", "World", "check_story", "show"]
