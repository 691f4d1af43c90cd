"""`coterie groups`: its commands and their options. The work is in `groups.py`, loaded when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.diagnosis_app import findings, groups_watch, timeline, why
from coterie.cli.options import AdminCommand, uses_admin

groups_app = typer.Typer(
    no_args_is_help=True,
    help="List, describe, explain, reset and delete consumer groups of any Kafka cluster.\n\n"
    "Try it: coterie groups why orders",
)

groups_app.command()(why)
groups_app.command()(findings)
groups_app.command()(timeline)
groups_app.command("watch")(groups_watch)

Group = Annotated[str, typer.Argument(metavar="GROUP")]
Names = Annotated[list[str], typer.Argument(metavar="GROUP...", help="One or more groups.")]
SomeNames = Annotated[list[str] | None, typer.Argument(metavar="[GROUP...]", help="Groups to show (default: all).")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show more columns.")]


@groups_app.command("list")
@uses_admin
def list_groups(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only groups in these states: Stable,Empty,...")
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only these types: classic,consumer,share,streams."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also share, streams and other groups.")] = False,
    verbose: Verbose = False,
) -> AdminCommand:
    """List groups and their state; with --verbose also their protocol type.

    Try it: coterie groups list --state Stable,PreparingRebalance
    """
    from coterie.cli import groups

    return lambda admin: groups.list_all(
        admin, states=state or [], types=type_ or [], everything=everything, verbose=verbose
    )


@groups_app.command()
@uses_admin
def describe(
    names: SomeNames = None,
    verbose: Verbose = False,
) -> AdminCommand:
    """Show committed offset, lag and owner for each partition.

    In a consumer group (KIP-848) the owner of a partition may still have to give it up.

    Try it: coterie groups describe orders

    Try it: coterie groups describe -o json | jq 'map(.lag) | add'
    """
    from coterie.cli import groups

    return lambda admin: groups.describe(admin, names or [], verbose=verbose)


@groups_app.command()
@uses_admin
def members(
    names: SomeNames = None,
    verbose: Verbose = False,
) -> AdminCommand:
    """List the members of a group; with --verbose also their partitions.

    In a consumer group (KIP-848) --verbose shows each member's epoch and target assignment, and UPGRADED if some
    members still use the classic protocol.

    Try it: coterie groups members orders --verbose
    """
    from coterie.cli import groups

    return lambda admin: groups.members(admin, names or [], verbose=verbose)


@groups_app.command()
@uses_admin
def state(
    names: SomeNames = None,
    verbose: Verbose = False,
) -> AdminCommand:
    """Show a group's coordinator, assignor and state; with --verbose also its epochs.

    Try it: coterie groups state orders
    """
    from coterie.cli import groups

    return lambda admin: groups.state(admin, names or [], verbose=verbose)


@groups_app.command()
@uses_admin
def reset(
    name: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC[:0,1]", help="A topic, or some of its partitions. Repeatable."),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All topics with committed offsets.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="The start of the partition.")] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="The end of the partition (skips all records).")
    ] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="The committed offset, or the end if none.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="This offset.")] = None,
    shift_by: Annotated[int | None, typer.Option("--shift-by", help="The committed offset plus this number.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="TIME", help="The first record since TIME: 2025-01-31T13:00:00 (UTC)."),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="DURATION", help="The first record of the last DURATION: PT1H, P7D."),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Offsets from lines of topic,partition,offset.",
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Set the offsets. Without this option nothing is changed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be set (default).")] = False,
) -> AdminCommand:
    """Set the offsets of a group that has no members.

    It shows the new offsets, and sets them only with --execute. --from-file reads what -o csv prints.

    Try it: coterie groups reset orders --topic payments --to-earliest

    Try it: coterie groups reset orders --all-topics --by-duration PT1H --execute
    """
    import time

    from coterie.cli import groups

    if execute and dry_run:
        raise typer.BadParameter("--execute and --dry-run contradict each other: give one of them")
    target = groups.ResetTarget(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
        from_file=from_file,
    )
    now_ms = time.time_ns() // 1_000_000
    return lambda admin: groups.reset(
        admin, name, target, topics=topic or [], all_topics=all_topics, execute=execute, now_ms=now_ms
    )


@groups_app.command()
@uses_admin
def delete(
    names: Names,
) -> AdminCommand:
    """Delete groups that have no members, and their offsets.

    Try it: coterie groups delete orders
    """
    from coterie.cli import groups

    return lambda admin: groups.delete(admin, names)


@groups_app.command("delete-offsets")
@uses_admin
def delete_offsets(
    name: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC[:0,1]", help="A topic, or some of its partitions. Repeatable."),
    ] = None,
) -> AdminCommand:
    """Delete a group's committed offsets for topics that no member subscribes to.

    Try it: coterie groups delete-offsets orders --topic payments
    """
    from coterie.cli import groups

    return lambda admin: groups.delete_offsets(admin, name, topic or [])


@groups_app.command("remove-members")
@uses_admin
def remove_members(
    name: Group,
    member_ids: Annotated[list[str] | None, typer.Argument(metavar="[CONSUMER-ID...]")] = None,
    instance: Annotated[
        list[str] | None,
        typer.Option("--instance", metavar="ID", help="A static member, by its group.instance.id. Repeatable."),
    ] = None,
    all_members: Annotated[bool, typer.Option("--all", help="Remove all members.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Reason for the broker's log.")] = None,
) -> AdminCommand:
    """Remove members from a group. Running members rejoin immediately; stop them first.

    Try it: coterie groups remove-members orders --instance worker-3 --reason "host was replaced"
    """
    from coterie.cli import groups

    return lambda admin: groups.remove_members(
        admin, name, member_ids or [], instance_ids=instance or [], all_members=all_members, reason=reason
    )
