"""The port on a real ZooKeeper: kazoo, which has threads of its own, and one of ours that asks one thing at a time.

Every event goes to `post`, which may be called from any of them. What is asked of the server and what rings is counted
here; a watch that kazoo dropped with its connection is told as a change that may have been missed, and is not counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue
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

from coterie.errors import CoterieError
from coterie.history.registry import (
    ANY_SESSION,
    Answered,
    Ask,
    Changed,
    Children,
    Create,
    Delete,
    Get,
    Node,
    Puts,
    SessionBegan,
    SessionEnded,
    Trouble,
    kinds,
)

__all__ = ["KazooRegistry"]

CONNECT_S = 30.0
logging.getLogger("kazoo").addHandler(logging.NullHandler())  # what it has to say comes as events


class KazooRegistry:
    def __init__(self, address: str, post: Callable[[Any], None], *, session_timeout_ms: int) -> None:
        self.counts: Counter[str] = Counter()
        """Notifications, reads, those of them that are looks at who is there, and writes."""
        self._post = post
        self._client = KazooClient(address, timeout=session_timeout_ms / 1_000)
        self._client.add_listener(self._state_changed)
        self._asks: SimpleQueue[Ask | None] = SimpleQueue()
        self._lock = Lock()
        self._session = ANY_SESSION
        self._sessions = 0
        self._has_session = Event()
        self._is_closing = False
        self._worker = Thread(target=self._work, name="registry", daemon=True)

    def connect(self) -> None:
        self._worker.start()
        try:
            self._client.start(timeout=CONNECT_S)
        except KazooTimeoutError as problem:
            raise CoterieError(f"no ZooKeeper answers: {problem}") from None

    def ask(self, ask: Ask) -> None:
        self._asks.put(ask)

    def close(self) -> None:
        """In order: its session ends at once."""
        self._is_closing = True
        self._has_session.set()
        self._asks.put(None)
        self._worker.join(CONNECT_S)
        self._client.stop()
        self._client.close()

    # --- what kazoo tells ---------------------------------------------------------------------------------------------

    def _state_changed(self, state: str) -> None:
        """A connection that comes back with its session is no news; one that comes back without has a new one."""
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

    def _rang(self, event: WatchedEvent, path: str) -> None:
        if event.type == EventType.CHILD:
            self.counts["notifications"] += 1
        if not self._is_closing:
            self._post(Changed(path))

    # --- what is asked ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (ask := self._asks.get()) is not None:
            answer = self._answer(ask)
            if not self._is_closing:
                self._post(answer)

    def _answer(self, ask: Ask) -> Answered:
        while not self._is_closing:
            if ask.session == ANY_SESSION:
                self._has_session.wait()
            elif ask.session != self._session:
                return Answered(ask, None, Trouble.EXPIRED)
            try:
                return Answered(ask, self._do(ask))
            except SessionExpiredError:
                trouble = Trouble.EXPIRED
            except (ConnectionLoss, ConnectionClosedError, OperationTimeoutError):
                trouble = Trouble.LOST
            if ask.session != ANY_SESSION:
                return Answered(ask, None, trouble)
        return Answered(ask, None, Trouble.EXPIRED)

    def _do(self, ask: Ask) -> Any:
        client = self._client
        self.counts.update(kinds(ask.operation))
        match ask.operation:
            case Children(path, watch):
                rings = _Watch(self._rang, path) if watch else None
                try:
                    return sorted(client.get_children(path, watch=rings))
                except NoNodeError:
                    client.ensure_path(path)
                    return sorted(client.get_children(path, watch=rings))
            case Get(path):
                try:
                    data, stat = client.get(path)
                except NoNodeError:
                    return None
                return Node(data, stat.version)
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
            case Puts():
                return self._put(ask.operation)
        raise AssertionError(ask)

    def _put(self, puts: Puts) -> bool:
        """A transaction cannot make a node where there is one, so they are made before."""
        for path in puts.values:
            self._client.ensure_path(path)
        transaction = self._client.transaction()
        if puts.guard is not None:
            transaction.check(*puts.guard)
        for path, data in puts.values.items():
            transaction.set_data(path, data)
        results = transaction.commit()
        bad = next((one for one in results if isinstance(one, BadVersionError)), None)
        other = next((one for one in results if isinstance(one, Exception)), None)
        if bad is None and other is not None:
            raise other
        return bad is None


class _Watch:
    """Equal for the same path, so that kazoo calls once however often it was set."""

    def __init__(self, rang: Callable[[WatchedEvent, str], None], path: str) -> None:
        self._rang = rang
        self.path = path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Watch) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __call__(self, event: WatchedEvent) -> None:
        self._rang(event, self.path)
