"""The `coterie` command."""

from __future__ import annotations

from typing import Annotated

import typer

import coterie

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coterie {coterie.__version__}")
        raise typer.Exit


@app.callback()
def coterie_command(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Kafka's consumer groups, whole, in Python."""
