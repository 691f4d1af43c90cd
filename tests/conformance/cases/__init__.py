"""What is asked: families of cases, each a file under recorded/, made from tables.

Start with `states.py`. A case is text, so that a transcript can be read without this room.
"""

from __future__ import annotations

from conformance.cases import errors, members, restarts, states, timers, walks
from conformance.cases.family import Family

__all__ = ["FAMILIES"]

FAMILIES: list[Family] = [
    family for module in (states, errors, members, walks, timers, restarts) for family in module.FAMILIES
]
