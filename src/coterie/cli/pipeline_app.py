"""`coterie pipeline`: its commands and their options. The work is in `pipeline.py`, loaded when a command runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import Bootstrap, Config, Output, OutputChoice, Sets

pipeline_app = typer.Typer(
    no_args_is_help=True,
    help="Write topics, or the history of consumer groups, of any Kafka cluster to Parquet tables with Spark.\n\n"
    "Try it: coterie pipeline groups --bootstrap localhost:9092 --out groups --once",
)

Out = Annotated[str, typer.Option("--out", metavar="DIR", help="Directory for tables and checkpoint.")]
Master = Annotated[str | None, typer.Option(help="Spark master: local[4], or a cluster URL.", show_default="local[*]")]

Keep = Annotated[int | None, typer.Option(min=1, metavar="DAYS", help="Days to keep.", show_default="all")]


class FormatChoice(StrEnum):
    json = "json"
    avro = "avro"
    protobuf = "protobuf"


class TablesChoice(StrEnum):
    parquet = "parquet"
    delta = "delta"
    iceberg = "iceberg"


class SourceChoice(StrEnum):
    coterie = "coterie"
    kafka = "kafka"


class KeyChoice(StrEnum):
    string = "string"
    binary = "binary"


def _check_once(*, once: bool, follow: bool) -> None:
    if once and follow:
        raise typer.BadParameter("--once and --follow contradict each other: give one of them")


@pipeline_app.command()
def groups(
    out: Out,
    once: Annotated[bool, typer.Option("--once", help="Read to the current end, then exit (default).")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Keep running until Ctrl-C or SIGTERM.")] = False,
    every: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="With --follow: time between batches.")
    ] = 60.0,
    records_per_batch: Annotated[int, typer.Option(min=1, help="Maximum records per batch.")] = 5_000_000,
    keep: Keep = None,
    keep_lag: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="HOURS", help="Hours to keep each lag measurement of a partition.", show_default="as --keep"
        ),
    ] = None,
    master: Master = None,
    bootstrap: Bootstrap = None,
    config: Config = None,
    set_: Sets = None,
) -> None:
    """Export commits, generations, ownership, rebalances, lag and health to Parquet tables.

    If it is killed and started again it continues where it stopped: no row is lost or written twice. Progress is
    written to stderr. Needs the extra `spark` and Java 17. docs/pipeline.md describes the tables.

    Try it: coterie pipeline groups --bootstrap localhost:9092 --out groups --once
    """
    from coterie.cli.pipeline import run_groups

    _check_once(once=once, follow=follow)
    run_groups(
        out=out,
        bootstrap=bootstrap,
        config=config,
        sets=set_ or [],
        follow=follow,
        every=every,
        records_per_batch=records_per_batch,
        keep=keep,
        keep_lag=keep_lag,
        master=master,
    )


@pipeline_app.command()
def topics(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to read.")],
    group: Annotated[str, typer.Option("--group", "-g", help="Group to join.")],
    schema: Annotated[
        str,
        typer.Option(metavar="DDL|FILE", help="Columns, 'id INT NOT NULL, item STRING', or a file."),
    ],
    out: Out,
    format_: Annotated[FormatChoice, typer.Option("--format", metavar="FORMAT", help="json, avro, protobuf.")] = (
        FormatChoice.json
    ),
    skip_bytes: Annotated[int, typer.Option(min=0, metavar="N", help="Bytes to skip before values.")] = 0,
    key: Annotated[KeyChoice, typer.Option(metavar="TYPE", help="string, binary.")] = KeyChoice.string,
    once: Annotated[bool, typer.Option("--once", help="Read to the current end, then exit (default).")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Keep running until Ctrl-C or SIGTERM.")] = False,
    every: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="With --follow: time between batches.")
    ] = 10.0,
    records_per_batch: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum records per batch.")] = 1_000_000,
    tables: Annotated[TablesChoice, typer.Option(metavar="KIND", help="parquet, delta, iceberg.")] = (
        TablesChoice.parquet
    ),
    source: Annotated[
        SourceChoice, typer.Option(metavar="NAME", help="coterie, or kafka: Spark's own, not a member.")
    ] = SourceChoice.coterie,
    keep: Keep = None,
    master: Master = None,
    conf: Annotated[list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark.")] = None,
    bootstrap: Bootstrap = None,
    config: Config = None,
    set_: Sets = None,
) -> None:
    """Read topics as a member of a group, by a schema, to a Parquet table.

    If it is killed and started again it continues where it stopped: no row is lost or written twice. Needs the extra
    `spark` and Java 17. docs/pipeline-topics.md is the guide.

    Try it: coterie pipeline topics orders --group lake --schema 'id INT' --out lake
    """
    from coterie.cli.pipeline_topics import run_topics

    _check_once(once=once, follow=follow)
    run_topics(
        topics=topics,
        group=group,
        schema=schema,
        out=out,
        format_=format_,
        skip_bytes=skip_bytes,
        key=key,
        follow=follow,
        every=every,
        records_per_batch=records_per_batch,
        tables=tables,
        source=source,
        keep=keep,
        master=master,
        conf=conf or [],
        bootstrap=bootstrap,
        config=config,
        sets=set_ or [],
    )


@pipeline_app.command()
def show(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="commits, generations, ownership, owners, rebalances, ...")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory with the tables.")],
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only this group.")] = None,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="Maximum number of rows, the latest.")] = 50,
    all_columns: Annotated[
        bool, typer.Option("--all-columns", help="Show all columns, untruncated. JSON and CSV always do.")
    ] = False,
    both: Annotated[
        bool, typer.Option("--both", help="Also show the derived row of rebalances that the broker recorded.")
    ] = False,
    output: Output = OutputChoice.table,
) -> None:
    """Print a table. Does not start Spark. Times are UTC; in JSON and CSV, milliseconds since 1970.

    Tables show the columns that fit the terminal. What is left out is named on stderr.

    Try it: coterie pipeline show health --out groups

    Try it: coterie pipeline show rebalances --out groups --group orders -o json | jq '.[].cause'
    """
    from coterie.cli.pipeline import show_table

    show_table(table, out, group=group, last=last, output=output, all_columns=all_columns, both=both)
