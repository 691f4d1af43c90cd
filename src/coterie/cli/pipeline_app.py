"""`coterie pipeline`: what can be said. The work is in `pipeline.py` and in `coterie.spark`, loaded when it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import Bootstrap, Output, OutputChoice, Sets

__all__ = ["pipeline_app"]

pipeline_app = typer.Typer(
    no_args_is_help=True,
    help="The log of consumer groups of any Kafka cluster as tables, by Spark.\n\n"
    "Try it: coterie pipeline groups --bootstrap localhost:9092 --out groups --once",
)

Out = Annotated[str, typer.Option("--out", metavar="DIR", help="Where the tables and the checkpoint are.")]


@pipeline_app.command()
def groups(
    out: Out,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, and end; the default.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C or SIGTERM.")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="With --follow: how often.")] = 60.0,
    records_per_batch: Annotated[int, typer.Option(min=1, help="The most that is read at a time.")] = 5_000_000,
    master: Annotated[
        str | None, typer.Option(help="Where Spark runs: local[4], or a cluster.", show_default="local[*]")
    ] = None,
    bootstrap: Bootstrap = None,
    set_: Sets = None,
) -> None:
    """Keep tables of commits, generations, ownership, rebalances, lag and health, as plain Parquet.

    Killed at any moment and started again it reads on: no row is missing or there twice. Progress is told on stderr.
    Needs the extra `spark` and Java 17. docs/pipeline.md has the tables and what they are good for.

    Try it: coterie pipeline groups --bootstrap localhost:9092 --out groups --once
    """
    from coterie.cli.pipeline import run_groups

    if once and follow:
        raise typer.BadParameter("--once and --follow contradict each other: give one of them")
    run_groups(
        out=out,
        bootstrap=bootstrap or "127.0.0.1:9092",
        sets=set_ or [],
        follow=follow,
        every=every,
        records_per_batch=records_per_batch,
        master=master,
    )


@pipeline_app.command()
def show(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="commits, generations, ownership, owners, rebalances, ...")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the tables are.")],
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only this group.")] = None,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="At most so many, the latest.")] = 50,
    all_columns: Annotated[
        bool, typer.Option("--all-columns", help="Every column, in full, however wide; JSON and CSV always have them.")
    ] = False,
    both: Annotated[
        bool, typer.Option("--both", help="Of a rebalance that the broker observed, also what the log tells of it.")
    ] = False,
    output: Output = OutputChoice.table,
) -> None:
    """Print a table. No Spark is started. Times are UTC; in JSON and CSV, milliseconds since 1970.

    For eyes there is a choice of columns that fits the terminal. What was left out is said on stderr.

    Try it: coterie pipeline show health --out groups

    Try it: coterie pipeline show rebalances --out groups --group orders -o json | jq '.[].cause'
    """
    from coterie.cli.pipeline_show import show_table

    show_table(table, out, group=group, last=last, output=output, all_columns=all_columns, both=both)
