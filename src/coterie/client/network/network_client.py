"""The way into a cluster: who leads what, a connection to each node that is needed, and trying again.

It waits, and holds connections and tasks. `metadata.py`, `cluster_connection_states.py` and `backoff.py` decide.
Connections are by node and lane. Group traffic has a lane of its own, so that a long fetch from the same node never
delays a heartbeat (rule M11).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from types import ModuleType
from typing import Any, TypeVar
from uuid import UUID

from coterie.client.event_log import (
    ClientAuthenticationFailed,
    EventLog,
    NodeDisconnected,
    NodeReached,
    NodeUnreachable,
)
from coterie.client.metrics import ClientMetrics
from coterie.client.network.backoff import Retries, backoff_ms
from coterie.client.network.cluster_connection_states import ClusterConnectionStates
from coterie.client.network.connection import BrokerConnection, OnAnswer
from coterie.client.network.metadata import NO_LEADER, ClusterMetadata, Metadata, Node, ask_for, ask_for_ids
from coterie.client.network.runtime import REAL, Runtime, within
from coterie.client.network.sasl import Authenticator
from coterie.client.network.tls import client_context
from coterie.errors import AuthenticationError, ClientClosedError, ConnectionLostError, ErrorCode, KafkaError
from coterie.protocol.apis import find_coordinator, metadata
from coterie.protocol.apis.metadata import Request as MetadataRequest
from coterie.settings.client_settings import Address, ClientSettings

T = TypeVar("T")
_Key = tuple[int, str]


class NetworkClient:
    """The connections of one client. It is created, used and closed in one event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        log: EventLog | None = None,
        measured: ClientMetrics | None = None,
        runtime: Runtime = REAL,
    ) -> None:
        self.settings = settings
        self.clock_ms = runtime.clock_ms
        self._chance = runtime.rng.random
        self._connection_class = runtime.connection
        self._context = client_context(settings) if settings.uses_tls else None
        credentials = settings.credentials
        self._authenticator = (
            Authenticator(settings, credentials, runtime.wall_ms, self._chance) if credentials is not None else None
        )
        self._log = log
        self._measured = measured or ClientMetrics()
        self._known = ClusterMetadata(settings)
        self._connections: dict[_Key, BrokerConnection] = {}
        self._opening: dict[_Key, asyncio.Task[BrokerConnection]] = {}
        self._refreshing: dict[object, asyncio.Task[Metadata]] = {}
        self._states = ClusterConnectionStates(settings)
        self._is_closed = False

    # --- asking -------------------------------------------------------------------------------------------------------

    async def send(
        self,
        node_id: int | None,
        api: ModuleType,
        request: Any,
        *,
        timeout_ms: float | None = None,
        lane: str = "",
        at_most: int | None = None,
        at_least: int = 0,
        expects_answer: bool = True,
    ) -> Any:
        """Send one request to one node, without a retry. None: to the least busy node that can be reached."""
        if node_id is None:
            connection = await self._any_connection(lane)
        else:
            connection = self._open_connection(node_id, lane) or await self.connection(node_id, lane)
        began_ms = self.clock_ms()
        self._measured.requests.record(1, began_ms)
        answer = await connection.send(
            api,
            request,
            timeout_ms=self.settings.request_timeout_ms if timeout_ms is None else timeout_ms,
            at_most=at_most,
            at_least=at_least,
            expects_answer=expects_answer,
        )
        if expects_answer:
            ended_ms = self.clock_ms()
            self._measured.responses.record(ended_ms - began_ms, ended_ms)
        return answer

    async def send_within(
        self,
        node_id: int,
        api: ModuleType,
        request: Any,
        *,
        timeout_ms: float,
        lane: str,
        at_most: int | None = None,
        at_least: int = 0,
    ) -> Any:
        """Send one request as `send` does; the time it takes to connect counts too."""
        asked = self.send(node_id, api, request, timeout_ms=timeout_ms, lane=lane, at_most=at_most, at_least=at_least)
        if self._open_connection(node_id, lane) is not None:
            return await asked  # the request has a timer of its own
        return await within(timeout_ms, asked)

    def ask(
        self,
        node_id: int,
        api: ModuleType,
        request: Any,
        then: OnAnswer,
        *,
        timeout_ms: float,
        lane: str = "",
        at_most: int | None = None,
    ) -> bool:
        """Send a request that is sent often, without a task; return False if there is no open connection to use.

        The caller measures it.
        """
        open_one = self._open_connection(node_id, lane)
        if open_one is None:
            return False
        open_one.ask(api, request, then, timeout_ms=timeout_ms, at_most=at_most)
        return True

    async def retry(self, attempt: Callable[[], Awaitable[T]], *, what: str, timeout_ms: float | None = None) -> T:
        """Try until it works, fails for good, or `default.api.timeout.ms` has passed; `what` begins the error then.

        An attempt that meets a retriable error looks up leaders and coordinators again, since they may be others now.
        """
        within_ms = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        retries = Retries()
        try:
            async with asyncio.timeout(within_ms / 1000):
                while True:
                    try:
                        return await attempt()
                    except KafkaError as error:
                        if not retries.again(error):
                            raise
                    if retries.needs_metadata:
                        self.expire()
                    await self.pause(retries.failures)
        except TimeoutError:
            raise retries.timed_out(what, within_ms) from None

    async def pause(self, failures: int) -> None:
        """Wait for `retry.backoff.ms`, as it is after this many failures."""
        settings = self.settings
        chance = self._chance()
        pause_ms = backoff_ms(failures, settings.retry_backoff_ms, settings.retry_backoff_max_ms, chance)
        await asyncio.sleep(pause_ms / 1000)

    # --- knowing ------------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> Metadata:
        """The metadata of the cluster, as it was last learned."""
        return self._known.known

    async def refresh(
        self,
        topics: Collection[str] | None = (),
        *,
        allow_auto_create: bool = False,
        timeout_ms: float | None = None,
    ) -> Metadata:
        """Fetch the metadata of these topics; None: of all topics, and then unknown ones are forgotten.

        Equal calls at the same time share one request. The error of a topic is in its `error`.
        """
        key = (None if topics is None else frozenset(topics), allow_auto_create)
        request = ask_for(topics, allow_auto_create=allow_auto_create)
        return await _shared(self._refreshing, key, lambda: self._refresh(request, timeout_ms))

    async def refresh_ids(self, topic_ids: Collection[UUID]) -> Metadata:
        """Ask who leads the topics with these ids, and what their names are."""
        return await self._refresh(ask_for_ids(topic_ids), None)

    async def _refresh(self, request: MetadataRequest, timeout_ms: float | None) -> Metadata:
        async def attempt() -> Metadata:
            response: metadata.Response = await self.send(None, metadata, request)
            return self._known.learned(response, _now(), is_all=request.topics is None)

        return await self.retry(attempt, what="", timeout_ms=timeout_ms)

    def expire(self) -> None:
        """Let all metadata expire: `leader` and `controller` ask for it again."""
        self._known.expire()

    @property
    def is_metadata_old(self) -> bool:
        """True if the metadata is older than `metadata.max.age.ms`, expired, or missing."""
        return self._known.is_old(_now())

    def knows(self, topic: str) -> bool:
        """Return whether the metadata of the topic is current, so that `leader` sends no request."""
        return self._known.knows(topic, _now())

    async def leader(self, topic: str, partition: int, *, timeout_ms: float | None = None) -> int:
        """The node that leads a partition, by one look. A retriable error if there is none at the moment."""
        found = self._known.leader(topic, partition, _now())
        if found == NO_LEADER:
            found = (await self.refresh([topic], timeout_ms=timeout_ms)).leader(topic, partition)
        if found == NO_LEADER:
            raise self.metadata.why_no_leader(topic, partition, f"looking for the leader of {topic}-{partition}")
        return found

    async def controller(self) -> int:
        """The node that topics are created, changed and deleted by."""
        if self._known.controller(_now()) == NO_LEADER:
            await self.refresh(())
        known = self.metadata
        if known.controller not in known.nodes:
            raise KafkaError("the cluster has no controller at the moment", ErrorCode.NOT_CONTROLLER)
        return known.controller

    async def find_coordinator(self, key: str, key_type: int = find_coordinator.GROUP) -> Node:
        """Ask any node for the coordinator of a group or transactional id, once. The caller handles errors (M2)."""
        response: find_coordinator.Response = await self.send(
            None,
            find_coordinator,
            find_coordinator.Request(keys=[key], key_type=key_type),
            at_least=0 if key_type == find_coordinator.GROUP else 1,
        )
        return self._known.learned_coordinator(key, key_type, response)

    # --- connections --------------------------------------------------------------------------------------------------

    async def connection(self, node_id: int, lane: str = "") -> BrokerConnection:
        """Return an open connection; callers that want the same one at the same time share it."""
        if self._is_closed:
            raise ClientClosedError
        node = await self._node(node_id)
        known = self._open_connection(node_id, lane)
        if known is not None:
            return known
        return await _shared(self._opening, (node_id, lane), lambda: self._open(node, lane))

    def _open_connection(self, node_id: int, lane: str) -> BrokerConnection | None:
        """Return the connection if it is open, and to the address that the node has now."""
        known = self._connections.get((node_id, lane))
        if known is None or known.error is not None or self._is_closed:
            return None
        node = self._known.node(node_id)
        return known if node is not None and known.address == (node.host, node.port) else None

    async def _node(self, node_id: int) -> Node:
        node = self._known.node(node_id)
        if node is None:
            await self.refresh(())
            node = self._known.node(node_id)
        if node is None:
            raise ConnectionLostError(f"the cluster has no node {node_id} at the moment")
        return node

    async def _open(self, node: Node, lane: str) -> BrokerConnection:
        states = self._states
        key = (node.id, lane)
        before = self._connections.pop(key, None)
        if before is not None:
            await before.close()
        if not states.ready(node.id, _now()):
            await asyncio.sleep(states.ready_at(node.id) - _now())
        try:
            connection = await self._connection_class.open(
                node.host,
                node.port,
                self.settings,
                setup_timeout_ms=states.setup_timeout_ms(node.id),
                context=self._context,
                authenticator=self._authenticator,
            )
        except KafkaError as error:
            failures = states.failed(node.id, _now(), self._chance())
            self.expire()
            if failures == 1:
                event = ClientAuthenticationFailed if isinstance(error, AuthenticationError) else NodeUnreachable
                self._write(event(_named(node), _why(node, error)))
            raise
        failures = states.connected(node.id)
        if failures:
            self._write(NodeReached(_named(node), failures))
        self._measured.connections.record(1, self.clock_ms())
        connection.on_lost = lambda error: self._disconnected(node, error)
        self._connections[key] = connection
        return connection

    def _disconnected(self, node: Node, error: KafkaError) -> None:
        """Log a lost node once, however many connections there were to it."""
        if self._states.disconnected(node.id):
            self._write(NodeDisconnected(_named(node), _why(node, error)))

    def _write(self, event: object) -> None:
        if self._log is not None and not self._is_closed:
            self._log.write(event)

    async def _any_connection(self, lane: str) -> BrokerConnection:
        """Return a connection to the least busy node, to the next if that fails, and at last to a bootstrap server."""
        problems: dict[str, str] = {}
        for node in self._candidates(lane):
            if str(node) in problems:
                continue
            try:
                return await self.connection(node.id, lane)
            except AuthenticationError:  # the next one would not accept us either, and the user has to know (S57)
                raise
            except KafkaError as error:
                problems[str(node)] = str(error)
        raise ConnectionLostError("; ".join(problems.values()))

    def _candidates(self, lane: str) -> Sequence[Node]:
        def in_flight(node_id: int) -> int | None:
            connection = self._connections.get((node_id, lane))
            return None if connection is None or connection.is_closed else connection.in_flight

        now = _now()
        return [
            node
            for nodes in (self.metadata.nodes.values(), self._known.bootstrap_nodes)
            for node in self._states.least_busy(nodes, in_flight, now, self._chance)
        ]

    def disconnect(self, node_id: int, lane: str) -> None:
        """Close the connection to a node. Requests without an answer get an error; the next request connects again."""
        connection = self._connections.pop((node_id, lane), None)
        if connection is not None:
            connection.abort()

    @property
    def addresses(self) -> list[Address]:
        """The addresses that there are connections to."""
        return [each.address for each in list(self._connections.values()) if not each.is_closed]

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def close(self) -> None:
        """Close all connections; requests without an answer fail. A second close does nothing."""
        self._is_closed = True
        tasks = [*self._opening.values(), *self._refreshing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connections = list(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _named(node: Node) -> str:
    return f"{node} (node {node.id})" if node.id >= 0 else f"{node} (bootstrap)"


def _why(node: Node, error: KafkaError) -> str:
    """Return the error without the address, which the line already has."""
    return str(error).removeprefix(f"cannot connect to {node}: ").removeprefix(f"{node}: ").removeprefix(f"{node} ")


async def _shared(tasks: dict[Any, asyncio.Task[T]], key: object, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the result of the task with this key. It continues if one of several waiting callers is cancelled."""
    task = tasks.get(key)
    if task is None:
        task = tasks[key] = asyncio.get_running_loop().create_task(begin())
        task.add_done_callback(lambda done: _forget(tasks, key, done))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():  # by close()
            raise ClientClosedError from None
        raise


def _forget(tasks: dict[Any, asyncio.Task[T]], key: object, done: asyncio.Task[T]) -> None:
    """Remove a task that is done. Its error is for the callers that wait; without any it is dropped."""
    tasks.pop(key, None)
    if not done.cancelled():
        done.exception()
