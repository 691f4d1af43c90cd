"""Runs a command against a cluster: settings, connection, rows, errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from coterie.cli.rows import Rows, show
from coterie.client.admin import Admin
from coterie.client.settings import AdminSettings
from coterie.errors import CoterieError

__all__ = ["CommandError", "connected"]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
# Whoever waits at a terminal wants to know sooner than Kafka's defaults, a minute, would say.
PATIENCE = {"request.timeout.ms": 5_000, "default.api.timeout.ms": 10_000}


class CommandError(CoterieError):
    """What was asked for cannot be done; the message says why, and what to do."""


def connected(
    command: Callable[[Admin], Rows],
    *,
    bootstrap: str | None,
    config: Path | None,
    sets: Sequence[str] | None,
    output: str,
) -> None:
    """One clear message on stderr and exit status 1 for what does not work; no traceback."""
    try:
        with Admin(_settings(bootstrap, config, sets or ())) as admin:
            found = command(admin)
    except (CoterieError, OSError) as error:
        _fail(str(error))
        raise typer.Exit(1) from None
    show(found, output)
    for note in found.notes:
        typer.echo(note, err=True)
    for problem in found.errors:
        _fail(problem)
    if found.errors:
        raise typer.Exit(1)


def _fail(problem: str) -> None:
    first, *rest = problem.splitlines() or [""]
    typer.echo("\n".join([f"coterie: {first}", *(f"         {line}" for line in rest)]), err=True)


def _settings(bootstrap: str | None, config: Path | None, sets: Sequence[str]) -> AdminSettings:
    try:
        properties = config.read_text(encoding="utf-8") if config else ""
    except UnicodeDecodeError as error:
        raise CommandError(f"{config} is not UTF-8 text: byte {error.start} cannot be read") from None
    given = AdminSettings.load(properties, sets, bootstrap_servers=bootstrap)
    if "bootstrap.servers" not in given.given:
        bootstrap = DEFAULT_BOOTSTRAP
    patience = {name: value for name, value in PATIENCE.items() if name not in given.given}
    if "request.timeout.ms" in given.given:
        patience["default.api.timeout.ms"] = max(PATIENCE["default.api.timeout.ms"], 2 * given.request_timeout_ms)
    if "default.api.timeout.ms" in given.given:
        patience.pop("default.api.timeout.ms", None)
        patience["request.timeout.ms"] = min(given.request_timeout_ms, given.default_api_timeout_ms)
    quick = {name.replace(".", "_"): value for name, value in patience.items()}
    return AdminSettings.load(properties, sets, bootstrap_servers=bootstrap, **quick)
