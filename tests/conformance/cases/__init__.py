"""What is asked: families of cases, each a file under recorded/.

Some are made from tables; start with `states.py`. Others are written by hand, in stories/. All are text in the end, so
that a transcript can be read without this room.
"""

from __future__ import annotations

from conformance.cases import errors, restarts, signs, states, walks
from conformance.cases.family import STORIES, Family

__all__ = ["FAMILIES"]

_MADE = [family for module in (states, errors, walks, signs, restarts) for family in module.FAMILIES]
_PROFILES = ("plain", "small", "timers", "delayed", "forgetful", "killed", "stopped")
FAMILIES: list[Family] = sorted([*_MADE, *STORIES], key=lambda family: _PROFILES.index(family.profile))
"""One broker after the other, and on each the tables first: setups come before what is after them."""
