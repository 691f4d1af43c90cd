"""The way into a cluster: who leads what, a connection to each node that is needed, and trying again.

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
from coterie.client.network.backoff import backoff_ms
from coterie.client.network.cluster_connection_states import ClusterConnectionStates
from coterie.client.network.connection import BrokerConnection
from coterie.client.network.metadata import NO_LEADER, Metadata, Node, learn
from coterie.client.network.runtime import REAL, Runtime
from coterie.client.network.sasl import Authenticator
from coterie.client.network.tls import client_context
from coterie.errors import (
    STALE_METADATA,
    AuthenticationError,
    ClientClosedError,
    ConnectionLostError,
    ErrorCode,
    KafkaError,
    RequestTimedOutError,
)
from coterie.protocol.apis import find_coordinator, metadata
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
        self.metadata = Metadata()
        # Bootstrap servers have numbers below zero until the answer of Metadata has those of the nodes.
        self._seeds = {-1 - at: Node(-1 - at, *address) for at, address in enumerate(settings.addresses)}
        self._coordinators: dict[int, Node] = {}
        self._connections: dict[_Key, BrokerConnection] = {}
        self._opening: dict[_Key, asyncio.Task[BrokerConnection]] = {}
        self._refreshing: dict[object, asyncio.Task[Metadata]] = {}
        self._states = ClusterConnectionStates(settings)
        self._learned_at: float | None = None
        self._topics_learned_at: dict[str, float] = {}
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
            connection = await self.connection(node_id, lane)
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

    async def retry(self, attempt: Callable[[], Awaitable[T]], *, what: str, timeout_ms: float | None = None) -> T:
        """Try until it works, fails for good, or `default.api.timeout.ms` has passed; `what` begins the error then.

        An attempt that meets a retriable error looks up leaders and coordinators again, since they may be others now.
        """
        within_ms = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        last: KafkaError | None = None
        failures = 0
        try:
            async with asyncio.timeout(within_ms / 1000):
                while True:
                    try:
                        return await attempt()
                    except KafkaError as error:
                        if not error.retriable:
                            raise
                        last = error
                    failures += 1
                    if last.code in STALE_METADATA:
                        self.expire()
                    await self.pause(failures)
        except TimeoutError:
            raise RequestTimedOutError(gave_up(what, last, within_ms)) from None

    async def pause(self, failures: int) -> None:
        """Wait for `retry.backoff.ms`, as it is after this many failures."""
        settings = self.settings
        chance = self._chance()
        pause_ms = backoff_ms(failures, settings.retry_backoff_ms, settings.retry_backoff_max_ms, chance)
        await asyncio.sleep(pause_ms / 1000)

    # --- knowing ------------------------------------------------------------------------------------------------------

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
        asked = None if topics is None else [metadata.Topic(name=name) for name in sorted(topics)]
        request = metadata.Request(topics=asked, allow_auto_topic_creation=allow_auto_create)
        return await _shared(self._refreshing, key, lambda: self._refresh(request, timeout_ms))

    async def refresh_ids(self, topic_ids: Collection[UUID]) -> Metadata:
        """Ask who leads the topics with these ids, and what their names are."""
        asked = [metadata.Topic(topic_id=one) for one in sorted(topic_ids)]
        return await self._refresh(metadata.Request(topics=asked, allow_auto_topic_creation=False), None)

    async def _refresh(self, request: metadata.Request, timeout_ms: float | None) -> Metadata:
        topics = request.topics

        async def attempt() -> Metadata:
            response: metadata.Response = await self.send(None, metadata, request)
            if response.error is ErrorCode.REBOOTSTRAP_REQUIRED:
                self.metadata = Metadata()
                raise KafkaError("the cluster asks the client to bootstrap again", ErrorCode.LEADER_NOT_AVAILABLE)
            if response.error:
                raise KafkaError.of(response.error, "asking who leads what")
            if not response.brokers:
                raise KafkaError("the cluster has no brokers yet", ErrorCode.LEADER_NOT_AVAILABLE)
            self.metadata = learn(self.metadata, response, is_all=topics is None)
            self._learned_at = now = asyncio.get_running_loop().time()
            if topics is None:
                self._topics_learned_at.clear()
            self._topics_learned_at |= {topic.name: now for topic in response.topics if topic.name is not None}
            return self.metadata

        return await self.retry(attempt, what="", timeout_ms=timeout_ms)

    def expire(self) -> None:
        """Let all metadata expire: `leader` and `controller` ask for it again."""
        self._learned_at = None
        self._topics_learned_at.clear()

    @property
    def is_metadata_old(self) -> bool:
        """True if the metadata is older than `metadata.max.age.ms`, expired, or missing."""
        return self._is_old(self._learned_at)

    def knows(self, topic: str) -> bool:
        """Return whether the metadata of the topic is current, so that `leader` sends no request."""
        return not self._is_old(self._topics_learned_at.get(topic))

    def _is_old(self, learned_at: float | None) -> bool:
        if learned_at is None:
            return True
        age_s = asyncio.get_running_loop().time() - learned_at
        return age_s * 1000 >= self.settings.metadata_max_age_ms

    async def leader(self, topic: str, partition: int, *, timeout_ms: float | None = None) -> int:
        """The node that leads a partition, by one look. A retriable error if there is none at the moment."""
        found = self.metadata.leader(topic, partition)
        if found == NO_LEADER or not self.knows(topic):
            found = (await self.refresh([topic], timeout_ms=timeout_ms)).leader(topic, partition)
        if found == NO_LEADER:
            raise self.metadata.why_no_leader(topic, partition, f"looking for the leader of {topic}-{partition}")
        return found

    async def controller(self) -> int:
        """The node that topics are created, changed and deleted by."""
        if self.metadata.controller == NO_LEADER or self.is_metadata_old:
            await self.refresh(())
        if self.metadata.controller not in self.metadata.nodes:
            raise KafkaError("the cluster has no controller at the moment", ErrorCode.NOT_CONTROLLER)
        return self.metadata.controller

    async def find_coordinator(self, key: str, key_type: int = find_coordinator.GROUP) -> Node:
        """Ask any node for the coordinator of a group or transactional id, once. The caller handles errors (M2)."""
        response: find_coordinator.Response = await self.send(
            None,
            find_coordinator,
            find_coordinator.Request(keys=[key], key_type=key_type),
            at_least=0 if key_type == find_coordinator.GROUP else 1,
        )
        whose = "group" if key_type == find_coordinator.GROUP else "transactional id"
        what = f'looking for the coordinator of {whose} "{key}"'
        if len(response.coordinators) != 1:
            raise KafkaError(f"{what}: the broker named {len(response.coordinators)}, and a {whose} has exactly one")
        (found,) = response.coordinators
        if found.error:
            raise KafkaError.of(found.error, what, found.message)
        node = Node(found.node_id, found.host, found.port)
        self._coordinators[node.id] = node
        return node

    # --- connections --------------------------------------------------------------------------------------------------

    async def connection(self, node_id: int, lane: str = "") -> BrokerConnection:
        """Return an open connection; callers that want the same one at the same time share it."""
        if self._is_closed:
            raise ClientClosedError
        node = await self._node(node_id)
        key = (node_id, lane)
        known = self._connections.get(key)
        if known is not None and not known.is_closed and known.address == (node.host, node.port):
            return known
        return await _shared(self._opening, key, lambda: self._open(node, lane))

    async def _node(self, node_id: int) -> Node:
        node = self._known_node(node_id)
        if node is None:
            await self.refresh(())
            node = self._known_node(node_id)
        if node is None:
            raise ConnectionLostError(f"the cluster has no node {node_id} at the moment")
        return node

    def _known_node(self, node_id: int) -> Node | None:
        return self.metadata.nodes.get(node_id) or self._coordinators.get(node_id) or self._seeds.get(node_id)

    async def _open(self, node: Node, lane: str) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        states = self._states
        key = (node.id, lane)
        before = self._connections.pop(key, None)
        if before is not None:
            await before.close()
        if not states.ready(node.id, loop.time()):
            await asyncio.sleep(states.ready_at(node.id) - loop.time())
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
            failures = states.failed(node.id, loop.time(), self._chance())
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
        now = asyncio.get_running_loop().time()

        def in_flight(node_id: int) -> int | None:
            connection = self._connections.get((node_id, lane))
            return None if connection is None or connection.is_closed else connection.in_flight

        nodes = self._states.least_busy(self.metadata.nodes.values(), in_flight, now, self._chance)
        if not nodes or self.settings.metadata_recovery_strategy == "rebootstrap":
            nodes += self._states.least_busy(self._seeds.values(), in_flight, now, self._chance)
        return nodes

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


def gave_up(what: str, last: KafkaError | None, within_ms: float) -> str:
    """Say that something was not done in time: `what`, unless the last error says it all, and that error."""
    said = "the cluster did not answer" if last is None else str(last)
    return f"{what}{': ' if what else ''}{said} (gave up after {within_ms / 1000:g} s)"


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
