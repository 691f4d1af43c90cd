"""Drive the machines of designs 1 and 2 on real time, with a real ZooKeeper and real sockets.

`MachineLoop` handles the events of all machines on one thread; any thread may post one. `MachineDriver` performs what a
machine asks for: `KazooSession` is its session with ZooKeeper. Under design 2, `MemberListener` and
`CoordinatorConnection` are the two ends of the connection between a member and its coordinator.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState, WatchedEvent

from coterie.errors import CoterieError, MalformedError
from coterie.history.design_types import (
    ANY_SESSION,
    Children,
    ChildrenChanged,
    Connect,
    Connected,
    Create,
    Delete,
    DesignMachine,
    Disconnected,
    DisconnectMember,
    Get,
    MessageReceived,
    SendMessage,
    SessionBegan,
    SessionEnded,
    SetData,
    SetTimer,
    TimerFired,
    ZkError,
    ZkRequest,
    ZkResponse,
    ZNode,
    counted_as,
)
from coterie.history.server_side_member import MemberHello, Message, read_message, write_message

HOST = "127.0.0.1"
MAX_MESSAGE_BYTES = 1 << 20
"""Enough for an assignment of thousands of partitions."""
CONNECT_S, ZOOKEEPER_CONNECT_S = 5.0, 30.0
logging.getLogger("kazoo").addHandler(logging.NullHandler())  # its news come as events

Post = Callable[[Any], None]
Perform = Callable[[Any], None]


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000  # noqa: TID251  this is the real world


# --- the event loop ---------------------------------------------------------------------------------------------------


class MachineLoop:
    def __init__(self) -> None:
        self._events: SimpleQueue[tuple[MachineDriver, Any]] = SimpleQueue()
        self._timers: list[tuple[int, int, MachineDriver, Any]] = []
        self._count = count()

    def post(self, driver: MachineDriver, event: Any) -> None:
        self._events.put((driver, event))

    def at(self, at_ms: int, driver: MachineDriver, event: Any) -> None:
        """Handle an event at a time. Only the loop's own thread may call this."""
        heappush(self._timers, (at_ms, next(self._count), driver, event))

    def run(self, for_ms: int) -> None:
        """Handle events for a time, and at least those that are already there."""
        until_ms = now_ms() + for_ms
        while True:
            while self._timers and self._timers[0][0] <= now_ms():
                _, _, driver, event = heappop(self._timers)
                driver.handle(event)
            next_ms = min(until_ms, self._timers[0][0]) if self._timers else until_ms
            try:
                driver, event = self._events.get(timeout=max(next_ms - now_ms(), 0) / 1_000)
            except Empty:
                if now_ms() >= until_ms:
                    return
                continue
            driver.handle(event)

    def run_until(self, condition: Callable[[], bool], within_ms: int, what: str) -> None:
        give_up = now_ms() + within_ms
        while not condition():
            if now_ms() > give_up:
                raise TimeoutError(f"waited {within_ms} ms in vain for {what}")
            self.run(5)


class MachineDriver:
    """One machine in an event loop, with its own session. `performs` has a function for each further effect."""

    def __init__(
        self,
        loop: MachineLoop,
        machine: DesignMachine,
        zookeeper: str,
        *,
        session_timeout_ms: int,
        performs: Mapping[type, Perform] | None = None,
    ) -> None:
        self.machine = machine
        self.zookeeper = KazooSession(zookeeper, self.post, session_timeout_ms=session_timeout_ms)
        self._loop = loop
        self._timers: dict[str, int] = {}
        self._performs: dict[type, Perform] = {
            ZkRequest: self.zookeeper.send,
            SetTimer: self._set_timer,
            **(performs or {}),
        }

    def post(self, event: Any) -> None:
        self._loop.post(self, event)

    def handle(self, event: Any) -> None:
        if isinstance(event, SetTimer):  # its time has come
            if self._timers.get(event.key) != event.at_ms:
                return
            del self._timers[event.key]
            event = TimerFired(event.key)
        for effect in self.machine.handle(event, now_ms()):
            self._performs[type(effect)](effect)

    def _set_timer(self, effect: SetTimer) -> None:
        self._timers[effect.key] = effect.at_ms
        self._loop.at(effect.at_ms, self, effect)


# --- ZooKeeper --------------------------------------------------------------------------------------------------------


class KazooSession:
    """A session with a real ZooKeeper. A thread of its own makes one request at a time.

    `post` gets every event and may be called from any thread. Requests and notifications are counted; a watch that
    kazoo dropped with its connection is posted as a change that may have been missed, and is not counted.
    """

    def __init__(self, address: str, post: Callable[[Any], None], *, session_timeout_ms: int) -> None:
        self.counts: Counter[str] = Counter()
        """The number of notifications, reads, membership reads among them, and writes."""
        self._post = post
        self._client = KazooClient(address, timeout=session_timeout_ms / 1_000)
        self._client.add_listener(self._state_changed)
        self._requests: SimpleQueue[ZkRequest | None] = SimpleQueue()
        self._lock = Lock()
        self._session = ANY_SESSION
        self._sessions = 0
        self._has_session = Event()
        self._is_closing = False
        self._worker = Thread(target=self._work, name="zookeeper", daemon=True)

    def connect(self) -> None:
        self._worker.start()
        try:
            self._client.start(timeout=ZOOKEEPER_CONNECT_S)
        except KazooTimeoutError as problem:
            raise CoterieError(f"no ZooKeeper answers: {problem}") from None

    def send(self, request: ZkRequest) -> None:
        self._requests.put(request)

    def close(self) -> None:
        """Close the session, so that its ephemeral nodes go at once."""
        self._is_closing = True
        self._has_session.set()
        self._requests.put(None)
        self._worker.join(ZOOKEEPER_CONNECT_S)
        self._client.stop()
        self._client.close()

    # --- events from kazoo --------------------------------------------------------------------------------------------

    def _state_changed(self, state: str) -> None:
        """Post the end and the begin of sessions. A reconnection within a session is not posted."""
        with self._lock:
            if state == KazooState.LOST:
                ended, self._session = self._session, ANY_SESSION
                self._has_session.clear()
                if ended != ANY_SESSION and not self._is_closing:
                    self._post(SessionEnded(ended))
            elif state == KazooState.CONNECTED and self._session == ANY_SESSION:
                self._sessions += 1
                self._session = self._sessions
                self._has_session.set()
                self._post(SessionBegan(self._session))

    def _watch_fired(self, event: WatchedEvent, path: str) -> None:
        if event.type == EventType.CHILD:
            self.counts["notifications"] += 1
        if not self._is_closing:
            self._post(ChildrenChanged(path))

    # --- requests -----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            response = self._response_to(request)
            if not self._is_closing:
                self._post(response)

    def _response_to(self, request: ZkRequest) -> ZkResponse:
        while not self._is_closing:
            if request.session == ANY_SESSION:
                self._has_session.wait()
            elif request.session != self._session:
                return ZkResponse(request, None, ZkError.EXPIRED)
            try:
                return ZkResponse(request, self._do(request))
            except SessionExpiredError:
                error = ZkError.EXPIRED
            except (ConnectionLoss, ConnectionClosedError, OperationTimeoutError):
                error = ZkError.LOST
            if request.session != ANY_SESSION:
                return ZkResponse(request, None, error)
        return ZkResponse(request, None, ZkError.EXPIRED)

    def _do(self, request: ZkRequest) -> Any:
        client = self._client
        self.counts.update(counted_as(request.operation))
        match request.operation:
            case Children(path, watch):
                watcher = _ChildWatcher(self._watch_fired, path) if watch else None
                try:
                    return sorted(client.get_children(path, watch=watcher))
                except NoNodeError:
                    client.ensure_path(path)
                    return sorted(client.get_children(path, watch=watcher))
            case Get(path):
                try:
                    data, stat = client.get(path)
                except NoNodeError:
                    return None
                return ZNode(data, stat.version)
            case Create(path, data, is_ephemeral):
                try:
                    client.create(path, data, ephemeral=is_ephemeral, makepath=True)
                except NodeExistsError:
                    return False
                return True
            case Delete(path):
                try:
                    client.delete(path)
                except NoNodeError:
                    return False
                return True
            case SetData():
                return self._set_data(request.operation)
        raise AssertionError(request)

    def _set_data(self, operation: SetData) -> bool:
        """Create the nodes first: a transaction cannot create a node that may exist."""
        for path in operation.values:
            self._client.ensure_path(path)
        transaction = self._client.transaction()
        if operation.guard is not None:
            transaction.check(*operation.guard)
        for path, data in operation.values.items():
            transaction.set_data(path, data)
        results = transaction.commit()
        bad = next((one for one in results if isinstance(one, BadVersionError)), None)
        other = next((one for one in results if isinstance(one, Exception)), None)
        if bad is None and other is not None:
            raise other
        return bad is None


class _ChildWatcher:
    """Two watchers of one path are equal, so kazoo calls one of them once however often the watch was set."""

    def __init__(self, fired: Callable[[WatchedEvent, str], None], path: str) -> None:
        self._watch_fired = fired
        self.path = path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ChildWatcher) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __call__(self, event: WatchedEvent) -> None:
        self._watch_fired(event, self.path)


# --- connections between members and coordinators: one line of JSON is one message ------------------------------------


def _read_messages(connection: socket.socket, receive: Callable[[Message], None]) -> None:
    """Pass on messages until the connection closes or one is malformed."""
    with suppress(OSError, MalformedError), connection.makefile("rb") as lines:
        while data := lines.readline(MAX_MESSAGE_BYTES):
            receive(read_message(data))


def _shut_down(connection: socket.socket | None) -> None:
    if connection is not None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _ignore(_event: Any) -> None:
    """Drop events that come before `serve`."""


class MemberListener:
    """A broker's end. The first message of every connection is `MemberHello`."""

    def __init__(self) -> None:
        self._post: Post = _ignore
        self._socket = socket.create_server((HOST, 0))
        self.address = "{}:{}".format(*self._socket.getsockname())
        self._peers: dict[str, socket.socket] = {}
        self._lock = Lock()
        self.sent = 0

    def serve(self, post: Post) -> None:
        self._post = post
        Thread(target=self._accept, name="listener", daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                Thread(target=self._serve, args=(connection,), name="peer", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        peer = ""

        def receive(message: Message) -> None:
            nonlocal peer
            if isinstance(message, MemberHello) and not peer:
                peer = message.member_id
                with self._lock:
                    self._peers[peer] = connection
            if not peer:
                raise MalformedError("the first message of a connection is MemberHello")
            self._post(MessageReceived(message, peer))

        with connection:
            _read_messages(connection, receive)
        with self._lock:
            is_current = self._peers.get(peer) is connection
            if is_current:
                del self._peers[peer]
        if is_current:
            self._post(Disconnected(peer))

    def send(self, effect: SendMessage) -> None:
        """Send a message. If the peer has disconnected, the thread that reads from it will notice."""
        self.sent += 1
        with self._lock, suppress(OSError, KeyError):
            self._peers[effect.to].sendall(write_message(effect.message))

    def disconnect(self, effect: DisconnectMember) -> None:
        with self._lock:
            _shut_down(self._peers.get(effect.to))

    def close(self) -> None:
        _shut_down(self._socket)
        self._socket.close()
        with self._lock:
            for connection in self._peers.values():
                _shut_down(connection)


class CoordinatorConnection:
    """A member's end: one connection at a time."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._socket: socket.socket | None = None
        self.sent = 0

    def connect(self, effect: Connect) -> None:
        Thread(target=self._serve, args=(effect.address,), name="coordinator", daemon=True).start()

    def _serve(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=CONNECT_S) as connection:
            connection.settimeout(None)
            self._socket = connection
            self._post(Connected())
            _read_messages(connection, lambda message: self._post(MessageReceived(message)))
        self._socket = None
        self._post(Disconnected())

    def send(self, effect: SendMessage) -> None:
        connection = self._socket
        self.sent += 1
        if connection is not None:
            with suppress(OSError):
                connection.sendall(write_message(effect.message))

    def close(self) -> None:
        _shut_down(self._socket)
