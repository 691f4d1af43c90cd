"""`coterie serve`: run a broker as a process, and write the facts of its groups to stderr.

A line is text for people, or JSON. A group that rebalances all the time has thousands of facts a second, so all facts
of one turn of the event loop are one write.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import typer

from coterie.broker.broker import Flush, open_cluster
from coterie.broker.cluster import Cluster
from coterie.broker.io.secure_directory import SecureDirectory
from coterie.broker.io.server import Listener, Server, listeners_of, run_in_loop
from coterie.broker.io.sockets import EVERYWHERE, address_text
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import CoterieError
from coterie.facts import Fact, MemberAssigned, MemberRejoined, OffsetsStored
from coterie.ledger import plain
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import DataDirectory
from coterie.structs import field_names

__all__ = ["FactLog", "serve"]

Address = tuple[str, int]
DATA = "coterie-data"
MAX_TEXT = 300
MAX_ENTRIES = 3
"""The number of entries of a list or a mapping that a line of text shows."""
FREQUENT = (OffsetsStored, MemberRejoined, MemberAssigned)
"""Facts that healthy groups cause all the time; text leaves them out unless all facts are asked for."""


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
    secure: Path | None = None,
    test_controls: bool = False,
    controls: str | None = None,
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
    facts = FactLog(sys.stderr, as_json=log == "json", shows_all=log == "all")
    for ignored in settings.ignored:
        facts.note(str(ignored))
    raise_file_limit()
    chosen: Flush = flush or settings.coterie_flush
    if test_controls:
        from coterie.cli.serve_for_tests import serve_for_tests

        serve_for_tests(settings, listeners, where, chosen, nodes, facts, directory, controls)
        return
    try:
        run_in_loop(_serve(settings, listeners, where, chosen, nodes, facts, directory))
    finally:
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
    hosts = [host for endpoint, told in listeners for host in (endpoint.host, told[0] if told else "")]
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

    with _rare_garbage_collection():
        server = await Server.start(opened, facts.tell, listeners, settings, nodes)
    loop.add_signal_handler(signal.SIGHUP, server.reload_files)
    first = [port for port in server.ports if port.listener.name == server.port.listener.name]
    if directory is not None:
        told = ",".join(address_text(*port.endpoint) for port in first)
        for line in directory.write_client_settings(told):
            facts.note(line)
    for endpoint, _ in listeners:
        own = settings.of_listener(endpoint, "OAUTHBEARER")
        if endpoint.has_sasl and "OAUTHBEARER" in own.sasl_enabled_mechanisms and not own.has_signed_tokens:
            facts.note(
                f"listener {endpoint.name} accepts unsecured OAUTHBEARER tokens, which everybody can make: use it for "
                "tests only, or give sasl.oauthbearer.jwks.endpoint.url"
            )
    if len(listeners) > 1:
        for port in server.ports:
            facts.note(f"listener {port.listener.name} ({port.listener.protocol}): {port}")
    typer.echo(f"ready {','.join(map(str, first))}")
    sys.stdout.flush()
    await stop.wait()
    facts.note("shutting down (press Ctrl-C again to exit immediately)")
    await server.stop()


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Collect garbage rarely: almost nothing here is in cycles, and the default threshold costs a sixth of the time.

    Nothing is collected while groups are loaded, and what exists after that is never looked at again.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
        gc.set_threshold(100_000, 20, 50)
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


# --- the log ----------------------------------------------------------------------------------------------------------


class FactLog:
    def __init__(self, stream: TextIO, *, as_json: bool = False, shows_all: bool = False) -> None:
        self._stream = stream
        self._as_json = as_json
        self._left_out = () if shows_all or as_json else FREQUENT
        self._lines: list[str] = []
        self.soon: Callable[[Callable[[], None]], object] | None = None
        """Calls a function at the end of this turn of the event loop. Without it every line is written at once."""

    def tell(self, fact: Fact) -> None:
        if type(fact) in self._left_out:
            return
        line = json.dumps(plain(fact)) if self._as_json else _line(fact)
        self._lines.append(line)
        if self.soon is None:
            self.flush()
        elif len(self._lines) == 1:
            self.soon(self.flush)

    def note(self, text: str) -> None:
        self._lines.append(json.dumps({"note": text}) if self._as_json else f"coterie: {text}")
        self.flush()

    def flush(self) -> None:
        """Write what is pending. Call it when the loop has ended, too."""
        if not self._lines:
            return
        text = "\n".join(self._lines) + "\n"
        self._lines.clear()
        with suppress(OSError, ValueError):  # a closed pipe or a full disk does not stop the broker
            self._stream.write(text)
            self._stream.flush()

    def opened(self, directory: DataDirectory) -> None:
        """Write what was unusual about the data directory."""
        if directory.topics and not directory.opening.was_clean:
            self.note("the last shutdown was not clean: the logs were checked")
        if directory.topics and not directory.opening.knew_ends:
            self.note(
                "the data directory was written by an earlier release, which did not record how far its logs were "
                "durable: data missing at the end of a log cannot be detected at this start"
            )
        for (topic, partition), log in directory.logs.items():
            for cut in log.recovery.cuts:
                self.note(f"{topic}-{partition}: {cut}")
        for stray in directory.opening.strays:
            self.note(f"{stray} belongs to no topic; it was moved aside")


def _line(fact: Fact) -> str:
    fields = [
        f"{name.removesuffix('_id')}={_shown(value)}"
        for name in field_names(type(fact))
        if name not in {"at_ms", "group_id"} and _is_worth_showing(value := getattr(fact, name))
    ]
    group = f" group={_escaped(fact.group_id)}" if fact.group_id else ""
    return (
        f"{_second(fact.at_ms // 1000)}.{fact.at_ms % 1000:03} {type(fact).__name__}{group} {' '.join(fields)}".rstrip()
    )


@lru_cache(maxsize=8)
def _second(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S")


def _is_worth_showing(value: Any) -> bool:
    return value is not None and value is not False and value not in ("", (), [], {})


def _shown(value: Any) -> str:
    if type(value) is str:  # most are, and isinstance of Mapping is slow
        return _escaped(value)
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, Mapping):
        return _shortened(
            [f"{_shown(key)}:{_shown(one)}" for key, one in islice(value.items(), MAX_ENTRIES)], len(value)
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _shortened([_shown(one) for one in value[:MAX_ENTRIES]], len(value))
    text = getattr(value, "name", None) if isinstance(value, int) and not isinstance(value, bool) else None
    return _escaped(str(text or value))


def _escaped(text: str) -> str:
    """Escape and shorten a text: a client id must not look like a line of the log, nor fill it."""
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}... ({len(text)} characters)"
    return text if text.isprintable() else repr(text)[1:-1]


def _shortened(shown: list[str], count: int) -> str:
    rest = f", and {count - len(shown)} more" if count > len(shown) else ""
    return f"[{', '.join(shown)}{rest}]"
