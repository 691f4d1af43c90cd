"""What is asked: families of cases, each a file under recorded/, made from tables.

Start with `states.py`. A case is text, so that a transcript can be read without this room.
"""

from __future__ import annotations

from conformance.cases.family import Family
from conformance.cases.errors import FAMILIES as ERRORS
from conformance.cases.states import FAMILIES as STATES

__all__ = ["FAMILIES"]

FAMILIES: list[Family] = [*STATES, *ERRORS]
