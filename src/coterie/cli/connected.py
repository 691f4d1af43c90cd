"""Runs a command against a cluster: settings, connection, rows, errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from coterie.cli.options import Ask
from coterie.cli.problems import complain
from coterie.cli.rows import show
from coterie.client.admin import Admin
from coterie.errors import CoterieError
from coterie.settings.client_settings import AdminSettings

__all__ = ["CommandError", "connected"]

# Whoever waits at a terminal wants to know sooner than Kafka's defaults, a minute, would say.
CONNECT_MS = 3_000
DEFAULTS = {
    "bootstrap.servers": ("127.0.0.1:9092",),
    "request.timeout.ms": 5_000,
    "default.api.timeout.ms": 10_000,
}


class CommandError(CoterieError):
    """What was asked for cannot be done; the message says why, and what to do."""


def connected(
    ask: Ask,
    *,
    bootstrap: str | None,
    config: Path | None,
    set_: Sequence[str] | None,
    output: str,
) -> None:
    """What did not work, while other things did, is said on stderr; the exit status is then 1."""
    settings = _settings(bootstrap, config, set_ or ())
    with Admin(settings) as admin:
        admin.connect(within_ms=min(CONNECT_MS, settings.default_api_timeout_ms))
        found = ask(admin)
    show(found, output)
    for note in found.notes:
        typer.echo(note, err=True)
    for problem in found.errors:
        complain(problem)
    if found.errors:
        raise typer.Exit(1)


def _settings(bootstrap: str | None, config: Path | None, sets: Sequence[str]) -> AdminSettings:
    try:
        properties = config.read_text(encoding="utf-8") if config else ""
    except UnicodeDecodeError as error:
        raise CommandError(f"{config} is not UTF-8 text: byte {error.start} cannot be read") from None
    return AdminSettings.load(properties, sets, DEFAULTS, bootstrap_servers=bootstrap or None)
