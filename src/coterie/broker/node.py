"""A broker node without I/O: frames in, effects out. It finds the handler of a request, and the handler answers it.

`Cluster` builds nodes and hands each handler the services it needs. Logs are appended to and read here, through the
port of `coterie.storage.files`: that is the system's cache. Whatever waits for the disk, to make things durable or to
create and delete files, is an effect that comes back to the cluster as an event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coterie.broker.broker_effects import Effects, Ready, Send
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Connection, Handler, Route, close
from coterie.broker.client_metrics_manager import ClientMetricsManager
from coterie.broker.group_service import GroupService
from coterie.broker.handlers.fetch import Fetches
from coterie.broker.handlers.quick_offsets import Quick
from coterie.broker.replica_manager import ReplicaManager
from coterie.broker.security.sasl_server_authenticator import SaslServerAuthenticator
from coterie.broker.transaction_service import TransactionService
from coterie.errors import MalformedError
from coterie.protocol.apis import FIRST_FLEXIBLE, by_key
from coterie.protocol.apis.api_versions import API as API_VERSIONS
from coterie.protocol.apis.api_versions import refuse_version
from coterie.protocol.frames import read_request_header, response_frame
from coterie.settings.broker_settings import BrokerSettings

__all__ = ["BrokerNode", "Intercept"]

Intercept = Callable[["BrokerNode", Connection, bytes, int], Effects | None]
"""Takes a node and the arguments of `look_at`. What it returns is done instead of the request, if it is not None."""

_FLEXIBLE = dict(FIRST_FLEXIBLE)  # a view of one, as the table is, is looked up in twice the time


class BrokerNode:
    def __init__(
        self,
        settings: BrokerSettings,
        groups: GroupService,
        transactions: TransactionService,
        replicas: ReplicaManager,
        fetches: Fetches,
        client_metrics: ClientMetricsManager,
        reporter: Reporter,
        handlers: Mapping[int, Handler],
        authenticator_for: Callable[[Connection], SaslServerAuthenticator | None],
        after: Callable[[Effects, int], Effects],
        quick_handlers: Callable[[Mapping[int, Route]], Mapping[bytes, Quick]] = lambda _routes: {},
    ) -> None:
        """`settings` are the cluster's, with the number of this node; `after` is the cluster's, for every event."""
        self._authenticator_for = authenticator_for
        self.settings = settings
        self.node_id = settings.node_id
        self.groups = groups
        self.coordinator = groups.coordinator
        self.transactions = transactions
        self.replicas = replicas
        self._fetches = fetches
        self.client_metrics = client_metrics
        self._reporter = reporter
        self._after = after
        self.intercept: Intercept | None = None
        """Sees each request before it is answered: None, except while a test watches (`coterie.testing`)."""
        self._routes = {key: Route(by_key[key], by_key[key].module, handle) for key, handle in handlers.items()}
        self._quick = quick_handlers(self._routes)

    # --- events: a method each, since a request need not be wrapped in an object of its own ---------------------------

    def connected(self, connection: Connection) -> None:
        """A client has connected to the listener that the connection names."""
        connection.authenticator = self._authenticator_for(connection)

    def received(self, connection: Connection, frame: bytes, now_ms: int) -> Effects:
        if connection.call is not None or connection.is_full or connection.waiting:
            connection.put_off(frame)
            return []
        return self.look_at(connection, frame, now_ms)

    def look_at(self, connection: Connection, frame: bytes, now_ms: int) -> Effects:
        """Answer or park a request of a connection that has none under way."""
        if self.intercept is not None:
            effects = self.intercept(self, connection, frame, now_ms)
            if effects is not None:
                return self._after(effects, now_ms)
        return self._after(self._dispatch(connection, frame, now_ms), now_ms)

    def go_on(self, connection: Connection, now_ms: int) -> Effects:
        """Look at one request that waited; only when its answer is sent it is known if the client takes more."""
        if connection.can_go_on:
            return self.look_at(connection, connection.next_waiting(), now_ms)
        return []

    def drained(self, connection: Connection, now_ms: int) -> Effects:
        """The client reads again: what waited behind its last answer is looked at."""
        connection.is_full = False
        return self._after(_ready(connection), now_ms)

    def disconnected(self, connection: Connection) -> None:
        """Forget a closed connection, its parked fetch and its client instance.

        No member leaves its group because of it (rule 9).
        """
        connection.is_closed = True
        connection.forget_waiting()
        self.client_metrics.disconnected(connection)
        if connection.call is not None:
            self._fetches.forget(connection.call)
            connection.call = None  # else the two hold each other

    # --- requests -----------------------------------------------------------------------------------------------------

    def _dispatch(self, connection: Connection, frame: bytes, now_ms: int) -> Effects:
        try:
            quick = self._quick.get(frame[:4])
            if quick is not None and connection.is_quick:
                effects = quick(connection, frame, now_ms)
                if effects is not None:
                    return effects
            if connection.authenticator is not None:
                effects = connection.authenticator.received(frame, now_ms)
                if effects is not None:
                    return effects
            key, version, correlation_id, at = read_request_header(frame, _FLEXIBLE)
            route = self._routes.get(key)
            if route is None or not route.first <= version <= route.last:
                return _refuse_version(connection, key, version, correlation_id)
            call = connection.call = Call(connection, route, version, correlation_id)
            return route.handle(call, frame, at, now_ms)
        except MalformedError as error:
            connection.call = None
            return close(connection, f"a request that cannot be read: {error}")
        except Exception:  # noqa: BLE001  the client that sent it is disconnected; nobody else is to notice
            mistake = self._reporter.mistake(f"answering a request that begins {frame[:4].hex()}", now_ms)
            return [mistake, *close(connection, "a mistake of the broker's own")]


def _refuse_version(connection: Connection, key: int, version: int, correlation_id: int) -> Effects:
    """Refuse a version that is not supported. Only ApiVersions gets an answer, in version 0 (C5)."""
    if key == API_VERSIONS.key:
        frame = response_frame(correlation_id, refuse_version(), flexible=False)
        return [Send(connection, frame), *_ready(connection)]
    name = by_key[key].name if key in by_key else "unknown"
    return close(connection, f"version {version} of API {key} ({name}) is not supported")


def _ready(connection: Connection) -> Effects:
    return [Ready(connection)] if connection.waiting else []
