"""The driver of a cluster on asyncio: connections (`sockets.py`), timers, and the threads that work on the disk.

It hands events to the cluster and its nodes, and performs the effects they return.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from coterie.broker.broker_effects import (
    Authenticated,
    BackgroundTask,
    BackgroundTaskEnded,
    Close,
    Computation,
    DeleteFiles,
    Effects,
    Flush,
    FlushDue,
    FlushEnded,
    MoveGroups,
    MovePartition,
    Ready,
    Send,
    Starting,
    StartNode,
    StopNode,
    Stopping,
    TimersDue,
    WallClockSet,
    Work,
    WorkEnded,
)
from coterie.broker.broker_facts import ConnectionDropped, FilesReloaded, Trouble
from coterie.broker.calls import PLAINTEXT, Connection
from coterie.broker.cluster import Cluster
from coterie.broker.connection_limits import ConnectionLimits, silence_of
from coterie.broker.handlers.quick_heartbeat import QuickHeartbeat
from coterie.broker.io.assignor_threads import AssignorThreads
from coterie.broker.io.clock import LOOK_EVERY_MS, Clock, wall_ms
from coterie.broker.io.disk_thread import DiskThread
from coterie.broker.io.fact_listeners import FactListeners
from coterie.broker.io.jwks import JwksEndpoint
from coterie.broker.io.memory import return_free_memory
from coterie.broker.io.scheduling import READ_ON, SLICE_MS, SPARE, Scheduling
from coterie.broker.io.sockets import Link, Port, TlsTurn
from coterie.broker.io.tls import ListenerTls
from coterie.broker.io.users_file import UsersFile
from coterie.broker.security.principals import parse_mapping_rules, principal_of
from coterie.broker.security.sasl_listener import Validate
from coterie.broker.security.unsecured_tokens import validate_unsecured
from coterie.coordinator.classic.effects import Reply
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import CoterieError
from coterie.facts import Emit, Fact
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.listeners import Endpoint

__all__ = ["Server", "Throttle", "run_in_loop"]


WORK_S, REST_S = 0.001, 0.002
"""The time that a background thread works before it rests, and the time that it rests."""


class Throttle:
    """Makes a background thread rest between steps of its work, so that no client waits for more than a step or two.

    Python runs one thread at a time, and hands over only every five milliseconds unless a thread stops by itself.
    """

    def __init__(self) -> None:
        self._rested_at = 0.0

    def __call__(self) -> None:
        if time.thread_time() - self._rested_at >= WORK_S:
            time.sleep(REST_S)
            self._rested_at = time.thread_time()


STOP_GRACE_S = 5.0
FILES_EVERY_S = 3.0
"""The time between two checks whether certificates have changed."""
READS_AT_LEAST, READS_AT_MOST = 2, 20
"""The number of socket reads before timers fire: two, and more while requests are put off (`scheduling.py`)."""
_FLUSHES_TO_WAIT_FOR = 4
"""The number of flushes that make everything durable that a node has written; directory changes come in between."""


class Listener(NamedTuple):
    """A listener for clients, and its advertised address; None if that is the address it listens on."""

    endpoint: Endpoint
    advertised: tuple[str, int] | None = None


def listeners_of(settings: BrokerSettings) -> list[Listener]:
    """Return the listeners that settings describe."""
    advertised = {each.name: (each.host, each.port) for each in settings.advertised()}
    return [Listener(endpoint, advertised.get(endpoint.name)) for endpoint in settings.endpoints()]


def _further(port: int, by: int) -> int:
    """The nodes of a broker have ports in a row, unless each takes a free one."""
    if port + by > 65_535:
        raise CoterieError(f"the ports from {port} on are not enough: the last one is 65535. Begin lower, or with 0")
    return port + by if port else 0


class Server:
    cluster: Cluster

    def __init__(self, listener: Callable[[Fact], None], clock: Clock | None = None) -> None:
        self.ports: list[Port] = []
        self._loop = asyncio.get_running_loop()
        self._clock = Clock() if clock is None else clock
        self.now_ms = self._clock.now_ms
        self._look_again: asyncio.TimerHandle | None = None
        self._alarm: asyncio.Handle | None = None
        self._alarm_ms: int | None = None
        self._disk = DiskThread(self._loop)
        self._tasks = ThreadPoolExecutor(1, "coterie-tasks")
        self._background_tasks = ThreadPoolExecutor(1, "coterie-background")
        self._link_closed = asyncio.Event()
        """Set when a connection has closed."""
        self._sweep: asyncio.TimerHandle | None = None
        self._unauthenticated_sweep: asyncio.TimerHandle | None = None
        self._look_at_files_again: asyncio.TimerHandle | None = None
        self._files: dict[str, ListenerTls | UsersFile | JwksEndpoint] = {}
        """The key stores, users files and keys of token issuers that are read again when they change."""
        self._facts = FactListeners(listener)
        self.emit = self._facts.emit
        self.scheduling = Scheduling()
        self.tls_turn = TlsTurn()
        self._turn_is_due = False
        self._flush_is_due = False
        self._under_way = 0
        """The number of pieces of work that threads have and have not returned."""
        self._idle = asyncio.Event()
        self._assignor_threads = AssignorThreads(self._loop, self.handle, self._idle.set)
        self._node_change = asyncio.Lock()
        """Lets one node at a time stop or start: that a node is up and that it listens must agree."""

    @property
    def port(self) -> Port:
        """Return the port of the first node."""
        return self.ports[0]

    @property
    def links(self) -> list[Link]:
        return [link for port in self.ports for link in port.links]

    # --- starting and stopping ----------------------------------------------------------------------------------------

    @classmethod
    async def start(
        cls,
        open_cluster: Callable[[WallClock], Cluster],
        on_fact: Callable[[Fact], None],
        listeners: Sequence[Listener],
        settings: BrokerSettings,
        nodes: int = 1,
        ports: Sequence[int] = (),
    ) -> Server:
        """Return a server that listens; see `begin`."""
        server = cls(on_fact)
        await server.begin(open_cluster, listeners, settings, nodes, ports)
        return server

    async def begin(
        self,
        open_cluster: Callable[[WallClock], Cluster],
        listeners: Sequence[Listener],
        settings: BrokerSettings,
        nodes: int = 1,
        ports: Sequence[int] = (),
    ) -> None:
        """Take a port of each listener for each node, open the data, read the groups back, then listen.

        `ports` are the numbers to take, node by node, if they are not those of the listeners.
        """
        try:
            of_listener = {endpoint: settings.of_listener(endpoint) for endpoint, _ in listeners}
            tls = {endpoint.name: ListenerTls(own) for endpoint, own in of_listener.items() if endpoint.has_tls}
            for own in of_listener.values():
                parse_mapping_rules(own.ssl_principal_mapping_rules)  # a mistake in them is an error at the start
            for index in range(nodes):
                for endpoint, advertised in listeners:
                    number = ports[len(self.ports)] if ports else _further(endpoint.port, index)
                    here = endpoint._replace(port=number)
                    shown = (advertised[0], _further(advertised[1], index)) if advertised else None
                    taken = Port(here, shown, tls.get(endpoint.name), self)
                    await taken.take()
                    self.ports.append(taken)
            self._files |= {f"the certificate of listener {name}": each for name, each in tls.items()}
            self._open(open_cluster(self._clock.wall), [endpoint for endpoint, _ in listeners])
        except BaseException:
            self._close_ports()
            self._let_go()
            raise
        try:
            self.perform(self.cluster.handle(Starting(), self.now_ms()))
            self.look_ahead()
            for each in self.ports:
                await each.serve(self.cluster.settings)
        except BaseException:
            self._close_ports()
            await self._all_written()
            self.cluster.directory.release()
            self._let_go()
            raise
        self._close_silent()
        self._close_unauthenticated()
        self._look_at_files()
        self._look_at_clock()

    def _open(self, cluster: Cluster, listeners: Sequence[Endpoint]) -> None:
        self.cluster = cluster
        self.max_request_bytes = cluster.settings.socket_request_max_bytes
        self.max_waiting = cluster.settings.queued_max_requests
        allowed_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limits = ConnectionLimits(
            cluster.settings, allowed_files, lambda connection: int(connection.link.held), self.drop
        )
        cluster.fetches.room = self.limits.room
        cluster.gathers_writes = True
        self._flusher = cluster.flusher
        self._next_ms = cluster.timers.next_ms
        if cluster.settings.coterie_users_file:
            path = cluster.settings.coterie_users_file
            self._files[f"the file of users {path}"] = UsersFile(path, cluster.users)
        cluster.metadata.endpoints = {listener.name: {} for listener in listeners}
        for listener in listeners:
            if listener.has_sasl:
                cluster.offer_sasl(listener, self._validate_of(listener, cluster.settings))
        for index, port in enumerate(self.ports):
            listener = port.listener
            port.node = list(cluster.nodes.values())[index // len(listeners)]
            own = cluster.settings.of_listener(listener)
            port.max_first_request_bytes = (
                own.sasl_server_max_receive_size if listener.has_sasl else self.max_request_bytes
            )
            cluster.metadata.endpoints[listener.name][port.node.node_id] = port.endpoint
            bound = f"{listener.name}://{port.host}:{port.number}"
            cluster.metadata.listeners.setdefault(port.node.node_id, []).append(bound)

    def _validate_of(self, listener: Endpoint, settings: BrokerSettings) -> Validate:
        """Return what looks at the tokens of OAUTHBEARER on a listener: with a JWKS they must be signed."""
        own = settings.of_listener(listener, "OAUTHBEARER")
        if not own.has_signed_tokens or "OAUTHBEARER" not in own.sasl_enabled_mechanisms:
            return validate_unsecured
        endpoint = JwksEndpoint(own, self.now_ms)
        self._files[f"the keys of tokens of listener {listener.name}"] = endpoint
        return endpoint.tokens.validate

    def _close_ports(self) -> None:
        for port in self.ports:
            port.socket.close()

    async def stop(self) -> None:
        """Answer all waiting requests, make what was written durable, and leave the directory clean."""
        self._close_ports()
        for link in self.links:
            link.stop_reading()
        self.cluster.cleaner.stop()
        self.cluster.changes.is_closing = True
        await self._all_written()  # commits and batches under way are answered as they end
        self.perform(self.cluster.handle(Stopping(), self.now_ms()))
        self.look_ahead()
        await self._all_written()
        for link in self.links:
            link.connection.forget_waiting()  # the directory is closed before their turn would come
        await self._close_links(self.ports)
        try:
            await self._disk.finish(self.cluster.directory.close)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        sweeps = (self._sweep, self._unauthenticated_sweep, self._look_at_files_again)
        for timer in (self._alarm, self._look_again, *sweeps):
            if timer is not None:
                timer.cancel()
        self._facts.close()
        self._disk.shutdown()
        self._tasks.shutdown()
        self._background_tasks.shutdown()

    async def _all_written(self) -> None:
        while self._under_way:  # the end of one may start another
            self._idle.clear()
            await self._idle.wait()

    async def _close_links(self, ports: Sequence[Port]) -> None:
        """Let answers reach their clients before the sockets go."""
        for port in ports:
            for link in list(port.links):
                link.transport.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_closed(ports), STOP_GRACE_S)
        for port in ports:
            for link in list(port.links):
                link.transport.abort()

    async def _all_closed(self, ports: Sequence[Port]) -> None:
        while any(port.links for port in ports):
            self._link_closed.clear()
            await self._link_closed.wait()

    # --- nodes stop and start -----------------------------------------------------------------------------------------

    async def stop_node(self, node_id: int) -> None:
        """Move the node's partitions to the others, answer its waiting requests, and close its connections."""
        async with self._node_change:
            await self._stop_node(node_id)

    async def _stop_node(self, node_id: int) -> None:
        await self._change(partial(StopNode, node_id))
        ports = self._ports_of(node_id)
        for port in ports:
            port.socket.close()
            for link in port.links:
                link.stop_reading()
        for _ in range(_FLUSHES_TO_WAIT_FOR):
            if not self._under_way or all(link.connection.call is None for port in ports for link in port.links):
                break
            self._idle.clear()
            await self._idle.wait()
        await self._close_links(ports)

    async def start_node(self, node_id: int) -> None:
        """Listen where the node did before, and move its partitions back to it."""
        async with self._node_change:
            await self._start_node(node_id)

    async def _start_node(self, node_id: int) -> None:
        ports = self._ports_of(node_id)
        if node_id not in self.cluster.leadership.up:  # else it is refused, in its turn
            await self._take_again(ports)
        try:
            await self._change(partial(StartNode, node_id))
        except BaseException:
            if node_id not in self.cluster.leadership.up:
                for port in ports:
                    port.socket.close()
            raise

    async def _take_again(self, ports: Sequence[Port]) -> None:
        taken: list[Port] = []
        try:
            for port in ports:
                await port.take()
                taken.append(port)
                await port.serve(self.cluster.settings)
        except BaseException:
            for port in taken:
                port.socket.close()
            raise

    async def move_partition(self, topic: str, partition: int, node_id: int) -> None:
        await self._change(partial(MovePartition, topic, partition, node_id))

    async def move_coordinator(self, group_id: str, node_id: int) -> None:
        await self._change(partial(MoveGroups, group_id, node_id))

    async def _change(self, event: Callable[[asyncio.Future[None]], Any]) -> None:
        """Wait until a change of leaders has happened; raise if it could not."""
        happened: asyncio.Future[None] = self._loop.create_future()
        self.handle("a change of leaders", event(happened))
        await happened

    def _changed(self, happened: asyncio.Future[None], error: CoterieError | None) -> None:
        if not happened.done():
            if error is None:
                happened.set_result(None)
            else:
                happened.set_exception(error)

    def _ports_of(self, node_id: int) -> list[Port]:
        found = [port for port in self.ports if port.node.node_id == node_id]
        if found:
            return found
        raise CoterieError(f"no node {node_id!r}; the nodes are {', '.join(map(str, self.cluster.nodes))}")

    # --- connections --------------------------------------------------------------------------------------------------

    def admits(self, link: Link) -> bool:
        refusal = self.limits.refusal_of(link.connection.host, len(self.cluster.directory.logs))
        if refusal is not None:
            self._log_drop(link.connection, refusal)
            return False
        self.limits.came(link.connection)
        if link.port.listener.protocol != PLAINTEXT:
            self.limits.must_authenticate(link.connection, self.now_ms())
        link.port.links.add(link)
        return True

    def quick_heartbeat(self, connection: Connection) -> QuickHeartbeat:
        """Return what answers the ordinary heartbeats of a connection."""
        return QuickHeartbeat(connection, self.cluster.auth.authorizer)

    def established(self, link: Link, certificate: bytes | None) -> None:
        """The TLS handshake of a connection is over. Without SASL, the certificate says who the client is."""
        listener = link.port.listener
        if not listener.has_sasl:
            if certificate is not None:
                rules = self.cluster.settings.of_listener(listener).ssl_principal_mapping_rules
                link.connection.principal = principal_of(certificate, rules)
            self.limits.authenticated(link.connection)

    def _authenticated(self, connection: Connection) -> None:
        if not connection.is_closed:
            connection.link.authenticated()
            self.limits.authenticated(connection)

    def _close_unauthenticated(self) -> None:
        """Close connections whose clients take too long to say who they are, every now and then."""
        timeout_ms = self.cluster.settings.coterie_authentication_timeout_ms
        for connection in self.limits.unauthenticated_since(self.now_ms() - timeout_ms):
            self.drop(connection, f"it took more than {timeout_ms} ms (coterie.authentication.timeout.ms) to log in")
        pause_s = min(max(timeout_ms / 4_000, 0.05), 5)
        self._unauthenticated_sweep = self._loop.call_later(pause_s, self._close_unauthenticated)

    # --- files that change --------------------------------------------------------------------------------------------

    def _look_at_files(self) -> None:
        """Take certificates and users again that have changed, every few seconds."""
        for what, file in self._files.items():
            if file.has_changed():
                self._reload_soon(what, file)
        if self._files:
            self._look_at_files_again = self._loop.call_later(FILES_EVERY_S, self._look_at_files)

    def reload_files(self) -> None:
        """Take certificates and users again, as they are now."""
        for what, file in self._files.items():
            self._reload_soon(what, file)

    def _reload_soon(self, what: str, file: ListenerTls | UsersFile | JwksEndpoint) -> None:
        """Read it on a thread: a disk or an endpoint may take its time."""
        self._loop.run_in_executor(self._tasks, file.reload).add_done_callback(partial(self._reloaded, what))

    def _reloaded(self, what: str, done: asyncio.Future[None]) -> None:
        error = done.exception()
        if error is None:
            self.emit(FilesReloaded(wall_ms(), "", what))
        else:
            self.emit(Trouble(wall_ms(), "", f"{what} cannot be read again, and stays as it was: {error}"))

    def closed(self, link: Link) -> None:
        if link in link.port.links:
            link.port.links.discard(link)
            self.limits.went(link.connection)
        self._link_closed.set()
        link.port.node.disconnected(link.connection)
        link.let_go()
        link.connection.link = link.connection.authenticator = None  # else they hold each other until a collection

    def _close_silent(self) -> None:
        """Close idle connections, every now and then."""
        idle_ms = self.cluster.settings.connections_max_idle_ms
        if idle_ms < 0:
            return
        now_ms = self.now_ms()
        for link in self.links:
            why = silence_of(link.connection, now_ms - link.heard_ms, link.arriving_ms(now_ms), idle_ms)
            if why is not None:
                self.drop(link.connection, why)
        self._sweep = self._loop.call_later(min(max(idle_ms / 4_000, 0.05), 60), self._close_silent)

    def drop(self, connection: Connection, why: str) -> None:
        if not connection.is_closed:
            if why:
                self._log_drop(connection, why)
            link: Link = connection.link
            link.port.node.disconnected(connection)
            link.let_go()
            transport = link.transport
            transport.close()
            if transport.get_write_buffer_size():  # earlier answers; a client that does not read is not waited for
                self._loop.call_later(0 if connection.is_full else STOP_GRACE_S, transport.abort)

    def _log_drop(self, connection: Connection, why: str) -> None:
        self.emit(ConnectionDropped(wall_ms(), "", connection.host, why))

    # --- effects ------------------------------------------------------------------------------------------------------

    def handle(self, what: str, event: Any) -> None:
        """Hand an event to the cluster, and perform what follows."""
        self.run(what, self.cluster.handle, event)

    def run(self, what: str, act: Callable[..., Effects], *about: Any) -> None:
        """Handle an event that comes from no client. If it fails, the bug is reported, and the broker continues.

        `act` takes what it is about, and the time.
        """
        now_ms = self.now_ms()
        try:
            effects = act(*about, now_ms)
        except Exception:  # noqa: BLE001
            effects = self.cluster.mistaken(what, now_ms)
        self.perform(effects)
        self.look_ahead()

    def perform(self, effects: Effects) -> None:
        """Perform effects. A connection that was answered and has more requests is queued for its next turn."""
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._send(effect)  # type: ignore[arg-type]
            elif kind is Emit:
                self.emit(effect.fact)  # type: ignore[union-attr]
            elif kind is Flush or kind is Work:
                self._on_disk(effect)  # type: ignore[arg-type]
            elif kind is Ready:
                if not effect.connection.is_closed:  # type: ignore[union-attr]
                    self.wait_for_turn(effect.connection.link)  # type: ignore[union-attr]
            elif kind is BackgroundTask:
                self._in_background(effect)  # type: ignore[arg-type]
            elif kind is Computation:
                self._assignor_threads.run(effect)  # type: ignore[arg-type]
            elif kind is Authenticated:
                self._authenticated(effect.connection)  # type: ignore[union-attr]
            elif kind is Close:
                self.drop(effect.connection, effect.why)  # type: ignore[union-attr]
            elif kind is DeleteFiles:
                self._tasks.submit(self._run_task, effect)  # type: ignore[arg-type]
            else:
                assert isinstance(effect, Reply)
                self._changed(effect.token, effect.answer)  # type: ignore[arg-type]

    # --- turns --------------------------------------------------------------------------------------------------------

    def serve(self, link: Link, most: int) -> None:
        """Answer some of the requests that wait at a connection; if there are more, it waits for its next turn."""
        connection, node = link.connection, link.port.node
        began_ms = now_ms = self.now_ms()
        link.in_queue = True  # so that an answer does not queue it meanwhile
        while most > 0 and now_ms - began_ms < SLICE_MS and connection.can_go_on:
            most -= 1
            frame = connection.next_waiting()
            answer = link.quick_answer(frame, now_ms)
            if answer is not None:
                link.transport.write(answer)
            else:
                self.perform(node.look_at(connection, frame, now_ms))
                now_ms = self.now_ms()
            link.cut_more(now_ms)
        link.in_queue = False
        self.scheduling.worked(now_ms)
        if connection.can_go_on:
            self.wait_for_turn(link)

    def serve_alone(self, link: Link, frame: bytes, now_ms: int) -> None:
        """Answer a request that has arrived alone, at a connection where none waits: `serve`, with less to look at."""
        link.in_queue = True  # so that an answer does not queue it meanwhile
        self.perform(link.port.node.look_at(link.connection, frame, now_ms))
        link.in_queue = False
        self.scheduling.worked(self.now_ms())

    def wait_for_turn(self, link: Link) -> None:
        if not link.in_queue:
            link.in_queue = True
            link.hold_back()
            self.scheduling.queue.append(link)
            self.end_turn_soon()

    def end_turn_soon(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """Serve the connections in the queue, one after the other, for a short time."""
        self._turn_is_due = False
        self.scheduling.spare = SPARE
        queue, began_ms = self.scheduling.queue, self.now_ms()
        most_read = READ_ON
        for _ in range(len(queue)):
            link = queue.popleft()
            link.in_queue = False
            if link.connection.is_closed:
                continue
            self.serve(link, self.scheduling.share)
            if not link.in_queue:
                most_read -= 1
                link.read_bytes = 0
                link.read_on()
                link.weigh()
            if not most_read or self.now_ms() - began_ms >= SLICE_MS:
                break
        self.look_ahead()
        if queue:
            self.end_turn_soon()

    def look_ahead(self) -> None:
        """Schedule what comes next: a flush if one is wanted, and the next timer."""
        if not self._flush_is_due and self._flusher.can_start:
            self._flush_is_due = True
            self._under_way += 1
            self._loop.call_soon(self._flush)
        self.look_at_timers()

    def look_at_timers(self) -> None:
        """Schedule `_ring` for the time when the next timer is due."""
        next_ms = self._next_ms()
        if next_ms != self._alarm_ms:
            self._set_alarm(next_ms)

    def _send(self, effect: Send) -> None:
        connection = effect.connection
        if connection.is_closed:
            return
        link: Link = connection.link
        data = effect.data
        if isinstance(data, bytes):
            link.transport.write(data)
        else:
            link.send_parts(data)

    def _set_alarm(self, next_ms: int | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_ms = next_ms
        if next_ms is not None:
            self._alarm = self._loop.call_later(self._clock.seconds_until(next_ms), self._ring)

    def _ring(self) -> None:
        """Read what has arrived before timers fire: the loop may be late, and a heartbeat may wait in a socket."""
        self._alarm = self._loop.call_soon(self._ring_after, READS_AT_MOST)

    def _ring_after(self, reads: int) -> None:
        """The loop reads from every socket between two calls; what it puts off is waited for, but not for ever."""
        if reads > READS_AT_MOST - READS_AT_LEAST or (reads and self.scheduling.queue):
            self._alarm = self._loop.call_soon(self._ring_after, reads - 1)
            return
        self._alarm = self._alarm_ms = None
        self.tls_turn.end()
        self.handle("a timer", TimersDue())

    def _look_at_clock(self) -> None:
        """Look at the clock often, so that a gap shows that nothing could be done for a while."""
        by_ms = self._clock.look()
        if by_ms:
            self.handle("a clock that was set", WallClockSet(by_ms))
        if self.limits.has_let_go():
            self._tasks.submit(return_free_memory)
        self._look_again = self._loop.call_later(LOOK_EVERY_MS / 1_000, self._look_at_clock)

    def _flush(self) -> None:
        """Begin one flush for all that has arrived, now that it has been looked at."""
        self._flush_is_due = False
        self._under_way -= 1
        self.handle("a flush", FlushDue())
        self._idle.set()

    def _on_disk(self, effect: Flush | Work) -> None:
        self._under_way += 1
        if isinstance(effect, Flush):
            self._disk.flush(effect, self._disk_ended)
        else:
            self._disk.run(effect.run, self._disk_ended)

    def _disk_ended(self, ended: FlushEnded | WorkEnded) -> None:
        self._under_way -= 1
        self.handle("what follows work of the disk", ended)
        self._idle.set()

    def _in_background(self, effect: BackgroundTask) -> None:
        self._under_way += 1
        self._loop.run_in_executor(self._background_tasks, effect.run, Throttle()).add_done_callback(
            self._background_task_ended
        )

    def _background_task_ended(self, done: asyncio.Future[BackgroundTaskEnded]) -> None:
        self._under_way -= 1
        self.handle("what follows long work", done.result())
        self._idle.set()

    def _run_task(self, effect: DeleteFiles) -> None:
        try:
            effect.work()
        except OSError as error:
            self._loop.call_soon_threadsafe(self.emit, Trouble(wall_ms(), "", f"{effect.what}: {error}"))


def run_in_loop(coroutine: Any) -> Any:
    """Run a coroutine with uvloop if it is installed, else with plain asyncio, which is slower."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    return uvloop.run(coroutine)
