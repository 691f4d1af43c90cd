"""What a command found, and the one printer that shows it: a table for people, JSON or CSV for programs."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TextIO

__all__ = ["Cell", "Rows", "fitted", "show"]

Cell = str | int | None
"""None: there is nothing to say; a table shows `-`, as Kafka's tools do."""

_GAP = "  "
_CUT = "…"


@dataclass(slots=True)
class Rows:
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    """For people, on stderr: what the rows do not say."""
    errors: Sequence[str] = field(default_factory=list)
    """What did not work, while other things did: on stderr, and the command ends with 1."""


def show(found: Rows, output: str) -> None:
    {"table": _table, "json": _json, "csv": _csv}[output](found, sys.stdout)


def fitted(found: Rows, width: int, wordy: Collection[str]) -> Rows:
    """As a table not wider than that, if cutting the wordy columns is enough: the widest first, none below its heading.

    What is cut ends in `…`.
    """
    texts = [[_shown(cell) for cell in row] for row in found.rows]
    widths = [max(map(len, column)) for column in zip(found.columns, *texts, strict=True)]
    too_much = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    for _ in range(too_much):
        spare = [(widths[at], at) for at, name in enumerate(found.columns) if name in wordy and widths[at] > len(name)]
        if not spare:
            break
        widths[max(spare)[1]] -= 1
    rows = [
        [cell if len(cell) <= wide else cell[: wide - 1] + _CUT for cell, wide in zip(row, widths, strict=True)]
        for row in texts
    ]
    return Rows(found.columns, rows, found.notes, found.errors)


def _table(found: Rows, stream: TextIO) -> None:
    """Columns with two blanks between them, for eyes and for awk; no rows, no header."""
    if not found.rows:
        return
    lines = [list(found.columns), *([_shown(cell) for cell in row] for row in found.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print(_GAP.join(_padded(line, widths)).rstrip(), file=stream)


def _padded(line: Iterable[str], widths: Sequence[int]) -> list[str]:
    return [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]


def _shown(cell: Cell) -> str:
    """What a client calls itself must not move the cursor."""
    text = "-" if cell is None or cell == "" else str(cell)
    return text if text.isprintable() else repr(text)[1:-1]


def _json(found: Rows, stream: TextIO) -> None:
    """One list of objects, a line each."""
    names = [re.sub(r"\W+", "_", re.sub(r" \(.*\)", "", column)).strip("_").lower() for column in found.columns]
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in found.rows]
    print("[" + ",\n ".join(lines) + "]", file=stream)


def _csv(found: Rows, stream: TextIO) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(found.columns)
    writer.writerows(found.rows)
