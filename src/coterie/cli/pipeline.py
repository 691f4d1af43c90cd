"""`coterie pipeline`: start the export of group history with Spark, and print its Parquet tables without Spark."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from coterie.cli.options import BOOTSTRAP, CommandError, properties_of
from coterie.cli.output import Cell, Rows, fitted, show
from coterie.errors import CoterieError
from coterie.extras import how_to_install
from coterie.java import why_no_java

if TYPE_CHECKING:
    from coterie.spark.pipeline.schemas import TableSchema


def run_groups(
    *,
    out: str,
    bootstrap: str | None,
    config: Path | None,
    sets: Sequence[str],
    follow: bool,
    every: float,
    records_per_batch: int,
    keep: int | None,
    keep_lag: int | None,
    master: str | None,
) -> None:
    with spark_required():
        from coterie.spark.pipeline.groups_pipeline import PipelineOptions
        from coterie.spark.pipeline.submit import run

        options = PipelineOptions(
            out,
            kafka_of(bootstrap, config, sets),
            records_per_batch=records_per_batch,
            every_s=every,
            keep_days=keep,
            keep_lag_hours=keep_lag,
        )
        run(options, follow=follow, master=master, say=say)


@contextmanager
def spark_required() -> Iterator[None]:
    """Say what is missing if Spark or Java is, and say an error of Spark's in one line."""
    try:
        from pyspark.errors import PySparkException  # before the others: what is missing is named by this one

        import coterie.spark.pipeline.submit  # noqa: F401
    except ImportError as missing:
        raise CoterieError(
            f"{missing}: this command needs Spark, and Java 17 or later: {how_to_install('spark')}"
        ) from None
    no_java = why_no_java("Spark", 17)
    if no_java is not None:
        raise CoterieError(no_java)
    try:
        yield
    except PySparkException as error:
        raise CoterieError(_why(error)) from None


def say(text: str) -> None:
    """Report progress on stderr."""
    typer.echo(text, err=True)


def kafka_of(bootstrap: str | None, config: Path | None, sets: Sequence[str]) -> Mapping[str, str]:
    """Return the settings of the client, as options of the source."""
    from coterie.spark.pipeline.submit import kafka_options

    return {"kafka.bootstrap.servers": BOOTSTRAP, **kafka_options(bootstrap, sets, properties_of(config))}


def _why(error: BaseException) -> str:
    """Return the last line of Spark's message that names an error of Coterie, or else the first line."""
    lines = str(error).splitlines() or [type(error).__name__]
    own = [line for line in lines if line.startswith(("coterie.", "coterie: "))]
    return own[-1] if own else lines[0]


# --- show -------------------------------------------------------------------------------------------------------------

TABLE_COLUMNS: Mapping[str, Sequence[str]] = {
    "commits": ("commit_ms", "group_id", "topic", "partition", "offset", "metadata", "tombstone"),
    "generations": ("log_ms", "group_id", "generation", "protocol", "assignor", "members", "settled", "note"),
    "ownership": ("group_id", "topic", "partition", "member_id", "began_ms", "ended_ms", "ended_by"),
    "owners": ("group_id", "topic", "partition", "member_id", "began_ms", "first_generation"),
    "rebalances": (
        *("ended_ms", "group_id", "generation", "evidence", "cause", "culprit"),
        *("duration_ms", "unassigned_ms"),
    ),
    "lag": (
        *("group_id", "topic", "partition", "at_ms", "committed", "log_end"),
        *("records_behind", "seconds_behind", "seconds_from"),
    ),
    "group_lag": ("group_id", "at_ms", "partitions", "owned", "records_behind", "most_behind", "seconds_behind"),
    "lag_hours": (
        *("group_id", "topic", "partition", "hour_ms", "measurements"),
        *("records_behind_max", "records_behind_avg", "seconds_behind_max"),
    ),
    "health": ("group_id", "state", "members", "records_behind", "seconds_behind", "rebalances_last_hour", "verdict"),
    "skipped": ("kind", "reason", "records", "log_topic", "log_partition", "first_offset", "last_offset"),
}
"""The columns of each table that are shown by default; --all-columns shows the others."""
WORDY = frozenset({"CAUSE", "CULPRIT", "MEMBER_ID", "METADATA", "NOTE", "REASON", "VERDICT"})
"""Columns that may be cut to fit. Numbers, times and names that a user may type again may not."""
WIDTH = 120
"""The width if there is no terminal."""

_TIMES = ("log_ms", "ended_ms", "at_ms", "hour_ms", "began_ms")
"""Rows are sorted by the first of these columns that the table has."""
_PLACE = ("group_id", "topic", "partition")
_BY_PLACE = frozenset({"lag", "group_lag", "lag_hours", "owners", "health"})
"""Tables that are sorted by group and partition; the others are sorted by time."""
_SPANS = frozenset({"duration_ms", "held_ms", "unassigned_ms"})
"""Columns in milliseconds that are durations."""
_SAME_REBALANCE_MS = 60_000
"""Two rows of one generation are the same rebalance if their ends differ by at most this time.

A group that was deleted begins its generations again.
"""
_GROUPS_NAMED = 20


def show_table(
    name: str, out: Path, *, group: str | None, last: int, output: str, all_columns: bool, both: bool
) -> None:
    try:
        found = read_table(name, out, group=group, last=last, both=both)
    except ImportError as missing:
        raise CoterieError(
            f"{missing}: pyarrow is needed to read the Parquet tables: {how_to_install('spark')}"
        ) from None
    notes = list(found.notes)
    if output == "table":
        wanted = found.columns if all_columns else TABLE_COLUMNS[name]
        rows = [[_table_cell(column, cell) for column, cell in row.items()] for row in _picked(found, wanted)]
        shown = Rows([_heading(column) for column in wanted], rows)
        if not all_columns:
            shown = fitted(shown, shutil.get_terminal_size((WIDTH, 0)).columns, WORDY)
            if len(wanted) < len(found.columns) and rows:
                notes.append(
                    f"{len(wanted)} of {len(found.columns)} columns; --all-columns shows all of them, untruncated"
                )
    else:
        as_text = _unchanged if output == "json" else _as_text
        shown = Rows(found.columns, [[as_text(cell) for cell in row] for row in found.rows])
    show(shown, output)
    for note in notes:
        typer.echo(note, err=True)


def _picked(found: Rows, wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    for row in found.rows:
        cells = dict(zip(found.columns, row, strict=True))
        yield {column: cells[column] for column in wanted}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_table(name: str, out: Path, *, group: str | None = None, last: int | None = None, both: bool = True) -> Rows:
    """Return the latest rows with all columns. `both` keeps the derived rows of rebalances that were observed."""
    import pyarrow.compute as pc

    from coterie.spark.pipeline.schemas import TABLES

    table = TABLES.get(name)
    if table is None:
        nearest = get_close_matches(name, TABLES, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"the tables are {', '.join(TABLES)}"
        raise CommandError(f"unknown table {name}: {hint}")
    if not out.is_dir():
        raise CommandError(f"directory {out} does not exist: run `coterie pipeline groups --out {out}` first")
    columns = [column.name for column in table.columns]
    if group is not None and "group_id" not in columns:
        raise CommandError(f"{name} has no group column: leave --group out")
    found = _dataset(table, out).to_table(filter=None if group is None else pc.field("group_id") == group)
    notes = []
    if not found.num_rows:
        if group is not None:
            _check_group_exists(group, out)
        notes.append(f"{name} has no rows" + (f" for group {group!r}" if group is not None else ""))
    if name == "rebalances" and not both:
        is_duplicate = _derived_duplicates(found)
        found = found.filter([not each for each in is_duplicate])
        if any(is_duplicate):
            notes.append(f"{sum(is_duplicate)} derived rows of recorded rebalances are hidden; --both shows them")
    place = [column for column in _PLACE if column in columns]
    time = [column for column in _TIMES if column in columns][:1]
    found = found.sort_by([(column, "ascending") for column in (*time, *place)]) if time or place else found
    if last is not None and found.num_rows > last:
        notes.append(f"the last {last} of {found.num_rows} rows; --last shows more")
        found = found.slice(found.num_rows - last)
    if name in _BY_PLACE:
        found = found.sort_by([(column, "ascending") for column in (*place, *time)])
    return Rows(columns, [list(row.values()) for row in found.to_pylist()], notes)


def _dataset(table: TableSchema, out: Path) -> Any:
    import pyarrow.dataset as ds

    if any((out / table.name).glob("batch=*")):
        raise CommandError(
            f"{out} has tables of an earlier release: run `coterie pipeline groups --out {out}`, which migrates them"
        )
    folders = sorted((out / table.name).glob("date=*/*"), key=_number)
    if table.is_snapshot:
        folders = folders[-1:]
    files = [str(file) for folder in folders for file in sorted(folder.glob("*.parquet"))]
    return ds.dataset(files, schema=table.arrow, format="parquet")


def _number(folder: Path) -> int:
    """Return the number of a batch, or the time of a measurement; a day that is compacted is older than these."""
    number = folder.name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1


def _check_group_exists(group: str, out: Path) -> None:
    """Raise if no table has rows of the group."""
    from coterie.spark.pipeline.schemas import TABLES

    by_group = [table for table in TABLES.values() if "group_id" in table.arrow.names]
    groups: set[str] = set()
    for table in by_group:
        for batch in _dataset(table, out).to_batches(columns=["group_id"]):
            groups.update(batch.column(0).unique().to_pylist())
    if group in groups:
        return
    near = get_close_matches(group, groups, n=_GROUPS_NAMED)
    named = [*near, *sorted(groups.difference(near))][:_GROUPS_NAMED]
    more = f" and {len(groups) - len(named)} more" if len(groups) > len(named) else ""
    there = f"the groups are {', '.join(named)}{more}" if groups else "the tables have no groups"
    raise CommandError(f"no rows for group {group!r}; {there}")


def _derived_duplicates(rebalances: Any) -> list[bool]:
    """Return for each row whether it is derived and its rebalance was observed, too."""
    rows = rebalances.select(["evidence", "group_id", "generation", "ended_ms"]).to_pylist()
    observed: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows:
        if row["evidence"] == "observed" and row["ended_ms"] is not None:
            observed[row["group_id"], row["generation"]].append(row["ended_ms"])
    return [
        row["evidence"] == "derived"
        and row["generation"] is not None
        and row["ended_ms"] is not None
        and _is_near(row["ended_ms"], observed.get((row["group_id"], row["generation"]), ()))
        for row in rows
    ]


def _is_near(at_ms: int, others: Iterable[int]) -> bool:
    return any(abs(at_ms - other) <= _SAME_REBALANCE_MS for other in others)


# --- cells ------------------------------------------------------------------------------------------------------------


def _is_time(column: str) -> bool:
    return column.endswith("_ms") and column not in _SPANS


def _heading(column: str) -> str:
    return f"{column.removesuffix('_ms').upper()} (UTC)" if _is_time(column) else column.upper()


def _table_cell(column: str, value: Any) -> Cell:
    if value is not None and _is_time(column):
        return _time(value)
    if isinstance(value, list):
        return ",".join(value) if all(isinstance(one, str) for one in value) else f"{len(value)}"
    return value if isinstance(value, str | int | None) else f"{value:.1f}"


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03}"
    except (ValueError, OverflowError, OSError):  # a commit may contain any number
        return str(ms)


def _unchanged(value: Any) -> Any:
    return value


def _as_text(value: Any) -> Cell:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
