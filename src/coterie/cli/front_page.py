"""The page of `coterie --help`, on a screen of 24 lines, and how errors of all commands are shown.

It is loaded for every command, and must stay light.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from coterie.cli.output import complain, message_of
from coterie.errors import CoterieError

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Kafka consumer groups in Python. Run a broker; work with it or any cluster": {
        "serve": "run a broker for any Kafka client",
        "demo": "watch a group: members join, leave, crash",
        "repair": "check a data directory for damage, and repair it",
        "produce": "send lines to a topic",
        "consume": "print records, with or without a group",
        "topics": "list, create, describe, alter, delete topics",
        "groups": "members, offsets, lag; reset; explain rebalances",
        "transactions": "list, describe and abort transactions",
        "acls": "list, add and remove ACLs",
        "migrate": "move topics and groups to another cluster",
    },
    "Find out why a group rebalanced, what it cost, and what would happen": {
        "web": "show groups on a page, live, and serve /metrics",
        "watch": "read the groups of a cluster into a ledger",
        "explain": "explain every rebalance in the log of a broker",
        "report": "write an HTML report from a data directory",
        "pipeline": "export topics or group history to Parquet (needs Spark)",
        "assign": "compare assignors for a group and a change",
        "plan": "forecast what a deploy or a setting will cost",
        "sim": "simulate groups with random faults, from a seed",
        "compare-designs": "compare the four designs of consumer groups",
    },
}
TRY_IT = ("coterie serve --memory", "seq 3| coterie produce t; coterie consume t -e")
"""The second command waits until the first is ready."""


INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended, as a shell has it."""


class FrontPage(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Run a command. An error is one message and an exit status; only a bug shows a traceback."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # as after | head: typer ends without a message
        except (CoterieError, OSError) as error:
            complain(message_of(error))
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the options here, which leaves room for the commands."""
        formatter.write_usage(ctx.command_path, "[--version] [--profile NAME] COMMAND [--help] ...")

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write nothing: the first section says what it is, and the usage how to get help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  its arguments are typer's
        widest = max(len(name) for rows in SECTIONS.values() for name in rows)
        for title, rows in SECTIONS.items():
            formatter.write(f"{title}:\n")
            for name, line in rows.items():
                formatter.write(f"  {name:{widest}}  {line}\n")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        broker, client = TRY_IT
        formatter.write(f"Try it: {broker} & {client}\n")
