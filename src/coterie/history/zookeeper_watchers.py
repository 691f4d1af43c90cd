"""Design 1, ZooKeeper watchers (semantics 13.1): every consumer watches the group, assigns alone, and claims.

A change notifies every consumer. Each one stops, writes its offsets, gives up its claims, lists the members, computes
the assignment for all, and claims its own partitions. If another consumer still holds one of them, the two saw
different groups or one is slower: the consumer gives everything up and tries again a little later. After a few
attempts it waits for the next change and owns nothing (Kafka 0.8: rebalance.max.retries, rebalance.backoff.ms).

Nothing checks that a consumer that reads still holds its claim. A consumer whose session expired without its knowledge
is a second owner, and its offsets are written like any others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from coterie.assignors import Assignor, Topic
from coterie.history.design_types import (
    ANY_SESSION,
    BROKERS,
    Children,
    ChildrenChanged,
    CommitDue,
    Create,
    Delete,
    Effects,
    Get,
    Offsets,
    Operation,
    Partition,
    Paths,
    SessionBegan,
    SessionEnded,
    SetData,
    SetTimer,
    StartReading,
    Stopped,
    StopReading,
    TimerFired,
    ZkRequest,
    ZkResponse,
    assigned_partitions,
    read_offset,
    read_topics,
    write_offset,
    write_topics,
)

RETRY = "retry"
NO_STEP = -1


@dataclass(frozen=True)
class WatchingSettings:
    """Two settings of Kafka 0.8, with its names and defaults."""

    rebalance_max_retries: int = 4
    rebalance_backoff_ms: int = 2_000


class ConsumerPhase(Enum):
    AWAY = "has no session"
    REGISTERING = "creates its node under ids"
    STOPPING = "waits until no record is being processed"
    COMMITTING = "writes its offsets"
    RELEASING = "gives up its claims"
    LISTING = "lists the members"
    READING_SUBSCRIPTIONS = "reads the subscriptions of the members"
    CLAIMING = "claims its partitions"
    CHECKING = "reads who holds what it could not claim"
    RETREATING = "gives up its claims, since another consumer holds some of its partitions"
    FINDING = "reads the committed offsets"
    BACKING_OFF = "waits before it tries again"
    SETTLED = "reads its partitions, or has none and waits for a change"


class WatchingConsumer:
    def __init__(
        self,
        group_id: str,
        member_id: str,
        subscribed: Sequence[str],
        topics: Mapping[str, Topic],
        assignor: Assignor,
        settings: WatchingSettings | None = None,
    ) -> None:
        self.member_id = member_id
        self.phase = ConsumerPhase.AWAY
        self.reads: frozenset[Partition] = frozenset()
        self.attempts = 0
        """The number of times that it has listed the members."""
        self.conflicts = 0
        """The number of times that another consumer held a partition it should claim."""
        self.has_given_up = False
        self._subscribed = subscribed
        self._topics = topics
        self._assignor = assignor
        self._settings = settings or WatchingSettings()
        self._paths = Paths(group_id)
        self._session = ANY_SESSION
        self._claimed: list[Partition] = []
        self._assigned: list[Partition] = []
        self._is_registered = False
        self._step = 0
        self._tries = 0
        self._missed_a_change = False
        self._requested = 0
        self._found: dict[Any, Any] = {}
        self._on: Mapping[type, Callable[[Any, int], Effects]] = {
            SessionBegan: self._session_began,
            SessionEnded: self._session_ended,
            ChildrenChanged: self._changed,
            ZkResponse: self._answered,
            Stopped: self._stopped,
            CommitDue: self._commit_due,
            TimerFired: self._timer_fired,
        }
        self._next: Mapping[ConsumerPhase, Callable[[int], Effects]] = {
            ConsumerPhase.REGISTERING: self._registered,
            ConsumerPhase.COMMITTING: self._committed,
            ConsumerPhase.RELEASING: self._released,
            ConsumerPhase.LISTING: self._members_listed,
            ConsumerPhase.READING_SUBSCRIPTIONS: self._subscriptions_read,
            ConsumerPhase.CLAIMING: self._tried_to_claim,
            ConsumerPhase.CHECKING: self._checked,
            ConsumerPhase.RETREATING: self._retreated,
            ConsumerPhase.FINDING: self._found_offsets,
        }

    def handle(self, event: Any, now_ms: int) -> Effects:
        return self._on[type(event)](event, now_ms)

    # --- events -------------------------------------------------------------------------------------------------------

    def _session_began(self, event: SessionBegan, _now_ms: int) -> Effects:
        """Register again. The claims of the last session are gone, but what is being read is still read."""
        self._session = event.number
        self._claimed = []
        self._is_registered = False
        self._tries = 0
        return self._register()

    def _session_ended(self, _event: SessionEnded, _now_ms: int) -> Effects:
        """Read on until there is a new session; only then can it list the members (Kafka: handleNewSession)."""
        self._step += 1  # responses to earlier requests are stale
        self.phase = ConsumerPhase.AWAY
        return []

    def _changed(self, _event: ChildrenChanged, _now_ms: int) -> Effects:
        if self.phase is not ConsumerPhase.SETTLED:
            self._missed_a_change = True
            return []
        self._tries = 0
        return self._begin()

    def _stopped(self, event: Stopped, now_ms: int) -> Effects:
        if self.phase is not ConsumerPhase.STOPPING:
            return []
        self.reads = frozenset()
        mine = {one: at for one, at in event.positions.items() if one in self._claimed}
        if not mine:
            return self._committed(now_ms)
        return self._request(ConsumerPhase.COMMITTING, self._offsets(mine))

    def _commit_due(self, event: CommitDue, _now_ms: int) -> Effects:
        """Write the offsets. Nothing checks a generation, a version or the claim."""
        if not event.positions:
            return []
        return [ZkRequest(self._offsets(event.positions), ANY_SESSION, NO_STEP)]

    def _timer_fired(self, _event: TimerFired, _now_ms: int) -> Effects:
        return self._begin() if self.phase is ConsumerPhase.BACKING_OFF else []

    def _answered(self, event: ZkResponse, now_ms: int) -> Effects:
        if event.request.session != self._session or event.request.about != self._step:
            return []  # it belongs to an earlier step
        if event.error is not None:
            return self._try_again(now_ms)
        self._found[event.request.operation] = event.value
        if len(self._found) < self._requested:
            return []
        return self._next[self.phase](now_ms)

    # --- one attempt, step by step ------------------------------------------------------------------------------------

    def _request(self, phase: ConsumerPhase, *operations: Operation) -> Effects:
        self.phase = phase
        self._step += 1
        self._requested = len(operations)
        self._found = {}
        return [ZkRequest(one, self._session, self._step) for one in operations]

    def _register(self) -> Effects:
        return self._request(
            ConsumerPhase.REGISTERING, Create(self._paths.member(self.member_id), write_topics(self._subscribed))
        )

    def _registered(self, _now_ms: int) -> Effects:
        self._is_registered = True
        return self._begin()

    def _begin(self) -> Effects:
        if not self._is_registered:
            return self._register()
        if self.reads:
            self.phase = ConsumerPhase.STOPPING
            return [StopReading()]
        return self._release()

    def _committed(self, _now_ms: int) -> Effects:
        return self._release()

    def _release(self) -> Effects:
        if not self._claimed:
            return self._list_members()
        return self._request(ConsumerPhase.RELEASING, *(Delete(self._paths.owner(one)) for one in self._claimed))

    def _released(self, _now_ms: int) -> Effects:
        self._claimed = []
        return self._list_members()

    def _list_members(self) -> Effects:
        self.attempts += 1
        self._missed_a_change = False
        self.has_given_up = False
        return self._request(ConsumerPhase.LISTING, Children(self._paths.ids), Children(BROKERS))

    def _members_listed(self, now_ms: int) -> Effects:
        members = self._found[Children(self._paths.ids)]
        if not self._found[Children(BROKERS)] or self.member_id not in members:
            return self._settle(now_ms, {})  # no brokers, or not registered: a change follows
        return self._request(ConsumerPhase.READING_SUBSCRIPTIONS, *(Get(self._paths.member(one)) for one in members))

    def _subscriptions_read(self, now_ms: int) -> Effects:
        subscriptions = {
            operation.path.rpartition("/")[2]: read_topics(node.data)
            for operation, node in self._found.items()
            if isinstance(operation, Get) and node is not None  # it has left: a change follows
        }
        self._assigned = assigned_partitions(self._assignor, subscriptions, self._topics).get(self.member_id, [])
        if not self._assigned:
            return self._settle(now_ms, {})
        return self._request(ConsumerPhase.CLAIMING, *map(self._claim, self._assigned))

    def _claim(self, one: Partition) -> Create:
        return Create(self._paths.owner(one), self.member_id.encode())

    def _tried_to_claim(self, _now_ms: int) -> Effects:
        self._claimed = [one for one in self._assigned if self._found[self._claim(one)]]
        held = [one for one in self._assigned if one not in self._claimed]
        if not held:
            return self._have_claimed()
        return self._request(ConsumerPhase.CHECKING, *(Get(self._paths.owner(one)) for one in held))

    def _checked(self, now_ms: int) -> Effects:
        """Count a conflict, unless this consumer holds the node itself and only the response was lost."""
        mine = self.member_id.encode()
        held = {operation.path for operation, node in self._found.items() if node is not None and node.data == mine}
        self._claimed += [one for one in self._assigned if self._paths.owner(one) in held]
        if len(self._claimed) == len(self._assigned):
            return self._have_claimed()
        self.conflicts += 1
        if not self._claimed:
            return self._try_again(now_ms)
        return self._request(ConsumerPhase.RETREATING, *(Delete(self._paths.owner(one)) for one in self._claimed))

    def _retreated(self, now_ms: int) -> Effects:
        self._claimed = []
        return self._try_again(now_ms)

    def _have_claimed(self) -> Effects:
        return self._request(ConsumerPhase.FINDING, *(Get(self._paths.offset(one)) for one in self._claimed))

    def _found_offsets(self, now_ms: int) -> Effects:
        """Start reading. The owner before wrote its offsets before it gave up its claim."""
        nodes = {one: self._found[Get(self._paths.offset(one))] for one in self._claimed}
        return self._settle(now_ms, {one: read_offset(node.data) if node else 0 for one, node in nodes.items()})

    def _settle(self, _now_ms: int, offsets: Offsets) -> Effects:
        self.phase = ConsumerPhase.SETTLED
        self.reads = frozenset(offsets)
        begin = [StartReading(offsets)] if offsets else []
        if self._missed_a_change:
            self._tries = 0
            return [*begin, *self._begin()]
        return begin

    def _try_again(self, now_ms: int) -> Effects:
        self._tries += 1
        if self._tries < self._settings.rebalance_max_retries:
            self.phase = ConsumerPhase.BACKING_OFF
            return [SetTimer(RETRY, now_ms + self._settings.rebalance_backoff_ms)]
        self.has_given_up = True
        return self._settle(now_ms, {})

    def _offsets(self, positions: Offsets) -> SetData:
        return SetData({self._paths.offset(one): write_offset(at) for one, at in sorted(positions.items())})
