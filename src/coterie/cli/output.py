"""The output of commands: rows as a table, JSON or CSV; errors and the warnings of a client on stderr."""

from __future__ import annotations

import csv
import json
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

import typer

Cell = str | int | None
"""A table shows `-` for None, as Kafka's tools do."""

_GAP = "  "
_CUT = "…"


@dataclass(slots=True)
class Rows:
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    """Lines for stderr: what the rows do not show."""
    errors: Sequence[str] = field(default_factory=list)
    """Errors of a part of the command: they go to stderr, and the exit status is 1."""


def show(found: Rows, output: str) -> None:
    {"table": _table, "json": _json, "csv": _csv}[output](found, sys.stdout)


def fitted(found: Rows, width: int, wordy: Collection[str]) -> Rows:
    """Cut the cells of `wordy` columns until the table fits `width`: the widest first, none below its heading.

    A cell that was cut ends in `…`. The table stays wider if that is not enough.
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
    """Print columns with two blanks between them; without rows there is no header."""
    if not found.rows:
        return
    lines = [list(found.columns), *([_shown(cell) for cell in row] for row in found.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print(_GAP.join(_padded(line, widths)).rstrip(), file=stream)


def _padded(line: Iterable[str], widths: Sequence[int]) -> list[str]:
    return [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]


def _shown(cell: Cell) -> str:
    """Escape control characters: a client id must not move the cursor."""
    text = "-" if cell is None or cell == "" else str(cell)
    return text if text.isprintable() else repr(text)[1:-1]


def _json(found: Rows, stream: TextIO) -> None:
    """Print one list of objects, one per line."""
    names = [re.sub(r"\W+", "_", re.sub(r" \(.*\)", "", column)).strip("_").lower() for column in found.columns]
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in found.rows]
    print("[" + ",\n ".join(lines) + "]", file=stream)


def _csv(found: Rows, stream: TextIO) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(found.columns)
    writer.writerows(found.rows)


# --- errors and warnings ----------------------------------------------------------------------------------------------


def complain(problem: str) -> None:
    """Print an error to stderr."""
    first, *rest = problem.splitlines() or [""]
    typer.echo("\n".join([f"coterie: {first}", *(f"         {line}" for line in rest)]), err=True)


def message_of(error: Exception) -> str:
    """Return file and reason of an OSError, without errno and quotes."""
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror[:1].lower() + error.strerror[1:]
        return f"{error.filename}: {reason}" if error.filename is not None else error.strerror
    return str(error)


class _WarningHandler(logging.Handler):
    def __init__(self, say: Callable[[str], None], hides: Callable[[object], bool]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self._hides = hides

    def emit(self, record: logging.LogRecord) -> None:
        if not self._hides(getattr(record, "event", None)):
            self._say(record.getMessage().partition("] ")[2])


@contextmanager
def warnings_shown(logger: str, say: Callable[[str], None], hides: Callable[[object], bool]) -> Iterator[None]:
    """Pass each warning to `say`, without the name of the client, unless `hides` says the command reports it itself."""
    handler = _WarningHandler(say, hides)
    log = logging.getLogger(logger)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
