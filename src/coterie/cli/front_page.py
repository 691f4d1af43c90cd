"""What `coterie --help` shows: every command by what one wants to do, and what to try first, on a screen of 24 lines.

It also turns the errors of all commands into one message and an exit status.

Light: it is loaded for every command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from coterie.cli.problems import complain, words_of
from coterie.errors import CoterieError

__all__ = ["SECTIONS", "TRY_IT", "FrontPage"]

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Run a broker": {
        "serve": "a broker that any Kafka client connects to",
        "demo": "a group to watch: members join, leave, are killed",
        "repair": "a data directory that is damaged: see and save what is left",
    },
    "Work with any Kafka cluster": {
        "produce": "send lines to a topic",
        "consume": "print topics, alone or as a member of a group",
        "topics": "list, create, describe, alter, delete",
        "groups": "who is in them, how far behind; reset their offsets",
    },
    "Find out why a group rebalanced, and what it cost": {
        "report": "a page from a data directory, ours or Apache Kafka's",
        "pipeline": "tables of all groups of a cluster, by Spark",
    },
    "Ask what would happen": {
        "assign": "which assignor gives whom what, now and after a change",
        "sim": "hours of everything going wrong, from a seed, in seconds",
        "compare-designs": "today's groups next to the two older designs",
    },
}
TRY_IT = ("coterie serve --memory", "seq 3 | coterie produce numbers; coterie consume numbers -e")
"""The second in another terminal."""


INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended, as a shell has it."""


class FrontPage(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Runs a command. What it raises is said in one message; a traceback is for our own mistakes alone."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # nobody reads on, as after | head: typer ends in silence
        except (CoterieError, OSError) as error:
            complain(words_of(error))
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """With its two options, so that there is room for what is looked for."""
        formatter.write_usage(ctx.command_path, "[--version] [--help] COMMAND ...")

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  its arguments are typer's
        widest = max(len(name) for rows in SECTIONS.values() for name in rows)
        formatter.write_paragraph()
        for title, rows in SECTIONS.items():
            formatter.write(f"{title}:\n")
            for name, line in rows.items():
                formatter.write(f"  {name:{widest}}  {line}\n")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        formatter.write_paragraph()
        broker, client = TRY_IT
        formatter.write(f"Try it: {broker:30} and in a second terminal:\n        {client}\n")
