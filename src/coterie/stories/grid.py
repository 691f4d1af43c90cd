"""A story as a text grid: one row a step, five columns.

    at_ms | who | says      | hears              | group
    0     | a   | join      | MEMBER_ID_REQUIRED | Empty
    0     | a   | join      | -                  | PreparingRebalance
    3000  |     |           | a: leads gen 1     | CompletingRebalance
    3000  | a   | sync a=01 | -                  | CompletingRebalance
    3004  |     | (on disk) | a: 01              | Stable

A failing story is printed in it, so what a report pastes is a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from coterie.errors import CoterieError

__all__ = ["Step", "read", "show"]

_HEAD = ("at_ms", "who", "says", "hears", "group")


@dataclass(frozen=True, slots=True)
class Step:
    at_ms: int
    who: str
    says: str
    hears: str
    group: str


def show(steps: Sequence[Step]) -> str:
    rows = [_HEAD, *(tuple(str(cell) for cell in astuple(step)) for step in steps)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return "\n".join(
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def read(text: str) -> list[Step]:
    lines = [line for line in text.splitlines() if line.strip()]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    if not rows or tuple(rows[0]) != _HEAD:
        raise CoterieError(f"a story begins with the line `{' | '.join(_HEAD)}`")
    steps = []
    for line, row in zip(lines[1:], rows[1:], strict=True):
        if len(row) != len(_HEAD) or not row[0].isdigit():
            raise CoterieError(f"a step has {len(_HEAD)} columns, the first of them a time in ms; this one: {line!r}")
        steps.append(Step(int(row[0]), *row[1:]))
    return steps
