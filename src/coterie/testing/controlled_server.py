"""The server of a broker under test: it sees every request and every answer, and its time can be moved.

A server in production is a `Server`, which has none of this. Here heartbeats take the plain way through the node, where
`Node.intercept` is set: each request is recorded, and given to the faults that are in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from coterie.broker.broker_effects import Close, Effects, Ready, Send, TimersDue
from coterie.broker.calls import Call, Connection, Route
from coterie.broker.cluster import Cluster
from coterie.broker.handlers.quick_heartbeat import QuickHeartbeat
from coterie.broker.io.server import Server
from coterie.broker.io.sockets import Link
from coterie.broker.node import BrokerNode
from coterie.coordinator.classic import Group as ClassicGroup
from coterie.coordinator.classic.group import ClassicGroupMember
from coterie.coordinator.consumer import ConsumerGroup
from coterie.coordinator.runtime import GroupCoordinator
from coterie.errors import CoterieError, MalformedError
from coterie.facts import Fact, MemberExpired
from coterie.protocol.frames import read_response_header, request_frame, response_frame
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.settings.listeners import Endpoint
from coterie.structs import DataStruct
from coterie.testing.clock import MovableClock
from coterie.testing.requests import GROUP_APIS, Recorder, Request, api_named, codec_of, read_request
from coterie.testing.waits import Waits

TURNS = 4
"""The loop reads from every socket between two of its turns; so many let it see what has arrived."""
FETCHES_EVERY_S = 0.1
"""How often long polls are answered while the clock stands still."""


class Rule(Protocol):
    """What a server asks of a fault that is in force. All of it is called in the broker's thread."""

    def refusal(self, request: Request) -> str:
        """Return why the fault does not concern a request; "" if it does."""

    def fire(self, server: ControlledServer, exchange: Exchange, now_ms: int) -> Effects | None:
        """Do something to a request before it is answered. None: it is answered as usual."""

    def answering(self, server: ControlledServer, exchange: Exchange, data: bytes) -> bytes | None:
        """Change the frame of an answer. None: the client does not get it, and its connection is closed."""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request that was received, and is not answered yet."""

    request: Request
    correlation_id: int
    connection: Connection
    node: BrokerNode
    frame: bytes
    rule: Rule | None = None
    """The fault that changes its answer."""


class DelayOver(DataStruct):
    """The delay of a request is over, by the broker's clock."""

    exchange: Exchange
    call: Call


class Controls:
    """What a test has said and what it may ask, also after the broker was started again."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.rules: list[Rule] = []
        """The faults in force, the last begun at the end."""
        self.waits = Waits()
        self.disk_is_slow = False
        """Then an advance of the clock does not wait for the disk."""


class NoQuickHeartbeat(QuickHeartbeat):
    """Leaves all heartbeats to the node, which records them and gives them to faults."""

    __slots__ = ()

    def answer(self, _coordinator: GroupCoordinator, _frame: bytes, _now_ms: int) -> bytes | None:
        return None


class ControlledServer(Server):
    def __init__(self, listener: Callable[[Fact], None], clock: MovableClock, controls: Controls) -> None:
        super().__init__(self._hear, clock)
        self._listener = listener
        self._expired: set[tuple[str, str]] = set()
        """Groups and ids of the members that have expired since the last `silence`."""
        self.clock = clock
        self.controls = controls
        self._exchanges: dict[Connection, Exchange] = {}
        """By connection: each has one request under way at a time."""
        self._resumed: Exchange | None = None
        """A request that was delayed, and goes on now."""
        self._asked: dict[Connection, asyncio.Future[bytes]] = {}
        """Requests of the test itself."""
        self._connections: dict[tuple[str, str], Connection] = {}
        """By group and member id, the connection that the member has used last."""
        self._client_ids: dict[Connection, str] = {}
        """By connection, the client id of its last request."""
        self._fetches_again: asyncio.TimerHandle | None = None
        self._has_crashed = False

    def _open(self, cluster: Cluster, listeners: Sequence[Endpoint]) -> None:
        super()._open(cluster, listeners)
        cluster.on[DelayOver] = lambda event, now_ms: self.go_on_with(event.exchange, event.call, now_ms)
        for node in cluster.nodes.values():
            node.intercept = self._intercept

    def _hear(self, fact: Fact) -> None:
        if type(fact) is MemberExpired:
            self._expired.add((fact.group_id, fact.member_id))
        self._listener(fact)

    def _let_go(self) -> None:
        if self._fetches_again is not None:
            self._fetches_again.cancel()
        super()._let_go()

    # --- requests and answers -----------------------------------------------------------------------------------------

    def quick_heartbeat(self, connection: Connection) -> QuickHeartbeat:
        return NoQuickHeartbeat(connection)

    def _intercept(self, node: BrokerNode, connection: Connection, frame: bytes, now_ms: int) -> Effects | None:
        if connection in self._asked:
            return None
        if self._resumed is not None:
            exchange, self._resumed = self._resumed, None
            self._exchanges[connection] = exchange
            return None
        names = self.cluster.metadata.topic_names
        at_ms = self.cluster.wall.at(now_ms)
        found = read_request(frame, connection.host, at_ms, node.node_id, names, self.state_of)
        if found is None:
            return None
        request, correlation_id = found
        self.controls.recorder.add(request)
        self._client_ids[connection] = request.client_id
        exchange = self._exchanges[connection] = Exchange(request, correlation_id, connection, node, frame)
        if request.api in GROUP_APIS:
            for group_id in request.groups:
                for member_id in request.members:
                    self._connections[group_id, member_id] = connection
        try:
            for rule in reversed(self.controls.rules):
                if not rule.refusal(request):
                    return rule.fire(self, exchange, now_ms)
        except MalformedError:  # the node closes the connection, and says why
            pass
        return None

    def _send(self, effect: Send) -> None:
        connection = effect.connection
        asked = self._asked.pop(connection, None)
        if asked is not None:
            if not asked.done():
                asked.set_result(_joined(effect.data))
            return
        exchange = self._exchanges.pop(connection, None)
        if exchange is None:
            super()._send(effect)
            return
        data: bytes | None = _joined(effect.data)
        assert data is not None
        if exchange.rule is not None:
            data = exchange.rule.answering(self, exchange, data)
            if data is None:
                self.drop(connection, "")
                return
            effect = Send(connection, data)
        exchange.request.answered(data[4:])
        super()._send(effect)

    def look_at_timers(self) -> None:
        super().look_at_timers()
        self.controls.waits.soon()

    def closed(self, link: Link) -> None:
        self._exchanges.pop(link.connection, None)
        self._client_ids.pop(link.connection, None)
        super().closed(link)
        self.controls.waits.soon()

    def drop(self, connection: Connection, why: str) -> None:
        asked = self._asked.pop(connection, None)
        if asked is None:
            super().drop(connection, why)
        elif not asked.done():
            asked.set_exception(CoterieError(why))

    def look_soon(self) -> None:
        """Look at what tests wait for; from any thread."""
        self._loop.call_soon_threadsafe(self.controls.waits.soon)

    # --- a crash ------------------------------------------------------------------------------------------------------

    def run(self, what: str, act: Callable[..., Effects], *about: Any) -> None:
        if not self._has_crashed:
            super().run(what, act, *about)

    def serve(self, link: Link, most: int) -> None:
        if not self._has_crashed:
            super().serve(link, most)

    def serve_alone(self, link: Link, frame: bytes, now_ms: int) -> None:
        if not self._has_crashed:
            super().serve_alone(link, frame, now_ms)

    async def crash(self) -> None:
        """End as a process does that is killed: nobody is answered, nothing more is written."""
        self._has_crashed = True
        self._close_ports()
        for link in self.links:
            link.transport.abort()
        await self._all_closed(self.ports)
        await asyncio.to_thread(self._disk.shutdown)
        self._let_go()
        self.cluster.directory.release()

    async def repair_logs(self) -> None:
        """Repair the logs that a full disk has left to be cut back, without waiting for their timers."""

        def repair(now_ms: int) -> Effects:
            self.cluster.log_manager.repair_all()
            return self.cluster.after([], now_ms)

        self.run("repairing logs", repair)
        await self.settled()

    # --- what faults do -----------------------------------------------------------------------------------------------

    def answer(self, exchange: Exchange, body: bytes) -> Effects:
        """Answer a request without having done anything for it."""
        request, connection = exchange.request, exchange.connection
        flexible = api_named(request.api).has_flexible_response_header(request.version)
        effects: Effects = [Send(connection, response_frame(exchange.correlation_id, body, flexible=flexible))]
        if connection.waiting:
            effects.append(Ready(connection))
        return effects

    def hold(self, exchange: Exchange) -> Call:
        """Let the connection of a request wait, with all that it sends after it, until `go_on_with`."""
        api = api_named(exchange.request.api)
        route = Route(api, api.module, _never)
        call = Call(exchange.connection, route, exchange.request.version, exchange.correlation_id)
        exchange.connection.call = call
        return call

    def delay(self, exchange: Exchange, ms: int, now_ms: int) -> None:
        """Go on with a request later, by the broker's clock."""
        call = self.hold(exchange)
        self.cluster.timers.arm(call, now_ms + ms, DelayOver(exchange, call))

    def go_on_with(self, exchange: Exchange, call: Call, now_ms: int) -> Effects:
        """Answer a request that was held back."""
        connection = exchange.connection
        if connection.is_closed or connection.call is not call:
            return []
        connection.call = None
        self._resumed = exchange
        try:
            return exchange.node.look_at(connection, exchange.frame, now_ms)
        finally:
            self._resumed = None

    def close(self, exchange: Exchange) -> Effects:
        """Close the connection of a request instead of answering it."""
        exchange.connection.forget_waiting()
        return [Close(exchange.connection, "")]

    def close_all_of(self, client_id: str) -> int:
        """Close the connections of a client, and return how many there were."""
        found = [one for one, used_by in self._client_ids.items() if used_by == client_id and not one.is_closed]
        for connection in found:
            connection.forget_waiting()
            self.drop(connection, "")
        return len(found)

    # --- requests of the test -----------------------------------------------------------------------------------------

    async def ask(self, api_name: str, body: Any, node_id: int | None = None) -> Any:
        """Have a node answer a request, and return the decoded answer. Neither faults nor the recorder see it."""
        api = api_named(api_name)
        version = api.last_by_name
        connection = Connection("127.0.0.1", None, self.ports[0].listener.name)
        supers = self.cluster.settings.super_users
        if supers:
            connection.principal = supers.split(";")[0]
        answered = self._asked[connection] = self._loop.create_future()
        flexible = version >= api.flexible
        content = codec_of(api, "Request")[1](body, version)
        frame = request_frame(api.key, version, 0, "coterie.testing", content, flexible=flexible)[4:]
        node = self.cluster.nodes[next(iter(self.cluster.leadership.up)) if node_id is None else node_id]
        self.perform(node.look_at(connection, frame, self.now_ms()))
        self.look_ahead()
        data = (await answered)[4:]
        _, at = read_response_header(data, flexible=api.has_flexible_response_header(version))
        return codec_of(api, "Response")[0](data, at, version)

    # --- groups -------------------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """Return a group; None if there is none, or while its coordinator is loading it."""
        partition = self.cluster.partition_of(group_id)
        for node in self.cluster.nodes.values():
            shard = node.coordinator.shards.get(partition)
            if shard is not None:
                return shard.groups.get(group_id)
        return None

    def groups(self) -> Iterator[ClassicGroup | ConsumerGroup]:
        for node in self.cluster.nodes.values():
            for shard in node.coordinator.shards.values():
                yield from shard.groups.values()

    def coordinator_of(self, group_id: str) -> int:
        """Return the number of the node that coordinates a group; the first, if that is not decided yet."""
        leader = self.cluster.leadership.leader_of((OFFSETS_TOPIC, self.cluster.partition_of(group_id)))
        return leader if leader in self.cluster.nodes else next(iter(self.cluster.nodes))

    def state_of(self, group_id: str) -> str:
        group = self.group(group_id)
        return "Dead" if group is None else group.state.value

    def is_connected(self, group_id: str, member: Any) -> bool:
        """Return whether the connection that a member has used last is open."""
        if isinstance(member, ClassicGroupMember):
            for token in (member.parked_join, member.parked_sync):
                if isinstance(token, Call) and not token.connection.is_closed:
                    return True
        connection = self._connections.get((group_id, member.member_id))
        return connection is not None and not connection.is_closed

    # --- time ---------------------------------------------------------------------------------------------------------

    def wall_now_ms(self) -> int:
        return self.cluster.wall.at(self.now_ms())

    async def advance(self, ms: int, silent: Collection[tuple[str, str]] = ()) -> None:
        """Jump forward. `silent` are groups and ids of members of which nothing was heard."""
        await self.settled()
        self.clock.advance(ms)
        for group in self.groups():
            for member in group.members.values():
                key = (group.group_id, member.member_id)
                if key not in silent and self.is_connected(group.group_id, member):
                    _heard_of(group, member, ms)
        for link in self.links:
            link.heard_ms += ms
            if link.request_since_ms:
                link.request_since_ms += ms
        self._time_moved()
        await self.settled()

    async def silence(self, who: str, ms: int | None, group_id: str | None) -> None:
        await self.settled()
        found: dict[tuple[str, str], int] = {}
        for group in self.groups():
            if group_id is None or group.group_id == group_id:
                for member in group.members.values():
                    if who in names_of(member):
                        found[group.group_id, member.member_id] = _session_timeout_ms(group, member)
        if not found:
            known = [f"{name} of {group.group_id}" for group in self.groups() for name in _shown_members(group)]
            where = "" if group_id is None else f" of group {group_id}"
            raise CoterieError(f"no member {who!r}{where}; the members are: {', '.join(known) or 'none'}")
        if len(found) > 1:
            ids = ", ".join(f"{member_id} of {group}" for group, member_id in found)
            raise CoterieError(
                f"{len(found)} members are called {who!r}: name one by its member id ({ids}), or `group`"
            )
        (key,) = found
        self._expired.clear()
        await self.advance(found[key] if ms is None else ms, (key,))
        after = self.group(key[0])
        # It may have joined again already; in a consumer group it keeps its id.
        if ms is None and after is not None and key[1] in after.members and key not in self._expired:
            raise CoterieError(
                f"the member {who!r} of group {key[0]} does not expire: one of its requests waits in the broker, or "
                f"it was heard of in the same moment. The group is {after.state.value}"
            )

    def freeze(self) -> None:
        if not self.clock.stands_still:
            self.clock.freeze()
            self._answer_fetches()

    def go_on(self) -> None:
        if self.clock.stands_still:
            self.clock.go_on()
            self._time_moved()

    def _time_moved(self) -> None:
        """Ring what is due, and set the alarm by the new time."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._alarm_ms = None
        self.tls_turn.end()
        self.handle("a timer", TimersDue())

    def _answer_fetches(self) -> None:
        """Answer long polls by real time: what waits behind them on their connections is not to wait for the test."""
        if self.clock.stands_still:
            self.run("a long poll", self.cluster.fetches.answer_all)
            self._fetches_again = self._loop.call_later(FETCHES_EVERY_S, self._answer_fetches)

    async def settled(self) -> None:
        """Wait until what has arrived is handled, and nothing is under way in the broker."""
        while True:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            self.tls_turn.end()
            if self.controls.disk_is_slow:
                return
            if self._under_way or self._assignor_threads.is_busy:
                self._idle.clear()
                await self._idle.wait()
                continue
            next_ms = self._next_ms()
            if not self.scheduling.queue and (next_ms is None or next_ms > self.now_ms()):
                return
            if next_ms is not None and next_ms <= self.now_ms():
                self._time_moved()


def names_of(member: Any) -> tuple[str, ...]:
    """Return the names that a test may call a member by: member id, client id, group instance id."""
    about = member if isinstance(member, ClassicGroupMember) else member.metadata
    names = (member.member_id, about.client_id, about.instance_id)
    return tuple(name for name in names if name)


def _shown_members(group: ClassicGroup | ConsumerGroup) -> list[str]:
    return [names_of(member)[-1] for member in group.members.values()]


def _session_timeout_ms(group: ClassicGroup | ConsumerGroup, member: Any) -> int:
    if isinstance(group, ConsumerGroup):
        return group.session_timeout_of(member)
    return int(member.session_timeout_ms)


def _heard_of(group: ClassicGroup | ConsumerGroup, member: Any, ms: int) -> None:
    """Move the end of a member's session as its heartbeats would have."""
    if isinstance(group, ConsumerGroup):
        session = group.sessions.get(member.member_id)
        if session is not None:
            session.deadline_ms += ms
    else:
        member.deadline_ms += ms


def _joined(data: bytes | Sequence[bytes | memoryview]) -> bytes:
    return data if isinstance(data, bytes) else b"".join(data)


def _never(_call: Call, _frame: bytes, _at: int, _now_ms: int) -> Effects:
    raise AssertionError("a request that is held back is answered by its node")
