"""A model of a ZooKeeper ensemble: a leader, and followers that lag. Deterministic: its rng and its time come in.

What it keeps of the real one: writes are ordered by the leader; a server answers reads from what it has, which may be
old; a client reads its own writes, and hears a watch before it can read what it rang for; a watch rings once, at the
server its client is connected to. Sessions are timed by the leader, which hears of a follower's clients through that
follower: one that lags by more than a session's timeout loses its clients' sessions, and they do not know.

What it leaves out: elections, and servers that go away; a client stays with its server until its session ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from coterie.history.model_client import ModelClient, Server
from coterie.history.registry import (
    ANY_SESSION,
    Answered,
    Ask,
    Changed,
    Children,
    Create,
    Delete,
    Get,
    Operation,
    Puts,
    SessionBegan,
    SessionEnded,
    Trouble,
    kinds,
)
from coterie.history.tree import Closed, Made, Put, Removed, Transaction
from coterie.sim.rng import Random
from coterie.sim.schedule import Schedule

__all__ = ["Ensemble"]

JITTER_MS = 3
"""Of whatever goes over the network."""


class Ensemble:
    def __init__(
        self,
        schedule: Schedule,
        rng: Random,
        *,
        session_timeout_ms: int,
        lags_ms: Sequence[int],
    ) -> None:
        """`lags_ms`: of each follower. The leader is one more."""
        self.schedule = schedule
        self.session_timeout_ms = session_timeout_ms
        self.servers = [Server(lag) for lag in (0, *lags_ms)]
        self.leader = self.servers[0]
        self._rng = rng
        self._sessions: dict[int, tuple[ModelClient, int]] = {}
        """As the leader has them: whose, and until when it must be heard of."""
        self._last_session = self._last_ask = 0
        self.decided: Callable[[Transaction], None] = lambda _what: None
        """Called when the leader has decided on a change, and has it."""

    def client(self, name: str, post: Callable[[Any], None]) -> ModelClient:
        return ModelClient(self, name, post)

    # --- ways: each keeps its order -----------------------------------------------------------------------------------

    def _to_server(self, client: ModelClient, act: Callable[[Any], None], about: Any) -> None:
        at_ms = self.schedule.now_ms + 1 + int(self._rng.random() * JITTER_MS)
        client.up_at_ms = max(at_ms, client.up_at_ms)
        self.schedule.at(client.up_at_ms, self._passes, (client, act, about))

    def _to_client(self, client: ModelClient, act: Callable[[Any], None], about: Any) -> None:
        at_ms = self.schedule.now_ms + 1 + int(self._rng.random() * JITTER_MS)
        client.down_at_ms = max(at_ms, client.down_at_ms)
        self.schedule.at(client.down_at_ms, self._passes, (client, act, about))

    def _passes(self, about: tuple[ModelClient, Callable[[Any], None], Any]) -> None:
        client, act, what = about
        if client.cuts or client.held:
            client.held.append((act, what))
        else:
            act(what)

    def _to_leader(self, server: Server, act: Callable[[Any], None], about: Any) -> None:
        server.up_at_ms = max(self.schedule.now_ms + server.lag_ms, server.up_at_ms)
        self.schedule.at(server.up_at_ms, act, about)

    def _from_leader(self, server: Server, act: Callable[[Any], None], about: Any) -> None:
        server.down_at_ms = max(self.schedule.now_ms + server.lag_ms, server.down_at_ms)
        self.schedule.at(server.down_at_ms, act, about)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def connect(self, client: ModelClient) -> None:
        """To any server; whoever had a session that is over gets a new one."""
        client.server = self._rng.choice(self.servers)
        self._to_server(client, self._knocks, client)

    def _knocks(self, client: ModelClient) -> None:
        self._to_leader(client.server, self._begins, client)

    def _begins(self, client: ModelClient) -> None:
        if client.is_alive:
            self._last_session = number = self._last_session + 1
            self._sessions[number] = (client, self.schedule.now_ms + self.session_timeout_ms)
            self.schedule.at(self.schedule.now_ms + self.session_timeout_ms, self._looks_at, number)
            self._from_leader(client.server, self._welcomes, (client, number))

    def _welcomes(self, about: tuple[ModelClient, int]) -> None:
        self._to_client(about[0], self._has_session, about)

    def _has_session(self, about: tuple[ModelClient, int]) -> None:
        client, number = about
        client.session = number
        client.hears(SessionBegan(number))
        for key in [key for key, ask in client.under_way.items() if ask.session == ANY_SESSION]:
            self._to_server(client, self._arrives, (client, key))
        self._ping((client, number))

    def _ping(self, about: tuple[ModelClient, int]) -> None:
        client, number = about
        if client.is_alive and client.session == number:
            self._to_server(client, self._pinged, about)
            self.schedule.at(self.schedule.now_ms + self.session_timeout_ms // 3, self._ping, about)

    def _pinged(self, about: tuple[ModelClient, int]) -> None:
        """Answered by the server; the leader hears of it when it does."""
        self._to_leader(about[0].server, self._touch, about[1])

    def _touch(self, number: int) -> None:
        if number in self._sessions:
            self._sessions[number] = (self._sessions[number][0], self.schedule.now_ms + self.session_timeout_ms)

    def _looks_at(self, number: int) -> None:
        found = self._sessions.get(number)
        if found is None:
            return
        if found[1] > self.schedule.now_ms:
            self.schedule.at(found[1], self._looks_at, number)
        else:
            self._end(number)

    def _end(self, number: int) -> None:
        if number in self._sessions:
            client, _ = self._sessions.pop(number)
            self._commit(Closed(number))
            self._from_leader(client.server, self._expels, (client, number))

    def _expels(self, about: tuple[ModelClient, int]) -> None:
        """Its server has heard that the session is over: it closes the connection, and the client comes back."""
        self._forget_watches(about[0])
        self._to_client(about[0], self._is_expelled, about)

    def _is_expelled(self, about: tuple[ModelClient, int]) -> None:
        client, number = about
        if not client.is_alive or client.session != number:
            return
        client.session = ANY_SESSION
        client.writes_under_way.clear()
        client.waiting.clear()
        client.hears(SessionEnded(number))
        for key, ask in list(client.under_way.items()):
            if ask.session != ANY_SESSION:
                del client.under_way[key]
                client.hears(Answered(ask, None, Trouble.EXPIRED))
        self.connect(client)

    def close(self, client: ModelClient) -> None:
        number, client.is_alive = client.session, False
        self._to_server(client, lambda _: self._to_leader(client.server, self._end, number), None)

    def vanish(self, client: ModelClient) -> None:
        client.is_alive = False
        client.session = ANY_SESSION
        client.held.clear()
        self._forget_watches(client)

    def repaired(self, client: ModelClient) -> None:
        held, client.held = client.held, deque()
        client.up_at_ms = client.down_at_ms = self.schedule.now_ms
        for act, about in held:
            act(about)

    def _forget_watches(self, client: ModelClient) -> None:
        for server in self.servers:
            for watching in server.watches.values():
                watching.pop(client, None)

    # --- questions ----------------------------------------------------------------------------------------------------

    def ask(self, client: ModelClient, ask: Ask) -> None:
        self._last_ask = key = self._last_ask + 1
        client.under_way[key] = ask
        if ask.session not in {ANY_SESSION, client.session}:
            self.schedule.at(self.schedule.now_ms, self._answer_now, (client, key, None, Trouble.EXPIRED))
        elif client.session != ANY_SESSION:
            self._to_server(client, self._arrives, (client, key))

    def _arrives(self, about: tuple[ModelClient, int]) -> None:
        client, key = about
        ask = client.under_way.get(key)
        if ask is None:
            return
        client.counts.update(kinds(ask.operation))
        if not isinstance(ask.operation, Children | Get):
            client.writes_under_way[key] = None
            self._to_leader(client.server, self._decides, (client, key, client.session))
        elif client.writes_under_way:
            client.waiting.append((key, ask))
        else:
            self._read(client, key, ask)

    def _read(self, client: ModelClient, key: int, ask: Ask) -> None:
        operation = ask.operation
        tree = client.server.tree
        if isinstance(operation, Get):
            self._answer(client, key, tree.get(operation.path))
            return
        assert isinstance(operation, Children)
        if operation.watch:
            client.server.watches.setdefault(operation.path, {})[client] = None
        self._answer(client, key, tree.children(operation.path))

    def _decides(self, about: tuple[ModelClient, int, int]) -> None:
        """At the leader, in one order for all."""
        client, key, number = about
        ask = client.under_way.get(key)
        if ask is None or number not in self._sessions:
            return  # whoever asked is told that its session is over
        what, value = self._judge(ask.operation, number)
        if what is not None:
            self._commit(what)
        self._from_leader(client.server, self._has_written, (client, key, value))

    def _judge(self, operation: Operation, session: int) -> tuple[Transaction | None, bool]:
        tree = self.leader.tree
        match operation:
            case Create(path, data, is_ephemeral):
                if tree.get(path) is not None:
                    return None, False
                return Made(path, data, session if is_ephemeral else 0), True
            case Delete(path):
                return (Removed(path), True) if tree.get(path) is not None else (None, False)
            case Puts(values, guard):
                node = tree.get(guard[0]) if guard is not None else None
                if guard is not None and (node is None or node.version != guard[1]):
                    return None, False
                return Put(values), True
        raise AssertionError(operation)

    def _commit(self, what: Transaction) -> None:
        self._apply((self.leader, what))
        self.decided(what)
        for follower in self.servers[1:]:
            self._from_leader(follower, self._apply, (follower, what))

    def _apply(self, about: tuple[Server, Transaction]) -> None:
        server, what = about
        for path in server.tree.apply(what):
            for client in server.watches.pop(path, {}):
                client.counts["notifications"] += 1
                self._to_client(client, client.hears, Changed(path))

    def _has_written(self, about: tuple[ModelClient, int, bool]) -> None:
        client, key, value = about
        client.writes_under_way.pop(key, None)
        self._answer(client, key, value)
        while client.waiting and not client.writes_under_way:
            self._read(client, *client.waiting.popleft())

    def _answer(self, client: ModelClient, key: int, value: Any) -> None:
        self._to_client(client, self._answer_now, (client, key, value, None))

    def _answer_now(self, about: tuple[ModelClient, int, Any, Trouble | None]) -> None:
        client, key, value, trouble = about
        ask = client.under_way.pop(key, None)
        if ask is not None:
            client.hears(Answered(ask, value, trouble))
