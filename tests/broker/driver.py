"""Drives nodes without sockets: a clock one moves, a disk in memory, clients whose requests and answers are bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from broker.speaker import Speaker
from coterie.broker.broker_effects import (
    Authenticated,
    BackgroundTask,
    Close,
    Computation,
    DeleteFiles,
    Effects,
    Flush,
    Ready,
    Send,
    Starting,
    Stopping,
    TimersDue,
    Work,
)
from coterie.broker.broker_facts import ConnectionDropped, Trouble
from coterie.broker.calls import PLAINTEXT, Connection
from coterie.broker.cluster import Cluster
from coterie.broker.node import BrokerNode
from coterie.coordinator.classic.effects import Reply
from coterie.errors import CoterieError
from coterie.facts import Fact, Mistake
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import Files, MemoryFiles

__all__ = ["Client", "World"]

QUICK: Mapping[str, Any] = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3}


class World:
    """Nodes, one or more, and their clients.

    `flushes` holds what the disk has been asked for; `auto` lets it do so at once.
    """

    def __init__(
        self,
        files: Files | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        sync: bool = True,
        auto: bool = True,
        now_ms: int = 1_000_000,
        nodes: int = 1,
    ) -> None:
        self.files = MemoryFiles() if files is None else files
        self.auto = auto
        self.now_ms = now_ms
        self.facts: list[Fact] = []
        self.flushes: deque[Flush | Work] = deque()
        self.background_tasks: deque[BackgroundTask] = deque()
        self.computations: deque[Computation] = deque()
        self.tasks: list[DeleteFiles] = []
        self.authenticated: list[Connection] = []
        self.ready: deque[Connection] = deque()
        self.outcomes: list[CoterieError | None] = []
        """How changes of leaders have ended."""
        self._ids = now_ms << 64
        self._clients: dict[Connection, Client] = {}
        chosen = BrokerSettings.of({**QUICK, **(settings or {})})
        self.cluster = Cluster(self.files, chosen, now_ms, fresh_id=self._fresh_id, sync=sync, nodes=nodes)
        self.cluster.metadata.endpoints[PLAINTEXT] = {
            number: ("broker.test", 9092 + index) for index, number in enumerate(self.cluster.nodes)
        }
        self.node = self.cluster.nodes[chosen.node_id]
        self.perform(self.cluster.handle(Starting(), now_ms))

    def _fresh_id(self) -> UUID:
        self._ids += 1
        return UUID(int=self._ids)

    def client(self, node: int | None = None) -> Client:
        """Of the first node, or another."""
        client = Client(self, self.node if node is None else self.cluster.nodes[node])
        self._clients[client.connection] = client
        return client

    def perform(self, effects: Effects) -> None:
        """All of it, and what follows at once: requests that waited, timers that are due, the disk if it is quick."""
        self._carry_out(effects)
        while True:
            due_ms = self.cluster.next_ms()
            if self.ready:
                connection = self.ready.popleft()
                self._carry_out(self._clients[connection].node.go_on(connection, self.now_ms))
            elif due_ms is not None and due_ms <= self.now_ms:
                self._carry_out(self.cluster.handle(TimersDue(), self.now_ms))
            elif self.auto and self.flushes:
                self._carry_out(self.cluster.handle(self.flushes.popleft().run(), self.now_ms))
            elif self.auto and self.background_tasks:
                self._carry_out(self.cluster.handle(self.background_tasks.popleft().run(_no_rest), self.now_ms))
            elif self.auto and self.computations:
                self._carry_out(self.cluster.handle(self.computations.popleft().run(), self.now_ms))
            else:
                return

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if not effect.connection.is_closed:
                    data = effect.data if isinstance(effect.data, bytes) else b"".join(effect.data)
                    self._clients[effect.connection].received(data)
            elif isinstance(effect, Close):
                self._clients[effect.connection].closed = effect.why
                self.facts.append(ConnectionDropped(self.now_ms, "", effect.connection.host, effect.why))
                self._clients[effect.connection].node.disconnected(effect.connection)
            elif isinstance(effect, Ready):
                self.ready.append(effect.connection)
            elif isinstance(effect, Reply):
                self.outcomes.append(effect.answer)
            elif isinstance(effect, Flush | Work):
                self.flushes.append(effect)
            elif isinstance(effect, BackgroundTask):
                self.background_tasks.append(effect)
            elif isinstance(effect, Computation):
                self.computations.append(effect)
            elif isinstance(effect, Authenticated):
                self.authenticated.append(effect.connection)
            elif isinstance(effect, DeleteFiles):
                self.tasks.append(effect)
            else:
                assert not isinstance(effect.fact, Mistake), effect.fact.trace
                self.facts.append(effect.fact)

    def flush(self, ahead: int = 1) -> None:
        """The disk does what it was asked for first; or more than that, before anybody hears how the first ended."""
        ended = [self.flushes.popleft().run() for _ in range(min(ahead, len(self.flushes)))]
        for each in ended:
            self.perform(self.cluster.handle(each, self.now_ms))

    def background_task(self) -> None:
        """What takes long is done, all of it."""
        self.perform(self.cluster.handle(self.background_tasks.popleft().run(_no_rest), self.now_ms))

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.perform(self.cluster.handle(TimersDue(), self.now_ms))

    def do_tasks(self) -> None:
        tasks, self.tasks = self.tasks, []
        for chore in tasks:
            chore.work()

    def stop(self) -> None:
        self.perform(self.cluster.handle(Stopping(), self.now_ms))
        while self.flushes or self.background_tasks:
            self.flush() if self.flushes else self.background_task()
        self.cluster.directory.close()

    @property
    def troubles(self) -> list[str]:
        return [fact.what for fact in self.facts if isinstance(fact, Trouble)]

    @property
    def drops(self) -> list[str]:
        return [fact.why for fact in self.facts if isinstance(fact, ConnectionDropped)]


def _no_rest() -> None:
    """Nobody else waits for this thread."""


class Client(Speaker):
    """A connection to a node."""

    def __init__(self, world: World, node: BrokerNode) -> None:
        super().__init__()
        self.world = world
        self.node = node
        self.connection = Connection("10.0.0.1")
        self.closed: str | None = None
        self._inbox: deque[bytes] = deque()

    def send_frame(self, frame: bytes) -> None:
        self.world.perform(self.node.received(self.connection, frame, self.world.now_ms))

    def received(self, data: bytes) -> None:
        assert int.from_bytes(data[:4], "big") == len(data) - 4, "a frame says how long it is"
        self._inbox.append(data[4:])

    def next_frame(self) -> bytes:
        assert self._inbox, f"{self._asked[0][1].API.name} is not answered"
        return self._inbox.popleft()

    @property
    def answers(self) -> int:
        """How many have come and were not looked at."""
        return len(self._inbox)
