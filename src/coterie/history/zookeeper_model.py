"""A deterministic model of a ZooKeeper ensemble: a leader, and followers that lag.

Like the real one, the leader orders all writes, and a server answers reads from its own data, which may be old. A
client reads its own writes, and gets a notification before it can read the change. A watch fires once, at the server
its client is connected to. The leader times the sessions and learns of a follower's clients through that follower: if
a follower lags by more than the session timeout, its clients lose their sessions without knowing it.

The model has no elections and no server that stops: a client stays with its server until its session ends.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.history.design_types import (
    ANY_SESSION,
    Children,
    ChildrenChanged,
    Create,
    Delete,
    Get,
    Operation,
    SessionBegan,
    SessionEnded,
    SetData,
    ZkError,
    ZkRequest,
    ZkResponse,
    ZNode,
    counted_as,
)
from coterie.sim.schedule import Random, Schedule

PERSISTENT = 0
JITTER_MS = 3
"""The random part of every delay on the network."""


@dataclass(frozen=True, slots=True)
class NodeCreated:
    path: str
    data: bytes
    session: int


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    path: str


@dataclass(frozen=True, slots=True)
class DataSet:
    values: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """A session has ended: its ephemeral nodes are deleted."""

    session: int


Transaction = NodeCreated | NodeDeleted | DataSet | SessionClosed


class ZNodeTree:
    """The data of one server: nodes with versions. Ephemeral ones belong to a session."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[ZNode, int]] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._of_session: dict[int, dict[str, None]] = {}

    def get(self, path: str) -> ZNode | None:
        found = self._nodes.get(path)
        return found[0] if found is not None else None

    def children(self, path: str) -> list[str]:
        return sorted(self._children.get(path, ()))

    def apply(self, what: Transaction) -> Iterable[str]:
        """Apply a change. Returns the paths whose children have changed."""
        match what:
            case NodeCreated(path, data, session):
                return self._make(path, data, session)
            case NodeDeleted(path):
                return self._remove(path)
            case DataSet(values):
                changed: list[str] = []
                for path, data in values.items():
                    before = self._nodes.get(path)
                    if before is None:
                        changed += self._make(path, data, PERSISTENT)
                    else:
                        self._nodes[path] = (ZNode(data, before[0].version + 1), before[1])
                return changed
            case SessionClosed(session):
                gone = list(self._of_session.pop(session, ()))
                return list(dict.fromkeys(parent for path in gone for parent in self._remove(path)))

    def _make(self, path: str, data: bytes, session: int) -> list[str]:
        self._nodes[path] = (ZNode(data, 0), session)
        parent, _, name = path.rpartition("/")
        self._children.setdefault(parent, {})[name] = None
        if session != PERSISTENT:
            self._of_session.setdefault(session, {})[path] = None
        return [parent]

    def _remove(self, path: str) -> list[str]:
        found = self._nodes.pop(path, None)
        if found is None:
            return []
        parent, _, name = path.rpartition("/")
        del self._children[parent][name]
        self._of_session.get(found[1], {}).pop(path, None)
        return [parent]


Callback = Callable[[Any], None]


class EnsembleServer:
    def __init__(self, lag_ms: int) -> None:
        self.tree = ZNodeTree()
        self.lag_ms = lag_ms
        """The delay to the leader, and of the leader's answers."""
        self.up_at_ms = self.down_at_ms = 0
        self.watches: dict[str, dict[EnsembleClient, None]] = {}


class EnsembleClient:
    """One client of the ensemble. `post` takes its events."""

    def __init__(self, ensemble: Ensemble, name: str, post: Callback) -> None:
        self.name = name
        self.session = ANY_SESSION
        """The session as the client knows it; it may have ended."""
        self.is_alive = True
        self.counts: Counter[str] = Counter()
        """The number of notifications, reads, membership reads among them, and writes."""
        self.server = ensemble.leader
        self.cuts = 0
        """The number of reasons why nothing reaches or leaves this client."""
        self.held: deque[tuple[Callback, Any]] = deque()
        """The messages that could not pass, in order."""
        self.up_at_ms = self.down_at_ms = 0
        self.under_way: dict[int, ZkRequest] = {}
        """Requests without a response."""
        self.writes_under_way: dict[int, None] = {}
        self.waiting: deque[tuple[int, ZkRequest]] = deque()
        """Reads behind writes that the server does not have yet."""
        self._ensemble = ensemble
        self._post = post

    def connect(self) -> None:
        self._ensemble.connect(self)

    def send(self, request: ZkRequest) -> None:
        self._ensemble.send(self, request)

    def deliver(self, event: Any) -> None:
        if self.is_alive:
            self._post(event)

    def close(self) -> None:
        """Close the session, so that its ephemeral nodes go at once."""
        self._ensemble.close(self)

    def crash(self) -> None:
        """Crash: the session ends when it times out."""
        self._ensemble.crash(self)

    def cut(self) -> None:
        """Cut the client off, as by a network fault or a paused process."""
        self.cuts += 1

    def repair(self) -> None:
        self.cuts -= 1
        if not self.cuts:
            self._ensemble.repaired(self)


class Ensemble:
    def __init__(
        self,
        schedule: Schedule,
        rng: Random,
        *,
        session_timeout_ms: int,
        lags_ms: Sequence[int],
    ) -> None:
        """`lags_ms` has the delay of each follower. The leader is one more server."""
        self.schedule = schedule
        self.session_timeout_ms = session_timeout_ms
        self.servers = [EnsembleServer(lag) for lag in (0, *lags_ms)]
        self.leader = self.servers[0]
        self._rng = rng
        self._sessions: dict[int, tuple[EnsembleClient, int]] = {}
        """The leader's view of sessions: the client, and when the session times out."""
        self._last_session = self._last_ask = 0
        self.on_change: Callable[[Transaction], None] = lambda _what: None
        """Called with every change that the leader has applied."""

    def client(self, name: str, post: Callable[[Any], None]) -> EnsembleClient:
        return EnsembleClient(self, name, post)

    # --- the network: each connection keeps its order -----------------------------------------------------------------

    def _to_server(self, client: EnsembleClient, act: Callable[[Any], None], about: Any) -> None:
        at_ms = self.schedule.now_ms + 1 + int(self._rng.random() * JITTER_MS)
        client.up_at_ms = max(at_ms, client.up_at_ms)
        self.schedule.at(client.up_at_ms, self._deliver_or_hold, (client, act, about))

    def _to_client(self, client: EnsembleClient, act: Callable[[Any], None], about: Any) -> None:
        at_ms = self.schedule.now_ms + 1 + int(self._rng.random() * JITTER_MS)
        client.down_at_ms = max(at_ms, client.down_at_ms)
        self.schedule.at(client.down_at_ms, self._deliver_or_hold, (client, act, about))

    def _deliver_or_hold(self, about: tuple[EnsembleClient, Callable[[Any], None], Any]) -> None:
        client, act, what = about
        if client.cuts or client.held:
            client.held.append((act, what))
        else:
            act(what)

    def _to_leader(self, server: EnsembleServer, act: Callable[[Any], None], about: Any) -> None:
        server.up_at_ms = max(self.schedule.now_ms + server.lag_ms, server.up_at_ms)
        self.schedule.at(server.up_at_ms, act, about)

    def _from_leader(self, server: EnsembleServer, act: Callable[[Any], None], about: Any) -> None:
        server.down_at_ms = max(self.schedule.now_ms + server.lag_ms, server.down_at_ms)
        self.schedule.at(server.down_at_ms, act, about)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def connect(self, client: EnsembleClient) -> None:
        """Connect to a random server and begin a new session."""
        client.server = self._rng.choice(self.servers)
        self._to_server(client, self._session_requested, client)

    def _session_requested(self, client: EnsembleClient) -> None:
        self._to_leader(client.server, self._begin_session, client)

    def _begin_session(self, client: EnsembleClient) -> None:
        if client.is_alive:
            self._last_session = number = self._last_session + 1
            self._sessions[number] = (client, self.schedule.now_ms + self.session_timeout_ms)
            self.schedule.at(self.schedule.now_ms + self.session_timeout_ms, self._check_timeout, number)
            self._from_leader(client.server, self._session_granted, (client, number))

    def _session_granted(self, about: tuple[EnsembleClient, int]) -> None:
        self._to_client(about[0], self._session_began, about)

    def _session_began(self, about: tuple[EnsembleClient, int]) -> None:
        client, number = about
        client.session = number
        client.deliver(SessionBegan(number))
        for key in [key for key, request in client.under_way.items() if request.session == ANY_SESSION]:
            self._to_server(client, self._request_arrived, (client, key))
        self._ping((client, number))

    def _ping(self, about: tuple[EnsembleClient, int]) -> None:
        client, number = about
        if client.is_alive and client.session == number:
            self._to_server(client, self._pinged, about)
            self.schedule.at(self.schedule.now_ms + self.session_timeout_ms // 3, self._ping, about)

    def _pinged(self, about: tuple[EnsembleClient, int]) -> None:
        """The server answers the ping and forwards it to the leader."""
        self._to_leader(about[0].server, self._touch, about[1])

    def _touch(self, number: int) -> None:
        if number in self._sessions:
            self._sessions[number] = (self._sessions[number][0], self.schedule.now_ms + self.session_timeout_ms)

    def _check_timeout(self, number: int) -> None:
        found = self._sessions.get(number)
        if found is None:
            return
        if found[1] > self.schedule.now_ms:
            self.schedule.at(found[1], self._check_timeout, number)
        else:
            self._end(number)

    def _end(self, number: int) -> None:
        if number in self._sessions:
            client, _ = self._sessions.pop(number)
            self._commit(SessionClosed(number))
            self._from_leader(client.server, self._session_expired, (client, number))

    def _session_expired(self, about: tuple[EnsembleClient, int]) -> None:
        """The client's server learns that the session is over and closes the connection; the client reconnects."""
        self._forget_watches(about[0])
        self._to_client(about[0], self._session_lost, about)

    def _session_lost(self, about: tuple[EnsembleClient, int]) -> None:
        client, number = about
        if not client.is_alive or client.session != number:
            return
        client.session = ANY_SESSION
        client.writes_under_way.clear()
        client.waiting.clear()
        client.deliver(SessionEnded(number))
        for key, request in list(client.under_way.items()):
            if request.session != ANY_SESSION:
                del client.under_way[key]
                client.deliver(ZkResponse(request, None, ZkError.EXPIRED))
        self.connect(client)

    def close(self, client: EnsembleClient) -> None:
        number, client.is_alive = client.session, False
        self._to_server(client, lambda _: self._to_leader(client.server, self._end, number), None)

    def crash(self, client: EnsembleClient) -> None:
        client.is_alive = False
        client.session = ANY_SESSION
        client.held.clear()
        self._forget_watches(client)

    def repaired(self, client: EnsembleClient) -> None:
        held, client.held = client.held, deque()
        client.up_at_ms = client.down_at_ms = self.schedule.now_ms
        for act, about in held:
            act(about)

    def _forget_watches(self, client: EnsembleClient) -> None:
        for server in self.servers:
            for watching in server.watches.values():
                watching.pop(client, None)

    # --- requests -----------------------------------------------------------------------------------------------------

    def send(self, client: EnsembleClient, request: ZkRequest) -> None:
        self._last_ask = key = self._last_ask + 1
        client.under_way[key] = request
        if request.session not in {ANY_SESSION, client.session}:
            self.schedule.at(self.schedule.now_ms, self._answer_now, (client, key, None, ZkError.EXPIRED))
        elif client.session != ANY_SESSION:
            self._to_server(client, self._request_arrived, (client, key))

    def _request_arrived(self, about: tuple[EnsembleClient, int]) -> None:
        client, key = about
        request = client.under_way.get(key)
        if request is None:
            return
        client.counts.update(counted_as(request.operation))
        if not isinstance(request.operation, Children | Get):
            client.writes_under_way[key] = None
            self._to_leader(client.server, self._decide, (client, key, client.session))
        elif client.writes_under_way:
            client.waiting.append((key, request))
        else:
            self._read(client, key, request)

    def _read(self, client: EnsembleClient, key: int, request: ZkRequest) -> None:
        operation = request.operation
        tree = client.server.tree
        if isinstance(operation, Get):
            self._answer(client, key, tree.get(operation.path))
            return
        assert isinstance(operation, Children)
        if operation.watch:
            client.server.watches.setdefault(operation.path, {})[client] = None
        self._answer(client, key, tree.children(operation.path))

    def _decide(self, about: tuple[EnsembleClient, int, int]) -> None:
        """The leader decides on a write, in one order for all clients."""
        client, key, number = about
        request = client.under_way.get(key)
        if request is None or number not in self._sessions:
            return  # the client will get SessionEnded
        what, value = self._evaluate(request.operation, number)
        if what is not None:
            self._commit(what)
        self._from_leader(client.server, self._written, (client, key, value))

    def _evaluate(self, operation: Operation, session: int) -> tuple[Transaction | None, bool]:
        tree = self.leader.tree
        match operation:
            case Create(path, data, is_ephemeral):
                if tree.get(path) is not None:
                    return None, False
                return NodeCreated(path, data, session if is_ephemeral else 0), True
            case Delete(path):
                return (NodeDeleted(path), True) if tree.get(path) is not None else (None, False)
            case SetData(values, guard):
                node = tree.get(guard[0]) if guard is not None else None
                if guard is not None and (node is None or node.version != guard[1]):
                    return None, False
                return DataSet(values), True
        raise AssertionError(operation)

    def _commit(self, what: Transaction) -> None:
        self._apply((self.leader, what))
        self.on_change(what)
        for follower in self.servers[1:]:
            self._from_leader(follower, self._apply, (follower, what))

    def _apply(self, about: tuple[EnsembleServer, Transaction]) -> None:
        server, what = about
        for path in server.tree.apply(what):
            for client in server.watches.pop(path, {}):
                client.counts["notifications"] += 1
                self._to_client(client, client.deliver, ChildrenChanged(path))

    def _written(self, about: tuple[EnsembleClient, int, bool]) -> None:
        client, key, value = about
        client.writes_under_way.pop(key, None)
        self._answer(client, key, value)
        while client.waiting and not client.writes_under_way:
            self._read(client, *client.waiting.popleft())

    def _answer(self, client: EnsembleClient, key: int, value: Any) -> None:
        self._to_client(client, self._answer_now, (client, key, value, None))

    def _answer_now(self, about: tuple[EnsembleClient, int, Any, ZkError | None]) -> None:
        client, key, value, error = about
        request = client.under_way.pop(key, None)
        if request is not None:
            client.deliver(ZkResponse(request, value, error))
