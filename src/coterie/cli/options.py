"""Commands that talk to a cluster share their options, the connection and the exit status.

`coterie --help` loads this file, so the client is imported only when a command runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from enum import StrEnum
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.output import complain, show
from coterie.errors import CoterieError

if TYPE_CHECKING:
    from coterie.cli.output import Rows
    from coterie.client.admin import Admin
    from coterie.settings.client_settings import AdminSettings

AdminCommand = Callable[["Admin"], "Rows"]
"""A command's work with an admin client."""
HOST, PORT = "127.0.0.1", "9092"
"""The default address of `coterie serve`. A test compares it with the table, which would take long to load here."""
BOOTSTRAP = f"{HOST}:{PORT}"
CONFIG_VARIABLE = "COTERIE_CONFIG"
"""The environment variable with the file of `--config`, if that is not given."""
CONNECT_MS = 3_000
DEFAULTS = {
    "bootstrap.servers": (BOOTSTRAP,),
    "request.timeout.ms": 5_000,
    "default.api.timeout.ms": 10_000,
}
"""Shorter than Kafka's defaults, since a user waits at the terminal."""


class CommandError(CoterieError):
    """The command cannot be carried out; the message says why, and what to do."""


class OutputChoice(StrEnum):
    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"
    csv = "csv"


Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="COTERIE_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Bootstrap servers, separated by commas.",
        show_default=BOOTSTRAP,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar=CONFIG_VARIABLE,
        show_envvar=False,
        exists=True,
        dir_okay=False,
        help="Properties file with client settings.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A client setting, by its Kafka name."),
]
Output = Annotated[
    OutputChoice,
    typer.Option("--output", "-o", metavar="FORMAT", help="table, wide, json, yaml, csv.", show_default=False),
]

_SHARED: dict[str, tuple[Any, object]] = {
    "bootstrap": (Bootstrap, None),
    "config": (Config, None),
    "set_": (Sets, None),
    "output": (Output, OutputChoice.table),
}


def uses_admin(command: Callable[..., AdminCommand]) -> Callable[..., None]:
    """Give a command the options of the connection and the output, run what it returns, and print the rows."""

    def run(**options: Any) -> None:
        shared = {name: options.pop(name) for name in _SHARED}
        if shared["output"] is OutputChoice.wide and "verbose" in options:
            options["verbose"] = True
        _run(command(**options), **shared)

    own = signature(command, eval_str=True)
    shared = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in _SHARED.items()
    ]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), *shared])  # type: ignore[attr-defined]
    return run


def _run(
    command: AdminCommand,
    *,
    bootstrap: str | None,
    config: Path | None,
    set_: Sequence[str] | None,
    output: str,
) -> None:
    """Print the rows that a command finds. If a part of it failed, the errors go to stderr and the exit status is 1."""
    from coterie.client.admin import Admin

    settings = _settings(bootstrap, config, set_ or ())
    with Admin(settings) as admin:
        admin.connect(within_ms=min(CONNECT_MS, settings.default_api_timeout_ms))
        found = command(admin)
    show(found, output)
    for note in found.notes:
        typer.echo(note, err=True)
    for problem in found.errors:
        complain(problem)
    if found.errors:
        raise typer.Exit(1)


def _settings(bootstrap: str | None, config: Path | None, sets: Sequence[str]) -> AdminSettings:
    from coterie.settings.client_settings import AdminSettings

    return AdminSettings.load(properties_of(config), sets, DEFAULTS, bootstrap_servers=bootstrap or None)


def use_profile(name: str) -> None:
    """Take the client settings of a cluster from `coterie/NAME.properties` in the user's configuration directory."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "coterie"
    if not name or name != Path(name).name:
        raise CommandError(f"--profile {name}: give the name of a file in {base}, without .properties")
    file = base / f"{name}.properties"
    if not file.is_file():
        raise CommandError(
            f"--profile {name}: there is no {file}. Write client settings into it, for example "
            "bootstrap.servers=kafka:9092"
        )
    os.environ[CONFIG_VARIABLE] = str(file)


def properties_of(config: Path | None) -> str:
    """Return the text of the file of `--config`, if there is one."""
    try:
        return config.read_text(encoding="utf-8") if config else ""
    except UnicodeDecodeError as error:
        raise CommandError(f"{config} is not UTF-8 text: byte {error.start} cannot be read") from None
