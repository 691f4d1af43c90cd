"""What a command found, and the one printer that shows it: a table for people, JSON or CSV for programs."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TextIO

__all__ = ["Cell", "Rows", "show"]

Cell = str | int | None
"""None: there is nothing to say; a table shows `-`, as Kafka's tools do."""

_GAP = "  "


@dataclass(slots=True)
class Rows:
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    """For people, on stderr: what the rows do not say."""
    errors: Sequence[str] = field(default_factory=list)
    """What did not work, while other things did: on stderr, and the command ends with 1."""


def show(found: Rows, output: str, stream: TextIO | None = None) -> None:
    stream = stream or sys.stdout
    {"table": _table, "json": _json, "csv": _csv}[output](found, stream)


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
