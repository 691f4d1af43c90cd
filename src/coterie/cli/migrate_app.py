"""The command `coterie migrate` and its options. The work is in `migrate.py`, loaded when it runs."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import Output, OutputChoice


class StepChoice(StrEnum):
    plan = "plan"
    copy = "copy"
    status = "status"
    verify = "verify"


def migrate(
    step: Annotated[StepChoice, typer.Argument(metavar="[STEP]", help="plan, copy, status or verify.")] = (
        StepChoice.copy
    ),
    from_: Annotated[str, typer.Option("--from", metavar="HOST:PORT", help="The source cluster.")] = ...,  # type: ignore[assignment]
    to: Annotated[str, typer.Option("--to", metavar="HOST:PORT", help="The target cluster.")] = ...,  # type: ignore[assignment]
    from_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Client settings of the source: TLS, SASL."),
    ] = None,
    to_config: Annotated[
        Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Client settings of the target.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="REGEX", help="Only these topics. Repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="REGEX", help="Not these topics. Repeatable.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="REGEX", help="Only these groups. Repeatable.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when all is copied that is there now.")] = False,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="Replicas of new topics.", show_default="the target's default")
    ] = None,
    compression: Annotated[str, typer.Option(metavar="CODEC", help="Codec: zstd, lz4, ...")] = "none",
    acls: Annotated[bool, typer.Option("--acls/--no-acls", help="Copy ACLs.")] = True,
    every: Annotated[float, typer.Option(min=0.5, metavar="SECONDS", help="How often offsets are set.")] = 5.0,
    spark: Annotated[bool, typer.Option("--spark", help="Use Spark where much is left to copy.")] = False,
    master: Annotated[str | None, typer.Option(help="Spark master.", show_default="local[*]")] = None,
    spark_from: Annotated[
        int, typer.Option(min=1, metavar="OFFSETS", help="Spark copies partitions that are so far behind.")
    ] = 100_000,
    name: Annotated[str, typer.Option(help="Topic for the progress, in the target.")] = "coterie-migrate",
    output: Output = OutputChoice.table,
) -> None:
    """Move topics, records, ACLs and offsets of groups to another cluster.

    plan shows what would be created. copy, the default, creates topics and copies records until Ctrl-C, while clients
    go on; it can be killed and started again. status shows what is left to do, and which groups can move. verify
    compares counts and checksums of all copied records. With --spark, jobs of Spark copy
    partitions with many records first.

    Try it: coterie migrate --from 127.0.0.1:9092 --to kafka1:9092 --once
    """
    from coterie.cli import migrate as run
    from coterie.cli.options import properties_of
    from coterie.migration.clusters import Side
    from coterie.migration.copier import MigrationOptions

    options = MigrationOptions(
        source=Side(from_, properties_of(from_config)),
        target=Side(to, properties_of(to_config)),
        selection=run.selection(topic or (), [re.escape(name), *(exclude or ())], group or ()),
        name=name,
        replication_factor=replication_factor or -1,
        compression=compression,
        with_acls=acls,
        sync_s=every,
        once=once,
    )
    run.run(step.value, options, output.value, run.OnSpark(master, spark_from) if spark else None)
