"""What commands that talk to a cluster have in common. Light: it is loaded for `coterie --help`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Bootstrap", "Config", "Output", "OutputChoice", "Sets"]


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
        help="A broker of the cluster, or several with commas between them.",
        show_default="127.0.0.1:9092",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", exists=True, dir_okay=False, help="Settings as a properties file."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the client, under Kafka's own name."),
]
Output = Annotated[OutputChoice, typer.Option("--output", "-o", help="How to print it.")]
