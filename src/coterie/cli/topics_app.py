"""`coterie topics`: its commands and their options. The work is in `topics.py`, loaded when a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.cli.options import AdminCommand, uses_admin

topics_app = typer.Typer(
    no_args_is_help=True,
    help="List, describe, create, alter, move and delete topics of any Kafka cluster.\n\n"
    "Try it: coterie topics list --long",
)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="One or more topics.")]
SomeNames = Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Topics to show (default: all).")]
Internal = Annotated[bool, typer.Option("--internal", help="Include internal topics.")]
TopicConfigs = Annotated[
    list[str] | None, typer.Option("--topic-config", metavar="NAME=VALUE", help="A topic config. Repeatable.")
]


@topics_app.command("list")
@uses_admin
def list_topics(
    long: Annotated[bool, typer.Option("--long", "-l", help="Show ids, partitions, replicas and configs.")] = False,
    internal: Internal = False,
) -> AdminCommand:
    """List topics.

    Try it: coterie topics list --long
    """
    from coterie.cli import topics

    return lambda admin: topics.list_all(admin, internal=internal, long=long)


@topics_app.command()
@uses_admin
def describe(
    names: SomeNames = None,
    configs: Annotated[bool, typer.Option("--configs", help="Show configs set for the topic.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="With --configs: also defaults from the broker.")] = False,
    internal: Internal = False,
) -> AdminCommand:
    """Show leader and replicas of each partition.

    Try it: coterie topics describe orders

    Try it: coterie topics describe orders --configs --all -o json
    """
    from coterie.cli import topics

    return lambda admin: (
        topics.describe_configs(admin, names or [], everything=everything)
        if configs
        else topics.describe(admin, names or [], internal=internal)
    )


@topics_app.command()
@uses_admin
def create(
    names: Names,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Number of partitions.", show_default="the broker's")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, max=32_767, help="Replicas.", show_default="the broker's"),
    ] = None,
    topic_config: TopicConfigs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do not fail if a topic exists.")] = False,
) -> AdminCommand:
    """Create topics.

    Try it: coterie topics create orders --partitions 6 --topic-config retention.ms=86400000
    """
    from coterie.cli import topics

    return lambda admin: topics.create(
        admin,
        names,
        partitions=partitions,
        replication_factor=replication_factor,
        configs=topic_config or [],
        if_not_exists=if_not_exists,
    )


@topics_app.command()
@uses_admin
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="New number of partitions; it can only grow.")
    ] = None,
    topic_config: TopicConfigs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Reset a config to the broker's default. Repeatable."),
    ] = None,
) -> AdminCommand:
    """Change a topic's configs, or add partitions.

    Try it: coterie topics alter orders --partitions 12 --topic-config retention.ms=3600000
    """
    from coterie.cli import topics

    return lambda admin: topics.alter(
        admin, name, partitions=partitions, configs=topic_config or [], delete_configs=delete_config or []
    )


@topics_app.command()
@uses_admin
def reassign(
    where: Annotated[str, typer.Argument(metavar="TOPIC[:0,1]", help="A topic, or some of its partitions.")],
    to: Annotated[
        list[int], typer.Option("--to", metavar="BROKER", min=0, help="A broker; the first leads. Repeatable.")
    ],
) -> AdminCommand:
    """Move partitions to other brokers.

    Kafka copies them in the background. The nodes of `coterie serve --nodes` share the log, so partitions move at once.

    Try it: coterie topics reassign orders:0,1 --to 2
    """
    from coterie.cli import topics

    return lambda admin: topics.reassign(admin, where, to)


@topics_app.command()
@uses_admin
def delete(
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if a topic does not exist.")] = False,
) -> AdminCommand:
    """Delete topics and their records.

    Try it: coterie topics delete orders
    """
    from coterie.cli import topics

    return lambda admin: topics.delete(admin, names, if_exists=if_exists)
