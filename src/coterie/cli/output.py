"""The output of commands: rows as a table, JSON, YAML or CSV; errors and the warnings of a client on stderr."""

from __future__ import annotations

import csv
import json
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

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
    wide: Collection[str] = ()
    """Columns that the plain table leaves out."""


def show(found: Rows, output: str) -> None:
    {"table": _table, "wide": _wide, "json": _json, "yaml": _yaml, "csv": _csv}[output](found, sys.stdout)


def show_objects(objects: Sequence[Mapping[str, Any]], output: str) -> None:
    """Print objects with all their parts, as JSON or YAML."""
    text = (
        json.dumps(objects, ensure_ascii=False, indent=1) if output == "json" else "\n".join(_yaml_lines(objects, ""))
    )
    typer.echo(text)


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
    return Rows(found.columns, rows, found.notes, found.errors, found.wide)


def _table(found: Rows, stream: TextIO) -> None:
    """Print columns with two blanks between them, without the wide ones; without rows there is no header."""
    shown = [at for at, name in enumerate(found.columns) if name not in found.wide]
    rows = [[row[at] for at in shown] for row in found.rows]
    _wide(Rows([found.columns[at] for at in shown], rows), stream)


def _wide(found: Rows, stream: TextIO) -> None:
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


def _named(found: Rows) -> list[dict[str, Cell]]:
    names = [re.sub(r"\W+", "_", re.sub(r" \(.*\)", "", column)).strip("_").lower() for column in found.columns]
    return [dict(zip(names, row, strict=True)) for row in found.rows]


def _json(found: Rows, stream: TextIO) -> None:
    """Print one list of objects, one per line."""
    lines = [json.dumps(row, ensure_ascii=False) for row in _named(found)]
    print("[" + ",\n ".join(lines) + "]", file=stream)


def _yaml(found: Rows, stream: TextIO) -> None:
    print("\n".join(_yaml_lines(_named(found), "")) if found.rows else "[]", file=stream)


def _yaml_lines(value: Any, indent: str) -> Iterator[str]:
    """Return YAML: lists and mappings as blocks, everything else as JSON, which is YAML too."""
    if isinstance(value, Mapping) and value:
        for name, one in value.items():
            key = name if re.fullmatch(r"[A-Za-z_][\w-]*", name) else json.dumps(name)
            yield from _yaml_entry(f"{indent}{key}:", one, indent + "  ")
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for one in value:
            first, *rest = _yaml_lines(one, indent + "  ")
            yield f"{indent}- {first.removeprefix(indent + '  ')}"
            yield from rest
    else:
        yield f"{indent}{json.dumps(value, ensure_ascii=False)}"


def _yaml_entry(head: str, value: Any, indent: str) -> Iterator[str]:
    is_block = isinstance(value, Mapping | Sequence) and not isinstance(value, str) and value
    if is_block:
        yield head
        yield from _yaml_lines(value, indent)
    else:
        yield f"{head} {json.dumps(value, ensure_ascii=False)}"


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
