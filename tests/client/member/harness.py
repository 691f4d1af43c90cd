"""A harness: memberships and the real group core, joined in memory by a link with virtual time. Nothing sleeps.

The link keeps what a network keeps and no more: one connection delivers in order and serves one request at a time (C6);
two connections know nothing of each other; a connection that is lost takes along what was under way on it. Delays are
asked of `delay_ms`, so that a test can make them as unfair as it likes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any

from coterie.assignors import Topic
from coterie.client.member import MemberSettings, Membership, effects, events
from coterie.client.member.states import MemberState
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.coordinator.runtime import Timers
from coterie.coordinator.runtime.coordinator import REFUSALS
from coterie.errors import ConnectionLostError, ErrorCode, KafkaError, RequestTimedOutError
from coterie.facts import Emit, Fact
from coterie.protocol.apis.consumer_group_heartbeat import Request as ConsumerGroupHeartbeat
from coterie.protocol.messages import Heartbeat, JoinGroup
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings
from coterie.stories.world import StoryWorld

GROUP = "readers"


def tps(*names: str) -> list[TopicPartition]:
    """`tps("t:0-3", "u:1")`: t-0 to t-3 and u-1."""
    found = []
    for name in names:
        topic, _, span = name.partition(":")
        first, _, last = span.partition("-")
        found += [TopicPartition(topic, number) for number in range(int(first), int(last or first) + 1)]
    return found


@dataclass
class Connection:
    """From one party, on one lane, to one node."""

    node: int
    waiting: deque[effects.SendRequest] = field(default_factory=deque)
    serving: effects.SendRequest | None = None
    closed: bool = False
    answers_not_before_ms: int = 0
    arrives_not_before_ms: int = 0


@dataclass
class Party:
    """A driver: what stands between a membership and the harness. `calls` is what the listener was told."""

    harness: Harness
    name: str
    member: Membership
    polls: bool = False
    calls: list[tuple[str, list[TopicPartition]]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    commits: dict[Any, Exception | None] = field(default_factory=dict)
    fetched: dict[Any, effects.CommittedEnded] = field(default_factory=dict)
    ended: list[effects.Ended] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    sent: list[tuple[int, effects.SendRequest]] = field(default_factory=list)
    assigned: list[TopicPartition] = field(default_factory=list)
    held: list[TopicPartition] = field(default_factory=list)
    owns: set[TopicPartition] = field(default_factory=set)
    """As the listener was told."""
    watched: Collection[str] | None = ()
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    listener: Callable[[str, list[TopicPartition]], None] | None = None
    holds_listener: bool = False
    """While set, a listener call does not return."""
    waiting_call: effects.CallListener | None = None
    events: deque[Any] = field(default_factory=deque)
    timers: Timers[Any] = field(default_factory=Timers)
    connections: dict[str, Connection] = field(default_factory=dict)

    # --- what the user does -------------------------------------------------------------------------------------------

    def subscribes(self, *topics: str, pattern: Any = None) -> Party:
        self.handle(events.Subscribed(topics, pattern))
        return self

    def begins_poll(self) -> Party:
        self.polls = True
        self.handle(events.PollBegan())
        return self

    def ends_poll(self) -> Party:
        self.polls = False
        self.handle(events.PollEnded())
        return self

    def joins(self, *topics: str, pattern: Any = None) -> Party:
        return self.subscribes(*topics, pattern=pattern).begins_poll()

    def commits_offsets(
        self, offsets: Mapping[TopicPartition, int], *, within_ms: int | None = None, are_positions: bool = False
    ) -> str:
        token = f"commit {next(self.harness.numbers)}"
        until_ms = None if within_ms is None else self.harness.now_ms + within_ms
        given = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        self.handle(events.CommitAsked(token, given, until_ms, are_positions))
        return token

    def asks_committed(self, partitions: Collection[TopicPartition], *, within_ms: int = 10_000) -> str:
        token = f"committed {next(self.harness.numbers)}"
        self.handle(events.CommittedAsked(token, partitions, self.harness.now_ms + within_ms))
        return token

    def wants_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        self.handle(events.RejoinAsked(reason))

    def hears_of_topics(self) -> None:
        self.handle(events.MetadataChanged(self.harness.known(self.watched)))

    def unsubscribes(self) -> None:
        self.handle(events.UnsubscribeAsked())

    def closes(self, *, within_ms: int = 30_000, leave: bool | None = None) -> None:
        self.polls = False
        self.handle(events.CloseAsked(self.harness.now_ms + within_ms, leave))

    def listener_returns(self, error: Exception | None = None) -> None:
        call, self.waiting_call = self.waiting_call, None
        assert call is not None, f"{self.name}'s listener is not being called"
        call.then.error = error
        self.handle(call.then)

    # --- looking ------------------------------------------------------------------------------------------------------

    def is_in(self, stage: MemberState) -> bool:
        return self.member.state is stage

    def told(self, kind: str) -> list[TopicPartition]:
        return [one for said, partitions in self.calls if said == kind for one in partitions]

    def fact(self, kind: type[Any]) -> Any:
        """The last one of its kind."""
        found = [fact for fact in self.facts if isinstance(fact, kind)]
        assert found, f"{self.name} was told nothing like {kind.__name__}: {self.facts}"
        return found[-1]

    def requests(self, kind: type[Any]) -> list[Any]:
        return [send.request for _, send in self.sent if isinstance(send.request, kind)]

    # --- driving ------------------------------------------------------------------------------------------------------

    def handle(self, event: Any) -> None:
        """One event after the other: what comes up while effects are performed waits until they are done."""
        self.events.append(event)
        if len(self.events) > 1:
            return
        while self.events:
            for effect in self.member.handle(self.events[0], self.harness.now_ms):
                PERFORM[type(effect)](self, effect)
            self.events.popleft()

    def _send(self, effect: effects.SendRequest) -> None:
        self.sent.append((self.harness.now_ms, effect))
        self.harness.send(self, effect)

    def _find(self, effect: effects.FindCoordinator) -> None:
        def answer() -> None:
            effect.then.error = self.harness.lookup_error
            effect.then.reply = None if self.harness.lookup_error else self.harness.node
            self.handle(effect.then)

        self.harness.later(self.harness.delay_ms(), answer)

    def _disconnect(self, effect: effects.Disconnect) -> None:
        self.harness.disconnect(self, effect.node)

    def _call(self, effect: effects.CallListener) -> None:
        assert self.polls or self.member.ending is not None, "a listener is called only while the user is here"
        assert self.waiting_call is None, "one call at a time"
        partitions = list(effect.partitions)
        self._balance(effect.kind, set(partitions))
        self.calls.append((effect.kind.value, partitions))
        self.waiting_call = effect
        if self.holds_listener:
            return

        def run() -> None:
            if self.waiting_call is not effect:
                return
            error = None
            if self.listener is not None:
                try:
                    self.listener(effect.kind.value, partitions)
                except Exception as raised:  # noqa: BLE001 a listener may raise what it likes
                    error = raised
            self.listener_returns(error)

        self.harness.later(0, run)

    def _balance(self, kind: effects.Listened, partitions: set[TopicPartition]) -> None:
        """Nothing is assigned twice, and nothing is taken back that was not assigned."""
        if kind is effects.Listened.ASSIGNED:
            assert not partitions & self.owns, f"{self.name} was told twice of {partitions & self.owns}"
            self.owns |= partitions
        else:
            assert partitions <= self.owns, f"{self.name} loses what it never had: {partitions - self.owns}"
            self.owns -= partitions

    def _set(self, effect: effects.SetAssignment) -> None:
        assert set(effect.added) <= set(effect.partitions)
        self.assigned = list(effect.partitions)
        self.held = []
        self.positions = {
            one: at for one, at in self.positions.items() if one in effect.partitions and one not in effect.added
        }

    def _refresh(self, effect: effects.RefreshMetadata) -> None:
        def answer() -> None:
            effect.then.error = self.harness.metadata_error
            effect.then.reply = None if self.harness.metadata_error else self.harness.known(effect.topics)
            self.handle(effect.then)

        self.harness.later(self.harness.delay_ms(), answer)

    def _positions(self, effect: effects.AskPositions) -> None:
        effect.then.reply = {one: OffsetAndMetadata(at) for one, at in self.positions.items()}
        self.handle(effect.then)

    def _watch(self, effect: effects.WatchTopics) -> None:
        self.watched = effect.topics

    def _hold(self, effect: effects.HoldPartitions) -> None:
        self.held = list(effect.partitions)

    def _committed(self, effect: effects.CommittedEnded) -> None:
        assert effect.token not in self.fetched
        self.fetched[effect.token] = effect

    def _commit_ended(self, effect: effects.CommitEnded) -> None:
        assert effect.token not in self.commits
        self.commits[effect.token] = effect.error


PERFORM: Mapping[type, Callable[[Party, Any], None]] = {
    effects.SendRequest: Party._send,
    effects.FindCoordinator: Party._find,
    effects.Disconnect: Party._disconnect,
    effects.StartTimer: lambda party, effect: party.timers.arm(effect.key, effect.at_ms, effect.then),
    effects.StopTimer: lambda party, effect: party.timers.disarm(effect.key),
    effects.CallListener: Party._call,
    effects.HoldPartitions: Party._hold,
    effects.SetAssignment: Party._set,
    effects.WatchTopics: Party._watch,
    effects.RefreshMetadata: Party._refresh,
    effects.AskPositions: Party._positions,
    effects.CommitEnded: Party._commit_ended,
    effects.CommittedEnded: Party._committed,
    effects.Fail: lambda party, effect: party.errors.append(effect.error),
    effects.Ended: lambda party, effect: party.ended.append(effect),
    Emit: lambda party, effect: party.facts.append(effect.fact),
}


class Harness:
    def __init__(self, topics: Mapping[str, int] | None = None, **group: Any) -> None:
        self.world = StoryWorld(GroupCoordinatorSettings(**{"group_initial_rebalance_delay_ms": 0, **group}))
        self.topics = {name: Topic(number) for name, number in (topics or {"t": 4}).items()}
        self.parties: dict[str, Party] = {}
        self.node = 1
        """Who coordinates. Others refuse with NOT_COORDINATOR."""
        self.numbers = count(1)
        self.delay_ms: Callable[[], int] = lambda: 1
        self.lookup_error: Exception | None = None
        self.metadata_error: Exception | None = None
        self.refusals: deque[tuple[type, Any]] = deque()
        """The next request of this type is not served, but answered so; None: never."""
        self.is_deaf = False
        """Nothing that is sent arrives."""
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._asked: dict[int, tuple[Party, Connection, effects.SendRequest]] = {}
        self._delivered = 0

    @property
    def now_ms(self) -> int:
        return self.world.now_ms

    def party(self, name: str, **settings: Any) -> Party:
        given = {"client_id": name, "session_timeout_ms": 10_000, "max_poll_interval_ms": 60_000, **settings}
        party = Party(self, name, Membership(MemberSettings(GROUP, **given)))
        self.parties[name] = party
        return party

    def stable(self, *names: str, topics: Collection[str] = ("t",), **settings: Any) -> list[Party]:
        parties = [self.party(name, **settings).joins(*topics) for name in names]
        self.settle()
        return parties

    def settle(self, ms: int = 20_000) -> None:
        """Let time pass until everybody that polls is stable; fail if that takes longer than `ms`."""
        until_ms = self.now_ms + ms
        while not self.is_settled:
            assert self.now_ms < until_ms, "\n".join(self.explained())
            self.advance(100)

    @property
    def is_settled(self) -> bool:
        return all(
            party.is_in(MemberState.STABLE) and party.member.reason_to_rejoin is None
            for party in self.parties.values()
            if party.polls
        )

    def explained(self) -> list[str]:
        return [party.member.explain(self.now_ms) for party in self.parties.values()]

    @staticmethod
    def refusal(request: Any, error: ErrorCode) -> Any:
        """How this request is told that."""
        return error if isinstance(request, Heartbeat) else REFUSALS[type(request)](request, error)

    def known(self, topics: Collection[str] | None) -> dict[str, Topic]:
        return {name: topic for name, topic in self.topics.items() if topics is None or name in topics}

    def has_topics(self, **topics: int) -> None:
        """The cluster has changed; everybody hears of what it watches."""
        self.topics.update({name: Topic(number) for name, number in topics.items()})
        self.tell_topics()

    def tell_topics(self) -> None:
        for party in self.parties.values():
            party.hears_of_topics()

    def owners(self) -> dict[TopicPartition, list[str]]:
        found: dict[TopicPartition, list[str]] = {}
        for party in self.parties.values():
            for partition in party.member.assigned:
                found.setdefault(partition, []).append(party.name)
        return found

    # --- time ---------------------------------------------------------------------------------------------------------

    def later(self, ms: int, act: Callable[[], None]) -> None:
        heappush(self._queue, (self.now_ms + ms, next(self.numbers), act))

    def advance(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while (at_ms := self._next_ms()) is not None and at_ms <= until_ms:
            self.world.advance(max(at_ms - self.now_ms, 0))  # the coordinator's timers
            self._deliver()
            while self._queue and self._queue[0][0] <= self.now_ms:
                heappop(self._queue)[2]()
                self._deliver()
            for party in list(self.parties.values()):
                for event in party.timers.due(self.now_ms):
                    party.handle(event)
        self.world.advance(until_ms - self.now_ms)
        self._deliver()

    def _next_ms(self) -> int | None:
        times = [self._queue[0][0]] if self._queue else []
        times += [at for party in self.parties.values() if (at := party.timers.next_ms()) is not None]
        if (at_ms := self.world.timers.next_ms()) is not None:
            times.append(at_ms)
        return min(times) if times else None

    # --- the link -----------------------------------------------------------------------------------------------------

    def send(self, party: Party, send: effects.SendRequest) -> None:
        connection = party.connections.get(send.lane)
        if connection is None or connection.closed or connection.node != send.to:
            if connection is not None and not connection.closed:
                self._close(party, connection, ConnectionLostError("another coordinator is spoken to now"))
            connection = party.connections[send.lane] = Connection(send.to)
        assert connection is not None
        open_connection = connection
        at_ms = max(self.now_ms + self.delay_ms(), connection.arrives_not_before_ms)
        connection.arrives_not_before_ms = at_ms
        connection.waiting.append(send)
        self.later(at_ms - self.now_ms, lambda: self._serve(party, open_connection))
        self.later(send.timeout_ms, lambda: self._time_out(party, open_connection, send))

    def _serve(self, party: Party, connection: Connection) -> None:
        """The next request is not looked at until the previous one is answered (C6)."""
        if connection.closed or connection.serving is not None or not connection.waiting or self.is_deaf:
            return
        send = connection.serving = connection.waiting.popleft()
        request = send.request
        if self.refusals and isinstance(request, self.refusals[0][0]):
            _, answer = self.refusals.popleft()
            if answer is not None:
                self._answer(party, connection, send, answer(request) if callable(answer) else answer)
            return
        if send.to != self.node:
            self._answer(party, connection, send, REFUSALS[type(request)](request, ErrorCode.NOT_COORDINATOR))
            return
        assert not isinstance(request, ConsumerGroupHeartbeat), "the group is classic"
        request.token = token = self.world.token()
        if isinstance(request, JoinGroup):
            request.fresh_id = f"id{next(self.numbers)}"
        self._asked[token] = (party, connection, send)
        self.world.send(request)
        self._deliver()

    def _deliver(self) -> None:
        replies = list(self.world.replies.items())[self._delivered :]
        self._delivered += len(replies)
        for token, answer in replies:
            party, connection, send = self._asked.pop(token)
            self._answer(party, connection, send, answer)

    def _answer(self, party: Party, connection: Connection, send: effects.SendRequest, answer: Any) -> None:
        at_ms = max(self.now_ms + self.delay_ms(), connection.answers_not_before_ms)
        connection.answers_not_before_ms = at_ms

        def arrive() -> None:
            if connection.closed or connection.serving is not send:
                return
            connection.serving = None
            send.then.reply = answer
            party.handle(send.then)
            self._serve(party, connection)

        self.later(at_ms - self.now_ms, arrive)

    def _time_out(self, party: Party, connection: Connection, send: effects.SendRequest) -> None:
        under_way = connection.serving is send or any(one is send for one in connection.waiting)
        if under_way and not connection.closed and not self._was_reused(connection, send):
            self._close(party, connection, RequestTimedOutError("nothing was heard"))

    @staticmethod
    def _was_reused(connection: Connection, send: effects.SendRequest) -> bool:
        """A heartbeat is one object for its whole generation: this alarm may belong to an earlier one."""
        return send.then.__class__ is events.HeartbeatAnswered and connection.serving is not send

    def disconnect(self, party: Party, node: int | None = None) -> None:
        """The connections of a party are lost, to this node or all."""
        for connection in list(party.connections.values()):
            if not connection.closed and (node is None or connection.node == node):
                self._close(party, connection, ConnectionLostError("the connection was lost"))

    def _close(self, party: Party, connection: Connection, error: KafkaError) -> None:
        connection.closed = True
        lost = [connection.serving] if connection.serving is not None else []
        lost += connection.waiting
        connection.serving = None
        connection.waiting.clear()
        for send in lost:

            def arrive(send: effects.SendRequest = send) -> None:
                send.then.error = error
                party.handle(send.then)

            self.later(0, arrive)

    def forget(self, party: Party) -> None:
        """The process of this party is gone."""
        del self.parties[party.name]
        for connection in party.connections.values():
            connection.closed = True
            connection.waiting.clear()
        party.member.state = MemberState.CLOSED  # whatever still comes in is nobody's

    def move_coordinator(self) -> None:
        """Another node reads the log and coordinates; the old one refuses."""
        self.node += 1
        self.world.move_coordinator()
        self._deliver()

    def crash_coordinator(self) -> None:
        """Nobody is told anything; every connection breaks."""
        self.node += 1
        self.world.crash()
        self._asked.clear()
        for party in self.parties.values():
            self.disconnect(party)
