"""`coterie acls`: its commands and their options. The work is in `acls.py`, loaded when a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.cli.options import AdminCommand, uses_admin

acls_app = typer.Typer(
    no_args_is_help=True,
    help="""List, add and remove ACLs of any Kafka cluster: who may do what. The options are those of kafka-acls.

    A client needs an ACL for all that it does, unless it is a super user. A DENY wins over every ALLOW.

    Try it: coterie acls add --allow-principal User:bob --consumer --topic orders --group billing""",
)

Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="A topic; * is all of them. Repeatable.")
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", help="A group; * is all of them. Repeatable.")
]
TransactionalIds = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id. Repeatable.")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Allowed = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-principal", metavar="User:NAME", help="Principal of an ALLOW; User:* is everyone. Repeatable."
    ),
]
Denied = Annotated[
    list[str] | None, typer.Option("--deny-principal", metavar="User:NAME", help="Principal of a DENY. Repeatable.")
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="ADDRESS", help="Host of an ALLOW, an address (default: any). Repeatable."),
]
DeniedHosts = Annotated[
    list[str] | None,
    typer.Option("--deny-host", metavar="ADDRESS", help="Host of a DENY, an address (default: any)."),
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        metavar="NAME",
        help="Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs, ClusterAction, "
        "IdempotentWrite or All (default: All). Repeatable.",
    ),
]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="What a consumer needs of --topic and --group, in place of --operation.")
]
Producer = Annotated[
    bool,
    typer.Option(
        "--producer", help="What a producer needs of --topic and --transactional-id, in place of --operation."
    ),
]
Idempotent = Annotated[
    bool, typer.Option("--idempotent", help="With --producer: also IdempotentWrite, which brokers before 3.0 need.")
]
Pattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="KIND",
        help="literal: the very name; prefixed: all names that begin with it.",
    ),
]
FilterPattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="KIND",
        help="any, literal, prefixed, or match: all ACLs that apply to the name.",
    ),
]


@acls_app.command("list")
@uses_admin
def list_acls(
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: Cluster = False,
    principal: Annotated[
        list[str] | None, typer.Option("--principal", metavar="User:NAME", help="Only ACLs of these. Repeatable.")
    ] = None,
    resource_pattern_type: FilterPattern = "any",
) -> AdminCommand:
    """List ACLs, all of them or those of some resources.

    Try it: coterie acls list

    Try it: coterie acls list --topic orders --resource-pattern-type match
    """
    from coterie.cli import acls

    resources = acls.Resources(topic or [], group or [], transactional_id or [], cluster, resource_pattern_type)
    return lambda admin: acls.list_all(admin, resources, principal or [])


@acls_app.command()
@uses_admin
def add(
    allow_principal: Allowed = None,
    deny_principal: Denied = None,
    operation: Operations = None,
    consumer: Consumer = False,
    producer: Producer = False,
    idempotent: Idempotent = False,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: Cluster = False,
    resource_pattern_type: Pattern = "literal",
    allow_host: AllowedHosts = None,
    deny_host: DeniedHosts = None,
) -> AdminCommand:
    """Add ACLs: allow or deny principals some operations on resources.

    Try it: coterie acls add --allow-principal User:bob --consumer --topic orders --group billing
    """
    from coterie.cli import acls

    resources = acls.Resources(topic or [], group or [], transactional_id or [], cluster, resource_pattern_type)
    people = acls.People(allow_principal or [], deny_principal or [], allow_host or [], deny_host or [])
    rights = acls.Rights(operation or [], consumer, producer, idempotent)
    return lambda admin: acls.add(admin, resources, people, rights)


@acls_app.command()
@uses_admin
def remove(
    allow_principal: Allowed = None,
    deny_principal: Denied = None,
    operation: Operations = None,
    consumer: Consumer = False,
    producer: Producer = False,
    idempotent: Idempotent = False,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: Cluster = False,
    resource_pattern_type: Pattern = "literal",
    allow_host: AllowedHosts = None,
    deny_host: DeniedHosts = None,
) -> AdminCommand:
    """Remove ACLs, with the options that they were added with. Without principals, all ACLs of the resources go.

    Try it: coterie acls remove --allow-principal User:bob --operation Read --topic orders

    Try it: coterie acls remove --topic orders
    """
    from coterie.cli import acls

    resources = acls.Resources(topic or [], group or [], transactional_id or [], cluster, resource_pattern_type)
    people = acls.People(allow_principal or [], deny_principal or [], allow_host or [], deny_host or [])
    rights = acls.Rights(operation or [], consumer, producer, idempotent)
    return lambda admin: acls.remove(admin, resources, people, rights)
