"""A broker as an object: in a thread of its own, many in one process if need be.

with coterie.Broker() as broker:            # in memory; Broker(data="directory") keeps what it is given
    consumer = KafkaConsumer("orders", bootstrap_servers=broker.bootstrap_servers, group_id="g")
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self
from uuid import UUID, uuid4  # noqa: TID251  ids are random here alone

from coterie.broker.cluster import Cluster, check_nodes
from coterie.broker.connection_limits import files_of_logs
from coterie.broker.io.certificate_authority import CertificateAuthority
from coterie.broker.io.clock import wall_ms
from coterie.broker.io.secure_directory import MECHANISMS
from coterie.broker.io.server import Listener, Server, listeners_of, run_in_loop
from coterie.broker.security.client_settings import ClientAccess, Names
from coterie.broker.security.users import Users
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import CoterieError, IllegalStateError
from coterie.facts import Fact
from coterie.ledger import Ledger, Rebalance
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import Password, dotted
from coterie.settings.listeners import Endpoint
from coterie.storage import DiskFiles, Files, MemoryFiles
from coterie.structs import replace

__all__ = ["Broker", "Flush", "open_cluster"]

Flush = Literal["sync", "os"]
NOT_RUNNING = "this broker is not running: call start(), or use it in a with statement"


def fresh_id() -> UUID:
    return uuid4()


def open_cluster(
    data: str | os.PathLike[str] | None,
    settings: BrokerSettings,
    flush: Flush,
    nodes: int = 1,
    wall: WallClock | None = None,
    users: Mapping[str, str] = MappingProxyType({}),
    *,
    files: Files | None = None,
    now_ms: int | None = None,
) -> Cluster:
    """`data` None: nothing touches the disk. `users` have passwords, for PLAIN and SCRAM.

    `files` are taken instead of those of the directory `data`; what is written to them is synced as `flush` says.
    `now_ms` is the broker's own time, if it is not that of the wall clock.
    """
    allowed_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most_open = files_of_logs(allowed_files)
    sync = flush == "sync" and not (data is None and files is None)
    if files is None:
        files = MemoryFiles() if data is None else DiskFiles(data, most_open)
    at_ms = wall_ms() if now_ms is None else now_ms
    known = Users(users, lambda: fresh_id().bytes)
    cluster = Cluster(files, settings, at_ms, fresh_id=fresh_id, sync=sync, nodes=nodes, wall=wall, users=known)
    cluster.flusher.most_journaled = most_open // 2  # the file of a log that is not synced stays open
    cluster.data_path = "memory" if data is None else str(Path(data).resolve())
    return cluster


def _named(host: str) -> list[str]:
    """Return the host as a name for a certificate, if it is one."""
    return [] if host in {"", "0.0.0.0", "::", "localhost", "127.0.0.1", "::1"} else [host]  # noqa: S104


class Broker:
    """Run a broker in this process, in a thread of its own.

    Example::

        with Broker() as broker:
            producer = Producer(bootstrap_servers=broker.bootstrap_servers)

    `with` starts and stops it, as `start` and `stop` do. A stop answers who waits, and leaves the data directory clean.

    Args:
        data: The data directory; without it nothing is written to the disk.
        settings: BrokerSettings of the broker under Kafka's names.
        host: The address to listen at.
        port: The port to listen at; 0 is any that is free. The setting `listeners` counts more than host and port.
        flush: When records are written to the disk: `sync` before they are acknowledged, `os` when the system does. It
            counts more than the setting `coterie.flush`, which has the default.
        nodes: How many brokers clients see. Each has a port of its own, with `port` from there on, and leads its share
            of the partitions; there is one copy of each log.
        tls: Whether clients must use TLS. The broker makes a CA for this, whose certificate is in `ca_file`, and needs
            the extra `tls`. With settings `ssl.keystore.…` it has that certificate instead.
        users: Users and their passwords. With them, clients must log in by PLAIN or SCRAM.
        on_fact: A function that is called with everything that happens to a group.

    Raises:
        SettingsError: A setting is unknown, or its value is not allowed.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | BrokerSettings | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        flush: Flush | None = None,
        nodes: int = 1,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        on_fact: Callable[[Fact], None] | None = None,
    ) -> None:
        check_nodes(nodes)
        self._nodes = nodes
        self._data = data
        self._users = dict(users or {})
        self._tls_files: Path | None = None
        if isinstance(settings, BrokerSettings):
            more = self._more_settings(settings.given, host, tls=tls)
            read = BrokerSettings.of(more)
            self._settings = replace(settings, **{name.replace(".", "_"): read[name] for name in more})
        else:
            named = {dotted(name): value for name, value in (settings or {}).items()}
            self._settings = BrokerSettings.of({**self._more_settings(named, host, tls=tls), **named})
        self._listeners = self._choose_listeners(host, port, tls=tls)
        self._flush: Flush = flush or self._settings.coterie_flush
        self._on_fact = on_fact
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._server: Server | None = None
        self._addresses: dict[str, list[str]] = {}
        self._ports: Sequence[int] = ()
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self.ledger = Ledger()
        """The rebalances of all groups since the start."""

    def __repr__(self) -> str:
        where = "memory" if self._data is None else str(self._data)
        addresses = [address for each in self._addresses.values() for address in each]
        return f"{type(self).__name__}({','.join(addresses) if self._thread is not None else 'stopped'}, {where})"

    def _more_settings(self, given: Container[str], host: str, *, tls: bool) -> dict[str, str]:
        """Return the settings that `tls` and `users` stand for, where none are given."""
        more = {}
        if self._users and "sasl.enabled.mechanisms" not in given:
            more["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        if tls and "ssl.keystore.location" not in given and "ssl.keystore.key" not in given:
            now = datetime.fromtimestamp(wall_ms() / 1000, UTC)
            authority = CertificateAuthority.create("Coterie test CA", now)
            server = authority.issue("localhost", ["localhost", "127.0.0.1", "::1", *_named(host)], now)
            self._tls_files = Path(tempfile.mkdtemp(prefix="coterie-tls-"))
            weakref.finalize(self, shutil.rmtree, self._tls_files, ignore_errors=True)  # a stopped one may start again
            Path(self.ca_file).write_bytes(authority.pair.certificate)
            more["ssl.keystore.key"] = server.key.decode()
            more["ssl.keystore.certificate.chain"] = server.certificate.decode()
        return more

    def _choose_listeners(self, host: str, port: int, *, tls: bool) -> list[Listener]:
        settings = self._settings
        if "listeners" in settings.given:
            return listeners_of(settings)
        protocol = ("SASL_" if self._users else "") + ("SSL" if tls else "PLAINTEXT")
        advertised = {each.name: (each.host, each.port) for each in settings.advertised()}
        return [Listener(Endpoint(protocol, host, port, protocol), advertised.get(protocol))]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses to give to clients, also those of stopped nodes; an `IllegalStateError` if it is stopped.

        With several listeners they are those of the first.
        """
        return self.bootstrap_servers_of(self._listeners[0].endpoint.name)

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return the addresses of a listener.

        Args:
            listener: The name of the listener, as in the setting `listeners`.

        Raises:
            IllegalStateError: The broker is stopped.
            CoterieError: There is no such listener.
        """
        if self._thread is None:
            raise IllegalStateError(NOT_RUNNING)
        if listener not in self._addresses:
            raise CoterieError(f"no listener {listener!r}; the listeners are {', '.join(self._addresses)}")
        return ",".join(self._addresses[listener])

    @property
    def ca_file(self) -> str:
        """The file with the CA that clients verify the broker with; only with `tls`."""
        if self._tls_files is None:
            raise IllegalStateError("this broker has made no CA: it has no TLS, or a certificate of its settings")
        return str(self._tls_files / "ca.pem")

    def client_settings(
        self, user: str | None = None, mechanism: str = "SCRAM-SHA-256", *, names: Names = "librdkafka"
    ) -> dict[str, str]:
        """Return the settings that a client needs, for the first listener.

        Args:
            user: One of the users; without it, the first.
            mechanism: The SASL mechanism to log in by.
            names: Whose names the settings have: `librdkafka` (confluent-kafka and Coterie's clients), `java` or
                `kafka-python`.

        Raises:
            IllegalStateError: The broker is stopped.
            CoterieError: There is no such user.
        """
        if user is None:
            user = next(iter(self._users), None)
        elif user not in self._users:
            raise CoterieError(f"no user {user!r}; the users are {', '.join(self._users)}")
        protocol = self._listeners[0].endpoint.protocol
        ca_file = self.ca_file if self._tls_files is not None else None
        password = Password(self._users[user] if user is not None else "")
        return ClientAccess(self.bootstrap_servers, protocol, ca_file, user, password, mechanism).settings(names)

    def rebalances(self, group_id: str) -> list[Rebalance]:
        """Return every rebalance of a group since the start: why, who, how long, what moved, what it cost.

        Args:
            group_id: The id of the group.

        Returns:
            The rebalances, the earliest first.
        """
        return self.ledger.rebalances_of(group_id)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def stop_node(self, node: int) -> None:
        """Stop a node: its partitions and groups go to the other nodes, and its connections are closed.

        Args:
            node: The number of the node, from 1 on.

        Raises:
            IllegalStateError: The broker is stopped.
            CoterieError: There is no such node.
        """
        self._do(lambda server: server.stop_node(node))

    def start_node(self, node: int) -> None:
        """Start a node that was stopped, at the address it had; what it led before comes back to it.

        Args:
            node: The number of the node, from 1 on.

        Raises:
            IllegalStateError: The broker is stopped.
            CoterieError: There is no such node.
        """
        self._do(lambda server: server.start_node(node))

    def move_coordinator(self, group_id: str, node: int) -> None:
        """Make a node the coordinator of a group, and of all that share its partition of `__consumer_offsets`.

        Args:
            group_id: The id of the group.
            node: The number of the node, from 1 on.

        Raises:
            IllegalStateError: The broker is stopped.
            CoterieError: There is no such node.
        """
        self._do(lambda server: server.move_coordinator(group_id, node))

    def move_partition(self, topic: str, partition: int, node: int) -> None:
        """Make a node the leader of a partition.

        Args:
            topic: The name of the topic.
            partition: The number of the partition.
            node: The number of the node, from 1 on.

        Raises:
            IllegalStateError: The broker is stopped.
            CoterieError: There is no such partition or node.
        """
        self._do(lambda server: server.move_partition(topic, partition, node))

    def _do(self, what: Callable[[Server], Coroutine[Any, Any, None]]) -> None:
        if self._thread is None or self._loop is None or self._server is None:
            raise IllegalStateError(NOT_RUNNING)
        try:
            asyncio.run_coroutine_threadsafe(what(self._server), self._loop).result()
        except (RuntimeError, CancelledError):  # it was stopped meanwhile
            raise IllegalStateError(NOT_RUNNING) from None

    # --- starting and stopping ----------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the broker, and return when clients can connect.

        Returns:
            The broker itself.

        Raises:
            IllegalStateError: It is running already.
            CoterieError: The data directory cannot be used.
            OSError: It cannot listen at the address.
        """
        if self._thread is not None:
            raise IllegalStateError("this broker is running already")
        self._started.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, name="coterie-broker", daemon=True)
        self._thread.start()
        self._started.wait()  # as long as it takes to read the data; whatever fails ends it as well
        if self._failure is not None:
            self._end()
        return self

    def stop(self) -> None:
        """Stop the broker. A second stop does nothing, nor does one before the start."""
        if self._thread is not None:
            self._end()

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        assert thread is not None
        self._started.wait()  # who stops it need not be who starts it
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # its loop has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            run_in_loop(self._serve())
        except BaseException as failure:  # noqa: BLE001  raised again in the thread that started us
            self._failure = failure
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._server = await self._start_server()
        self._note_addresses(self._server)
        self._started.set()
        await self._stop.wait()
        if self._server is not None:
            await self._server.stop()

    def _note_addresses(self, server: Server) -> None:
        self._addresses = {}
        for port in server.ports:
            self._addresses.setdefault(port.listener.name, []).append(str(port))
        self._ports = [port.number for port in server.ports]  # a second start takes the same

    async def _start_server(self) -> Server:
        return await Server.start(
            lambda wall: open_cluster(self._data, self._settings, self._flush, self._nodes, wall, self._users),
            self._tell,
            self._listeners,
            self._settings,
            nodes=self._nodes,
            ports=self._ports,
        )

    def _tell(self, fact: Fact) -> None:
        self.ledger.add(fact)
        if self._on_fact is not None:
            self._on_fact(fact)
