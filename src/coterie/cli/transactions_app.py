"""`coterie transactions`: its commands and their options. The work is in `transactions.py`, loaded when one runs."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.cli.options import AdminCommand, uses_admin

transactions_app = typer.Typer(
    no_args_is_help=True,
    help="List, describe and abort transactions of any Kafka cluster.\n\nTry it: coterie transactions list",
)

LONGEST_TIMEOUT_MINUTES = 15
"""Kafka's default of transaction.max.timeout.ms."""


@transactions_app.command("list")
@uses_admin
def list_transactions(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only those in these states: Ongoing,Empty,...")
    ] = None,
    duration_filter: Annotated[
        int | None,
        typer.Option("--duration-filter", metavar="MS", min=0, help="Only transactions that began longer ago."),
    ] = None,
    transactional_id_pattern: Annotated[
        str | None,
        typer.Option("--transactional-id-pattern", metavar="PATTERN", help="Only ids that match it as a whole."),
    ] = None,
) -> AdminCommand:
    """List transactional ids, with their producer id and state.

    Try it: coterie transactions list --state Ongoing
    """
    from coterie.cli import transactions

    return lambda admin: transactions.list_all(
        admin, states=state or [], longer_than_ms=duration_filter, pattern=transactional_id_pattern
    )


@transactions_app.command()
@uses_admin
def describe(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="Transactional ids (default: all).")
    ] = None,
) -> AdminCommand:
    """Show the producer, the timeout, the duration and the partitions of transactions.

    Try it: coterie transactions describe payments
    """
    import time

    from coterie.cli import transactions

    now_ms = time.time_ns() // 1_000_000
    return lambda admin: transactions.describe(admin, ids or [], now_ms)


@transactions_app.command()
@uses_admin
def abort(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Transactional ids.")] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC:PARTITION", help="Partition in which a transaction hangs.")
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", metavar="OFFSET", min=0, help="Its first offset.")
    ] = None,
) -> AdminCommand:
    """Abort the open transactions of ids, or one that hangs in a partition.

    The producer of an ID is fenced: it cannot commit any more.

    With --topic and --start-offset a marker is written into the partition, and the coordinator is not told. It is for a
    transaction that find-hanging shows.

    Try it: coterie transactions abort payments

    Try it: coterie transactions abort --topic orders:0 --start-offset 42
    """
    from coterie.cli import transactions

    if bool(ids) == (topic is not None) or (topic is None) != (start_offset is None):
        raise typer.BadParameter("give transactional ids, or both --topic and --start-offset")
    if topic is not None and start_offset is not None:
        return lambda admin: transactions.abort_hanging(admin, topic, start_offset)
    return lambda admin: transactions.abort(admin, ids or [])


@transactions_app.command("find-hanging")
@uses_admin
def find_hanging(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic. Repeatable (default: all).")
    ] = None,
    max_transaction_timeout: Annotated[
        int,
        typer.Option("--max-transaction-timeout", metavar="MINUTES", min=0, help="Minimum age of the last record."),
    ] = LONGEST_TIMEOUT_MINUTES,
) -> AdminCommand:
    """Find transactions that are open in a partition, while no coordinator has them.

    They keep read_committed readers from going on. MINUTES should be the cluster's transaction.max.timeout.ms.

    Try it: coterie transactions find-hanging
    """
    import time

    from coterie.cli import transactions

    now_ms = time.time_ns() // 1_000_000
    return lambda admin: transactions.find_hanging(admin, topic or [], max_transaction_timeout, now_ms)
