"""`coterie serve --test-controls`: a broker for tests as a process, with its controls over HTTP."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from coterie.broker.broker import Flush
from coterie.broker.io.secure_directory import SecureDirectory
from coterie.broker.io.server import Listener
from coterie.errors import CoterieError
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import text_of
from coterie.testing.http_controls import ControlServer, ServedBroker, TestControls
from coterie.testing.kafka_broker import TEST_SETTINGS

if TYPE_CHECKING:
    from coterie.cli.serve_log import FactLog

ADDRESS = "127.0.0.1:9099"
"""The default address of the controls."""
TOKEN = "COTERIE_CONTROLS_TOKEN"  # noqa: S105  the name of a variable
DEFAULTS = "".join(f"{name}={text_of(value)}\n" for name, value in TEST_SETTINGS.items())
"""The settings that differ from those of a broker in production, as properties. Given settings override them."""


def serve_for_tests(
    settings: BrokerSettings,
    listeners: Sequence[Listener],
    data: Path | None,
    flush: Flush,
    nodes: int,
    facts: FactLog,
    directory: SecureDirectory | None,
    address: str | None,
) -> None:
    """Run until a signal. A second signal exits immediately."""
    from coterie.cli.serve import note_start, parse_address

    if settings.log_dirs and data is None:
        facts.note(
            "log.dirs has no effect: with --test-controls data is kept in memory, unless --data is given", level="warn"
        )

    def make() -> ServedBroker:
        return ServedBroker(settings, listeners, data=data, flush=flush, nodes=nodes, on_fact=facts.tell)

    controls = TestControls(make)
    host, port = parse_address(address or ADDRESS)
    try:
        server = ControlServer(controls, host, port, os.environ.get(TOKEN, ""))
    except OSError as error:
        raise CoterieError(f"--controls {host}:{port}: cannot listen there: {error.strerror or error}") from None
    stop = threading.Event()

    def stop_or_quit(_number: int, _frame: Any) -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop_or_quit)
    controls.start()
    note_start(facts, data, flush, nodes)
    try:
        if directory is not None:
            for line in directory.write_client_settings(controls.broker.bootstrap_servers):
                facts.note(line)
        with server:
            typer.echo(f"ready {controls.broker.bootstrap_servers} controls {server.url}")
            sys.stdout.flush()
            stop.wait()
    finally:
        facts.note("shutting down (press Ctrl-C again to exit immediately)")
        controls.stop()
        facts.note("stopped")
