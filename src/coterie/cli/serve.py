"""`coterie serve`: run a broker as a process. Its log, which `serve_log.py` writes, goes to stderr."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import coterie
from coterie.broker.broker import Flush, open_cluster
from coterie.broker.cluster import Cluster
from coterie.broker.io.secure_directory import SecureDirectory
from coterie.broker.io.server import Listener, Server, listeners_of, run_in_loop
from coterie.broker.io.sockets import EVERYWHERE, Port, address_text
from coterie.cli.serve_log import FactLog
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import CoterieError
from coterie.settings.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from coterie.cli.web import BrokerPage
    from coterie.web.serving import WebOptions

Address = tuple[str, int]
DATA = "coterie-data"
_FLUSHES = {
    "sync": "a write is acknowledged when it is on disk",
    "os": "a write is acknowledged before it is on disk, as in Kafka: a power failure may lose the last ones",
    "memory": "data is in memory only, and is gone when the broker stops",
}
"""The line of the start for each way to flush."""


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
    log_format: str | None = None,
    secure: Path | None = None,
    test_controls: bool = False,
    controls: str | None = None,
    web: WebOptions | None = None,
) -> None:
    """Run until a signal, then exit with 0. An option takes precedence over the setting with the same meaning."""
    if controls is not None and not test_controls:
        raise CoterieError("--controls is the address of the test controls: give --test-controls as well")
    properties = _text_of(config) if config else ""
    if test_controls:
        from coterie.cli.serve_for_tests import DEFAULTS

        properties = DEFAULTS + properties
    settings = BrokerSettings.load(properties=properties, environ=os.environ, sets=sets)
    listeners = _listeners(settings, host, port, advertise, is_secure=secure is not None)
    directory = None
    if secure is not None:
        directory = SecureDirectory(secure, _names_of(listeners), datetime.now(UTC))  # noqa: TID251
        more = [f"{name}={value}" for name, value in directory.settings().items()]
        settings = BrokerSettings.load(properties=properties, environ=os.environ, sets=[*more, *sets])
    where = _data_directory(settings, data, memory=memory or (test_controls and data is None))
    as_json = (log_format or ("json" if log == "json" else "text")) == "json"
    facts = FactLog(sys.stderr, as_json=as_json, shows_all=log in {"all", "json"})
    if web is not None and test_controls:
        raise CoterieError("--web and --test-controls contradict each other: give one of them")
    page = _page_of(web, facts) if web is not None else None
    for ignored in settings.ignored:
        facts.note(str(ignored), level="warn")
    raise_file_limit()
    chosen: Flush = flush or settings.coterie_flush
    if test_controls:
        from coterie.cli.serve_for_tests import serve_for_tests

        serve_for_tests(settings, listeners, where, chosen, nodes, facts, directory, controls)
        return
    try:
        run_in_loop(_serve(settings, listeners, where, chosen, nodes, facts, directory, page))
    finally:
        if page is not None:
            page.stop()
        facts.flush()  # facts of the last turn of the loop


def _data_directory(settings: BrokerSettings, data: Path | None, *, memory: bool) -> Path | None:
    if memory and data is not None:
        raise CoterieError("--memory and --data contradict each other: give one of them")
    if memory:
        return None
    where = data or Path(settings.log_dirs[0] if settings.log_dirs else DATA)
    if where.exists() and not where.is_dir():
        option = "log.dirs" if data is None and settings.log_dirs else "--data"
        raise CoterieError(f"{option} {where}: is a file, not a directory")
    return where


def note_start(facts: FactLog, data: Path | None, flush: Flush, nodes: int) -> None:
    """Write what starts, where its data is, and how it is flushed."""
    facts.note(f"Coterie {coterie.__version__} starts", {"pid": os.getpid(), "nodes": nodes})
    where = {"data": "memory"} if data is None else {"data": str(data.resolve()), "flush": flush}
    facts.note(_FLUSHES["memory" if data is None else flush], where)


def _listeners(
    settings: BrokerSettings, host: str | None, port: int | None, advertise: str | None, *, is_secure: bool
) -> list[Listener]:
    """Return the listeners of the settings. If there is one, options may give it another address."""
    listeners = listeners_of(settings)
    if is_secure and "listeners" in settings.given:
        raise CoterieError("--secure and the setting listeners contradict each other: give one of them")
    if len(listeners) > 1:
        if host is not None or port is not None or advertise is not None:
            raise CoterieError(
                "--host, --port and --advertise are for one listener, and the setting listeners has "
                f"{len(listeners)}: put the addresses into listeners and advertised.listeners"
            )
        return listeners
    endpoint, advertised = listeners[0]
    if is_secure:
        endpoint = endpoint._replace(name="SASL_SSL", protocol="SASL_SSL")
    endpoint = endpoint._replace(
        host=endpoint.host if host is None else host, port=endpoint.port if port is None else port
    )
    return [Listener(endpoint, advertised if advertise is None else parse_address(advertise))]


def _names_of(listeners: Sequence[Listener]) -> list[str]:
    """Return the names and addresses that clients of this machine may connect to."""
    hosts = [
        host for endpoint, advertised in listeners for host in (endpoint.host, advertised[0] if advertised else "")
    ]
    local = ["localhost", "127.0.0.1", "::1", socket.gethostname()]
    return list(dict.fromkeys([*local, *(host for host in hosts if host not in EVERYWHERE)]))


async def _serve(
    settings: BrokerSettings,
    listeners: Sequence[Listener],
    data: Path | None,
    flush: Flush,
    nodes: int,
    facts: FactLog,
    directory: SecureDirectory | None,
    page: BrokerPage | None = None,
) -> None:
    loop = asyncio.get_running_loop()
    facts.soon = loop.call_soon
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_or_quit, stop)

    def opened(wall: WallClock) -> Cluster:
        cluster = open_cluster(data, settings, flush, nodes, wall)
        note_start(facts, data, flush, nodes)  # not before: an error at the start is the only line
        facts.opened(cluster.directory)
        return cluster

    with _rare_garbage_collection():
        server = await Server.start(opened, page.tell if page else facts.tell, listeners, settings, nodes)
    loop.add_signal_handler(signal.SIGHUP, server.reload_files)
    first = [port for port in server.ports if port.listener.name == server.port.listener.name]
    if directory is not None:
        bootstrap = ",".join(address_text(*port.endpoint) for port in first)
        for line in directory.write_client_settings(bootstrap):
            facts.note(line)
    for endpoint, _ in listeners:
        own = settings.of_listener(endpoint, "OAUTHBEARER")
        if endpoint.has_sasl and "OAUTHBEARER" in own.sasl_enabled_mechanisms and not own.has_signed_tokens:
            facts.note(
                f"listener {endpoint.name} accepts unsecured OAUTHBEARER tokens, which everybody can make: use it for "
                "tests only, or give sasl.oauthbearer.jwks.endpoint.url",
                level="warn",
            )
    for port in server.ports:
        facts.note("listening", _where_it_listens(port))
    if page is not None:
        page.start(server, loop)
        facts.note("the page and /metrics", {"url": page.url})
    typer.echo(f"ready {','.join(map(str, first))}")
    sys.stdout.flush()
    await stop.wait()
    facts.note("shutting down (press Ctrl-C again to exit immediately)")
    if page is not None:
        await loop.run_in_executor(None, page.stop)  # it samples the broker until it has stopped
    await server.stop()
    facts.note("stopped")


def _page_of(options: WebOptions, facts: FactLog) -> BrokerPage:
    from coterie.cli.web import BrokerPage

    return BrokerPage(options, facts)


def _where_it_listens(port: Port) -> dict[str, str | int]:
    bound, advertised = address_text(port.host, port.number), address_text(*port.endpoint)
    fields: dict[str, str | int] = {"address": bound, "listener": port.listener.name}
    if port.listener.protocol != port.listener.name:
        fields["protocol"] = port.listener.protocol
    return {**fields, **({"advertised": advertised} if advertised != bound else {}), "node": port.node.node_id}


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Collect nothing while groups are loaded, and never look again at what exists after that.

    Almost nothing here is in cycles; `coterie.cli.main` has the threshold.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def _stop_or_quit(stop: asyncio.Event) -> None:
    """Shut down at the first signal, exit at the second."""
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
    """Allow as many open files as the system permits: each connection and each segment is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return  # the limit stays as it is
