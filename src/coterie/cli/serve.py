"""`coterie serve`: the broker as a process."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from coterie.broker.broker import Flush, open_cluster
from coterie.broker.cluster import Cluster
from coterie.broker.io.server import Server, run_in_loop
from coterie.cli.fact_lines import FactLog
from coterie.coordinator.classic.wall_clock import WallClock
from coterie.errors import CoterieError
from coterie.settings.broker_settings import BrokerSettings

__all__ = ["serve"]

Address = tuple[str, int]
DATA = "coterie-data"


def serve(
    *,
    host: str | None,
    port: int | None,
    advertise: str | None,
    data: Path | None,
    flush: Flush | None,
    memory: bool,
    nodes: int,
    sets: Sequence[str],
    config: Path | None,
    log: str,
) -> None:
    """Runs until it is told to stop; the exit status is 0 then. An option wins over the setting it stands for."""
    properties = _text_of(config) if config else ""
    settings = BrokerSettings.load(properties=properties, environ=os.environ, sets=sets)
    listen, advertised = _addresses(settings, host, port, advertise)
    where = _data_directory(settings, data, memory=memory)
    facts = FactLog(sys.stderr, as_json=log == "json", shows_all=log == "all")
    for ignored in settings.ignored:
        facts.note(str(ignored))
    raise_file_limit()
    chosen: Flush = flush or ("os" if settings.coterie_flush == "os" else "sync")
    try:
        run_in_loop(_serve(settings, listen, advertised, where, chosen, nodes, facts))
    finally:
        facts.flush()  # what was told in the last turn of the loop


def _data_directory(settings: BrokerSettings, data: Path | None, *, memory: bool) -> Path | None:
    if memory and data is not None:
        raise CoterieError("--memory and --data contradict each other: give one of them")
    if memory:
        return None
    where = data or Path(settings.log_dirs[0] if settings.log_dirs else DATA)
    if where.exists() and not where.is_dir():
        said = "log.dirs" if data is None and settings.log_dirs else "--data"
        raise CoterieError(f"{said} {where}: is a file, not a directory")
    return where


def _addresses(
    settings: BrokerSettings, host: str | None, port: int | None, advertise: str | None
) -> tuple[Address, Address | None]:
    """Where to listen, and what clients are told if that is something else."""
    endpoint = settings.endpoints()[0]
    listen = (endpoint.host if host is None else host, endpoint.port if port is None else port)
    if advertise is not None:
        return listen, parse_address(advertise)
    advertised = settings.advertised()
    return listen, (advertised[0].host, advertised[0].port) if advertised else None


async def _serve(
    settings: BrokerSettings,
    listen: Address,
    advertised: Address | None,
    data: Path | None,
    flush: Flush,
    nodes: int,
    facts: FactLog,
) -> None:
    loop = asyncio.get_running_loop()
    facts.soon = loop.call_soon
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_or_quit, stop)

    def opened(wall: WallClock) -> Cluster:
        cluster = open_cluster(data, settings, flush, nodes, wall)
        facts.opened(cluster.directory)
        return cluster

    with _few_collections():
        server = await Server.start(opened, facts.tell, *listen, advertised, nodes)
    typer.echo(f"ready {','.join(map(str, server.ports))}")
    sys.stdout.flush()
    await stop.wait()
    facts.note("shutting down (press Ctrl-C again to exit immediately)")
    await server.stop()


@contextmanager
def _few_collections() -> Iterator[None]:
    """Next to nothing here is garbage in cycles: to look for it after every few hundred objects costs a sixth of all.

    While groups are read back nothing is looked for; what is there when that is done, is not looked at again.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
        gc.set_threshold(100_000, 20, 50)
    finally:
        gc.enable()


def _stop_or_quit(stop: asyncio.Event) -> None:
    """The first signal asks, the second insists."""
    if stop.is_set():
        os._exit(1)
    stop.set()


def _text_of(config: Path) -> str:
    try:
        return config.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CoterieError(f"{config} is not UTF-8 text: byte {error.start} cannot be read") from None


def parse_address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise CoterieError(f"{text!r} is not an address: give host:port, for example broker.example.org:9092")
    return host.strip("[]"), int(port)


def raise_file_limit() -> None:
    """Each connection and each segment is a file: take as many as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return  # then it stays as it is
