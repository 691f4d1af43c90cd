"""`coterie groups`: what can be said. The work is in `groups.py` and `reset.py`, loaded when it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import Ask, asks_a_cluster

__all__ = ["groups_app"]

groups_app = typer.Typer(
    no_args_is_help=True,
    help="Consumer groups of any Kafka cluster: who is in them, how far behind, and from where.\n\n"
    "Try it: coterie groups describe orders",
)

Group = Annotated[str, typer.Argument(metavar="GROUP")]
Names = Annotated[list[str], typer.Argument(metavar="GROUP...", help="One or more groups.")]
SomeNames = Annotated[list[str] | None, typer.Argument(metavar="[GROUP...]", help="These; all if none is named.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="More columns.")]


@groups_app.command("list")
@asks_a_cluster
def list_groups(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only these: Stable,Empty and so on.")
    ] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only these: classic,consumer,share,streams.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also share, streams and other groups.")] = False,
) -> Ask:
    """The groups there are, and how they are.

    Try it: coterie groups list --state Stable,PreparingRebalance
    """
    from coterie.cli import groups

    return lambda admin: groups.list_all(admin, states=state or [], types=type_ or [], everything=everything)


@groups_app.command()
@asks_a_cluster
def describe(
    names: SomeNames = None,
    verbose: Verbose = False,
) -> Ask:
    """How far a group has come in each partition, how far behind it is, and who reads it.

    Try it: coterie groups describe orders

    Try it: coterie groups describe -o json | jq 'map(.lag) | add'
    """
    from coterie.cli import groups

    return lambda admin: groups.describe(admin, names or [], verbose=verbose)


@groups_app.command()
@asks_a_cluster
def members(
    names: SomeNames = None,
    verbose: Verbose = False,
) -> Ask:
    """Who is in a group; with --verbose also what each owns.

    Try it: coterie groups members orders --verbose
    """
    from coterie.cli import groups

    return lambda admin: groups.members(admin, names or [], verbose=verbose)


@groups_app.command()
@asks_a_cluster
def state(
    names: SomeNames = None,
    verbose: Verbose = False,
) -> Ask:
    """Who coordinates a group, how it assigns, and how it is.

    Try it: coterie groups state orders
    """
    from coterie.cli import groups

    return lambda admin: groups.state(admin, names or [], verbose=verbose)


@groups_app.command()
@asks_a_cluster
def reset(
    name: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC[:0,1]", help="All its partitions, or these; may be given often."),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Whatever the group has committed.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="The first record there is.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="Where it is; the end if nowhere.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="This one.")] = None,
    shift_by: Annotated[int | None, typer.Option("--shift-by", help="So many forward; negative: back.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="TIME", help="The first record since, 2025-01-31T13:00:00 in UTC."),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="DURATION", help="The first record of the last PT1H, P7D.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file", metavar="FILE", exists=True, dir_okay=False, help="Lines of topic,partition,offset."
        ),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without this nothing is changed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be set: the default.")] = False,
) -> Ask:
    """Set the offsets of a group that has no members.

    Shows what it would set, and sets it with --execute. What -o csv prints can be given to --from-file.

    Try it: coterie groups reset orders --topic payments --to-earliest

    Try it: coterie groups reset orders --all-topics --by-duration PT1H --execute
    """
    import time

    from coterie.cli.reset import Target
    from coterie.cli.reset import reset as run

    if execute and dry_run:
        raise typer.BadParameter("--execute does it and --dry-run does not: give one of them")
    target = Target(
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
    return lambda admin: run(
        admin, name, target, topics=topic or [], all_topics=all_topics, execute=execute, now_ms=now_ms
    )


@groups_app.command()
@asks_a_cluster
def delete(
    names: Names,
) -> Ask:
    """Delete groups that have no members, with all their offsets.

    Try it: coterie groups delete orders
    """
    from coterie.cli import groups

    return lambda admin: groups.delete(admin, names)


@groups_app.command("delete-offsets")
@asks_a_cluster
def delete_offsets(
    name: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC[:0,1]", help="All its partitions, or these; may be given often."),
    ] = None,
) -> Ask:
    """Delete a group's committed offsets of topics that none of its members is subscribed to.

    Try it: coterie groups delete-offsets orders --topic payments
    """
    from coterie.cli import groups

    return lambda admin: groups.delete_offsets(admin, name, topic or [])


@groups_app.command("remove-members")
@asks_a_cluster
def remove_members(
    name: Group,
    member_ids: Annotated[list[str] | None, typer.Argument(metavar="[CONSUMER-ID...]")] = None,
    instance: Annotated[
        list[str] | None, typer.Option("--instance", metavar="ID", help="A static member, by its group.instance.id.")
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", help="All members.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="What the broker's log will say.")] = None,
) -> Ask:
    """Put members out of a group. Those that live come back at once: stop them first.

    Try it: coterie groups remove-members orders --instance worker-3 --reason "its machine is gone"
    """
    from coterie.cli import groups

    return lambda admin: groups.remove_members(
        admin, name, member_ids or [], instance_ids=instance or [], everybody=everybody, reason=reason
    )
