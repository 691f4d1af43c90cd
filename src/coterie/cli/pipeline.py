"""`coterie pipeline`: starts it, and prints what it made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer

from coterie.cli.connected import CommandError
from coterie.cli.rows import Cell, Rows, show
from coterie.errors import CoterieError

__all__ = ["read_table", "run_groups", "show_table"]

NO_SPARK = "this needs Spark: pip install 'coterie[spark]', and Java 17 or later"


def run_groups(
    *,
    out: str,
    bootstrap: str,
    sets: Sequence[str],
    follow: bool,
    every: float,
    records_per_batch: int,
    master: str | None,
) -> None:
    try:
        from coterie.spark.pipelines.groups import Wanted
        from coterie.spark.pipelines.submit import kafka_options, run
    except ImportError as missing:
        _fail(f"{missing}: {NO_SPARK}")
    from pyspark.errors import PySparkException

    def say(text: str) -> None:
        typer.echo(text, err=True)

    try:
        wanted = Wanted(out, kafka_options(bootstrap, sets), records_per_batch=records_per_batch, every_s=every)
        run(wanted, follow=follow, master=master, say=say)
    except CoterieError as error:
        _fail(str(error))
    except PySparkException as error:
        _fail(_why(error))


def _why(error: BaseException) -> str:
    """Of what Spark says the last line that names one of our own errors; else the first."""
    lines = str(error).splitlines() or [type(error).__name__]
    ours = [line for line in lines if line.startswith(("coterie.", "coterie: "))]
    return ours[-1] if ours else lines[0]


def _fail(problem: str) -> Any:
    typer.echo(f"coterie: {problem}", err=True)
    raise typer.Exit(1)


# --- show -------------------------------------------------------------------------------------------------------------


def show_table(name: str, out: Path, *, group: str | None, last: int, output: str) -> None:
    try:
        found = read_table(name, out, group=group, last=last)
    except ImportError as missing:
        _fail(f"{missing}: {NO_SPARK}")
    except CoterieError as error:
        _fail(str(error))
    cell = {"table": _for_eyes, "json": _as_it_is, "csv": _as_text}[output]
    columns = list(found.columns)
    rows = [[cell(column, value) for column, value in zip(columns, row, strict=True)] for row in found.rows]
    show(Rows([column.upper() for column in columns] if output == "table" else columns, rows), output)
    for note in found.notes:
        typer.echo(note, err=True)


def read_table(name: str, out: Path, *, group: str | None = None, last: int | None = None) -> Rows:
    """The latest rows, oldest first; all columns."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from coterie.spark.schemas import TABLES

    table = TABLES.get(name)
    if table is None:
        nearest = get_close_matches(name, TABLES, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(TABLES)}"
        raise CommandError(f"there is no table {name}: {hint}")
    if not out.is_dir():
        raise CommandError(f"there is no directory {out}: run `coterie pipeline groups --out {out}` first")
    folders = sorted((out / name).glob("batch=*"), key=lambda each: int(each.name.removeprefix("batch=")))
    if table.is_snapshot:
        folders = folders[-1:]
    columns = [column.name for column in table.columns]
    files = [str(file) for folder in folders for file in sorted(folder.glob("*.parquet"))]
    dataset = ds.dataset(files, schema=table.arrow, format="parquet")
    if group is not None and "group_id" not in columns:
        raise CommandError(f"{name} is not by group: leave --group out")
    wanted = dataset.to_table(filter=None if group is None else pc.field("group_id") == group)
    notes = []
    by = next((column for column in ("log_ms", "ended_ms", "at_ms", "began_ms") if column in columns), None)
    if by is not None:
        wanted = wanted.sort_by(by)
    if last is not None and wanted.num_rows > last:
        notes.append(f"the last {last} of {wanted.num_rows} rows; --last shows more")
        wanted = wanted.slice(wanted.num_rows - last)
    return Rows(columns, [list(row.values()) for row in wanted.to_pylist()], notes)


def _for_eyes(column: str, value: Any) -> Cell:
    if value is not None and column.endswith("_ms") and column not in {"duration_ms", "held_ms", "unowned_ms"}:
        return _time(value)
    if isinstance(value, list):
        return ",".join(value) if all(isinstance(one, str) for one in value) else f"{len(value)}"
    return value if isinstance(value, str | int | None) else f"{value:.1f}"


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03}"
    except (ValueError, OverflowError, OSError):  # a commit may say any number
        return str(ms)


def _as_it_is(_column: str, value: Any) -> Any:
    return value


def _as_text(_column: str, value: Any) -> Cell:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
