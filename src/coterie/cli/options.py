"""What commands that talk to a cluster have in common. Light: it is loaded for `coterie --help`."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coterie.cli.rows import Rows
    from coterie.client.admin import Admin

__all__ = ["Ask", "Bootstrap", "Config", "Output", "OutputChoice", "Sets", "asks_a_cluster"]

Ask = Callable[["Admin"], "Rows"]


class OutputChoice(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"


Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="COTERIE_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Bootstrap servers, separated by commas.",
        show_default="127.0.0.1:9092",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", exists=True, dir_okay=False, help="Properties file with client settings."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A client setting, by its Kafka name."),
]
Output = Annotated[OutputChoice, typer.Option("--output", "-o", help="Output format.")]

_WHERE_AND_HOW: dict[str, tuple[Any, object]] = {
    "bootstrap": (Bootstrap, None),
    "config": (Config, None),
    "set_": (Sets, None),
    "output": (Output, OutputChoice.table),
}


def asks_a_cluster(command: Callable[..., Ask]) -> Callable[..., None]:
    """A command that says what to ask: whom, and how the answer is printed, is said the same way for all of them."""

    def run(**said: Any) -> None:
        from coterie.cli.connected import connected

        where = {name: said.pop(name) for name in _WHERE_AND_HOW}
        connected(command(**said), **where)

    own = signature(command, eval_str=True)
    shared = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in _WHERE_AND_HOW.items()
    ]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), *shared])  # type: ignore[attr-defined]
    return run
