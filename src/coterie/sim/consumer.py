"""A consumer's process: the shipped member and reader, and a user who polls, works, commits and closes.

Does what `engine.py`, `fetch_driver.py` and `topic_watch.py` of the client do on asyncio: effects are performed,
answers handed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, Any

from coterie.assignors import Assignor, Range
from coterie.assignors import Topic as AssignorTopic
from coterie.client.consumer.fetch_requests import AskCommitted, FetchSettings
from coterie.client.consumer.offset_resets import EARLIEST
from coterie.client.member import MemberSettings, Membership, effects, events
from coterie.client.member.states import Stage
from coterie.client.network.metadata import Node
from coterie.client.types import TopicPartition
from coterie.errors import KafkaError
from coterie.protocol.apis import (
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)
from coterie.protocol.messages import Heartbeat, JoinGroup, LeaveGroup, OffsetCommit, OffsetFetch, SyncGroup
from coterie.sim.client import ANY
from coterie.sim.host import Clock
from coterie.sim.reading import Reader

if TYPE_CHECKING:
    from coterie.sim.world import World

__all__ = ["Consumer", "Habits", "User"]

NO_LIMIT = 1 << 15
AFTER_AN_ERROR_MS = 500

_APIS: Mapping[type, tuple[ModuleType, int]] = {
    JoinGroup: (join_group, NO_LIMIT),
    SyncGroup: (sync_group, NO_LIMIT),
    Heartbeat: (heartbeat, NO_LIMIT),
    LeaveGroup: (leave_group, NO_LIMIT),
    OffsetCommit: (offset_commit, offset_commit.API.last_by_name),
    OffsetFetch: (offset_fetch, offset_fetch.API.last_by_name),
}


class User(Enum):
    """What the code around the consumer is doing."""

    AWAY = "does something else"
    POLLING = "waits inside poll"
    LISTENING = "is in a listener's call"
    WORKING = "processes records"
    COMMITTING = "waits for its commit"
    CLOSING = "closes the consumer"
    GONE = "has ended"


@dataclass(slots=True)
class Habits:
    """How a consumer is set and used; a workload says so."""

    group_id: str = "g"
    topics: Sequence[str] = ("t",)
    assignors: Sequence[Assignor] = field(default_factory=lambda: (Range(),))
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    poll_ms: int = 30_000
    max_poll_records: int = 500
    work_ms: int = 5
    """For each poll that returns something."""
    listener_ms: int = 0
    fetch_max_wait_ms: int = 500
    metadata_max_age_ms: int = 300_000
    versions: dict[str, int] = field(default_factory=dict)


class Consumer(Reader):
    __slots__ = (
        "_armed",
        "_asks_committed",
        "_calls",
        "_events",
        "_is_handling",
        "_is_looking",
        "_looks_again_ms",
        "_perform",
        "_polls",
        "_seen",
        "_to_raise",
        "_token",
        "_waits_for",
        "_watched",
        "errors",
        "habits",
        "member",
        "owned",
        "slot",
        "told",
        "user",
    )

    def __init__(self, world: World, name: str, clock: Clock, habits: Habits) -> None:
        settings = FetchSettings(
            auto_offset_reset=EARLIEST,
            fetch_max_wait_ms=habits.fetch_max_wait_ms,
            metadata_max_age_ms=habits.metadata_max_age_ms,
        )
        super().__init__(world, name, clock, settings, habits.versions)
        self.habits = habits
        self.group_id = habits.group_id
        self.member = Membership(
            MemberSettings(
                habits.group_id,
                assignors=habits.assignors,
                group_instance_id=habits.instance_id,
                client_id=name,
                session_timeout_ms=habits.session_timeout_ms,
                heartbeat_interval_ms=habits.heartbeat_interval_ms,
                max_poll_interval_ms=habits.max_poll_interval_ms,
                enable_auto_commit=habits.auto_commit,
                auto_commit_interval_ms=habits.auto_commit_interval_ms,
                rng=self._rng.random(),
            )
        )
        self.user = User.AWAY
        self.told: set[TopicPartition] = set()
        """What the listener knows to be ours."""
        self.errors: list[Exception] = []
        self.owned: frozenset[TopicPartition] = frozenset()
        self.slot = name
        self._armed: dict[str, effects.Arm] = {}
        self._events: deque[Any] = deque()
        self._is_handling = False
        self._calls: deque[effects.CallListener] = deque()
        self._to_raise: deque[Exception] = deque()
        self._token = 0
        self._waits_for: int | None = None
        self._asks_committed: dict[Any, AskCommitted] = {}
        self._polls = 0
        self._watched: Collection[str] | None = ()
        self._seen: Mapping[str, AssignorTopic] | None = None
        self._is_looking = False
        self._looks_again_ms = 0
        self._perform: Mapping[type, Callable[[Any], None]] = {
            effects.Send: self._send,
            effects.FindCoordinator: self._find,
            effects.Disconnect: self._disconnect,
            effects.Arm: self._arm,
            effects.Disarm: self._disarm,
            effects.CallListener: self._calls.append,
            effects.HoldPartitions: self._hold,
            effects.SetAssignment: self._set_assignment,
            effects.WatchTopics: self._watch,
            effects.RefreshMetadata: self._refresh_metadata,
            effects.AskPositions: lambda effect: self._answer(effect.then, self.fetcher.processed(), None),
            effects.CommitEnded: self._commit_ended,
            effects.CommittedEnded: self._committed_ended,
            effects.Fail: lambda effect: self._to_raise.append(effect.error),
            effects.Ended: self._ended,
            effects.Tell: lambda _effect: None,
        }

    # --- the user -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.tell(events.Subscribed(self.habits.topics))
        self.poll()

    def poll(self, _about: object = None) -> None:
        if self.is_paused:
            self.misses(self.poll, _about)
            return
        if not self.is_alive or self.user in {User.CLOSING, User.GONE, User.POLLING}:
            return
        self.user = User.POLLING
        self._polls += 1
        self.fetcher.begin_poll()
        self.later(self.habits.poll_ms, self._poll_over, self._polls)
        self.tell(events.PollBegan())

    def _poll_over(self, number: int) -> None:
        if number != self._polls or not self.is_alive:
            return
        if self.user is User.LISTENING:
            self.later(1_000, self._poll_over, number)
        if self.user is not User.POLLING:
            return
        if self.is_paused:
            self.misses(self._poll_over, number)
            return
        self._end_poll(User.AWAY)
        self.poll()

    def _end_poll(self, then: User) -> None:
        self.user = then
        self.tell(events.PollEnded())

    def wake(self) -> None:
        """Something has happened: does the user go on?"""
        if self.user is User.POLLING:
            if self._calls:
                self._listen()
            elif self._to_raise:
                self._end_poll(User.AWAY)
                error = self._to_raise.popleft()
                self.errors.append(error)
                if self.member.stage is Stage.FENCED:
                    self.world.fenced(self)
                    return
                self.later(AFTER_AN_ERROR_MS, self.poll, None)
            elif self.fetcher.has_something:
                self._take()
        elif self.user is User.CLOSING and self._calls:
            self._listen()

    def _listen(self) -> None:
        call = self._calls[0]
        closing = self.user is User.CLOSING
        self.user = User.LISTENING
        self.world.listened(self, call)
        self.later(self.habits.listener_ms, self._listened, (call, closing))

    def _listened(self, about: tuple[effects.CallListener, bool]) -> None:
        if self.is_paused:
            self.misses(self._listened, about)
            return
        call, closing = about
        if not self.is_alive:
            return
        self._calls.popleft()
        self.user = User.CLOSING if closing else User.POLLING
        self._answer(call.then, None, None)

    def _take(self) -> None:
        self._end_poll(User.WORKING)
        try:
            records = self.fetcher.take(self.habits.max_poll_records)
        except KafkaError as error:
            self.errors.append(error)
            self.world.read_failed(self, error)
            self.user = User.AWAY
            self.later(AFTER_AN_ERROR_MS, self.poll, None)
            return
        if not records:
            self.user = User.AWAY
            self.poll()
            return
        self.world.took(self, records)
        self.later(self.habits.work_ms, self._worked, records)

    def _worked(self, records: Sequence[Any]) -> None:
        if self.is_paused:
            self.misses(self._worked, records)
            return
        if not self.is_alive or self.user is not User.WORKING:
            return
        self.world.processed(self, records)
        self.user = User.AWAY
        if self.habits.auto_commit:
            self.poll()
            return
        self.user = User.COMMITTING
        self._token += 1
        self._waits_for = self._token
        offsets = self.fetcher.positions()
        self.tell(events.CommitAsked(self._token, offsets, self.now_ms + 60_000))

    def _commit_ended(self, effect: effects.CommitEnded) -> None:
        if effect.token == self._waits_for:
            self._waits_for = None
            if effect.error is not None:
                self.errors.append(effect.error)
            if self.user is User.COMMITTING:
                self.user = User.AWAY
                self.later(0, self.poll, None)

    def behave(self) -> None:
        """From now on nobody has to wait for it."""
        self.habits.work_ms = min(self.habits.work_ms, 200)
        self.habits.listener_ms = min(self.habits.listener_ms, 1_000)

    def subscribe(self, topics: Sequence[str]) -> None:
        self.habits.topics = topics
        self.tell(events.Subscribed(topics))

    def close(self, within_ms: int = 30_000, *, leave: bool | None = None) -> None:
        if not self.is_alive or self.user in {User.CLOSING, User.GONE}:
            return
        if self.is_paused or self.user in {User.LISTENING, User.COMMITTING}:
            self.later(50, lambda _: self.close(within_ms, leave=leave), None)
            return
        if self.user is User.WORKING:  # its work has failed, as `__exit__` sees it: what it was given is not processed
            self.fetcher.rewind()
        if self.user is User.POLLING:
            self._end_poll(User.AWAY)
        self.fetcher.begin_poll()
        self.user = User.CLOSING
        self.tell(events.CloseAsked(self.now_ms + within_ms, leave))

    def _ended(self, effect: effects.Ended) -> None:
        if isinstance(effect.asked, events.CloseAsked):
            self.later(0, self._closed, None)

    def _closed(self, _about: object) -> None:
        if self.is_alive:
            self.user = User.GONE
            self.ends()
            self.world.closed(self)

    # --- the member ---------------------------------------------------------------------------------------------------

    def tell(self, event: Any) -> None:
        """Events that come up while effects are performed are handed in after them."""
        if not self.is_alive:
            return
        queue = self._events
        if self._is_handling:
            queue.append(event)
            return
        self._is_handling = True
        member, perform, now_ms = self.member, self._perform, self.now_ms
        try:
            while True:
                for effect in member.handle(event, now_ms):
                    perform[type(effect)](effect)
                if not queue:
                    break
                event = queue.popleft()
        finally:
            self._is_handling = False
        fetcher = self.fetcher
        if fetcher.needs_data:
            self.ask_more()
        if member.assigned is not self.owned:
            self.owned = member.assigned
            self.world.ownership_changed(self)
        if self._calls or self._to_raise or fetcher.has_something:
            self.wake()

    def _answer(self, then: Any, reply: Any, error: Exception | None) -> None:
        then.reply, then.error = reply, error
        self.tell(then)

    def _send(self, effect: effects.Send) -> None:
        request: Any = effect.request
        module, at_most = _APIS[type(request)]
        if type(request) is OffsetFetch:
            self.ask(
                effect.to.id, effect.lane, module, [request], effect.timeout_ms, self._fetched_offsets, effect.then,
                at_most=at_most,
            )  # fmt: skip
            return
        if type(request) is OffsetCommit:
            self.world.commit_sent(self, request)
        self.ask(
            effect.to.id, effect.lane, module, request, effect.timeout_ms, self._answer, effect.then, at_most=at_most
        )

    def _fetched_offsets(self, then: Any, reply: Any, error: Exception | None) -> None:
        self._answer(then, reply[0] if reply is not None else None, error)

    def _find(self, effect: effects.FindCoordinator) -> None:
        request = find_coordinator.Request(keys=[self.group_id])
        self.ask(ANY, "", find_coordinator, request, 30_000, self._found, effect.then)

    def _found(self, then: Any, reply: find_coordinator.Response | None, error: KafkaError | None) -> None:
        node = None
        if reply is not None:
            (found,) = reply.coordinators
            if found.error:
                error = KafkaError.of(found.error, "looking for the coordinator")
            else:
                node = Node(found.node_id, found.host, found.port)
        self._answer(then, node, error)

    def _disconnect(self, effect: effects.Disconnect) -> None:
        for lane in (effects.COORDINATOR_LANE, effects.LEAVING_LANE):
            self.disconnect(effect.node.id, lane)

    def _arm(self, effect: effects.Arm) -> None:
        self._armed[effect.key] = effect
        self.at(effect.at_ms, self._ring, effect)

    def _disarm(self, effect: effects.Disarm) -> None:
        self._armed.pop(effect.key, None)

    def _ring(self, armed: effects.Arm) -> None:
        if self.is_paused:
            self.misses(self._ring, armed)
        elif self._armed.get(armed.key) is armed:
            del self._armed[armed.key]
            self.tell(armed.then)

    def _hold(self, effect: effects.HoldPartitions) -> None:
        self.world.held(self, effect.partitions)
        self.fetcher.hold(effect.partitions)

    def _set_assignment(self, effect: effects.SetAssignment) -> None:
        self.world.assigned(self, effect)
        self.fetcher.assign(sorted(effect.partitions))

    def _watch(self, effect: effects.WatchTopics) -> None:
        self._watched = effect.topics
        self._seen = None
        if effect.topics is None or effect.topics:
            self._look()

    def _look(self, _about: object = None) -> None:
        if not self._is_looking:
            self._is_looking = True
            asked = self._watched
            self.refresh(asked, lambda _error: self._looked(asked))

    def _looked(self, asked: Collection[str] | None) -> None:
        self._is_looking = False
        if asked != self._watched:
            self._look()
            return
        self.look_again()
        is_complete = asked is None or all(name in (self._seen or ()) for name in asked)
        self._looks_again_ms = self.now_ms + (self.habits.metadata_max_age_ms if is_complete else 1_000)
        self.at(self._looks_again_ms, self._look_when_due, None)

    def _look_when_due(self, _about: object) -> None:
        if self.is_paused:
            self.misses(self._look_when_due, None)
        elif self.is_alive and self.now_ms >= self._looks_again_ms:
            self._look()

    def look_again(self) -> None:
        if self._watched is not None and not self._watched:
            return
        found = self._known(self._watched)
        if found != self._seen:
            self._seen = found
            if self.member.subscribed:
                self.tell(events.MetadataChanged(found))

    def _known(self, names: Collection[str] | None) -> dict[str, AssignorTopic]:
        known = self.metadata.topics
        if names is None:
            names = [name for name, topic in known.items() if not topic.is_internal]
        return {
            name: AssignorTopic(len(known[name].partitions))
            for name in names
            if name in known and known[name].partitions and not known[name].error
        }

    def _refresh_metadata(self, effect: effects.RefreshMetadata) -> None:
        def done(error: KafkaError | None) -> None:
            self._answer(effect.then, None if error else self._known(effect.topics), error)

        self.refresh(effect.topics, done)

    def ask_committed(self, asked: AskCommitted) -> None:
        self._token += 1
        self._asks_committed[self._token] = asked
        partitions = [state.partition for state in asked.states]
        self.tell(events.CommittedAsked(self._token, partitions, self.now_ms + 60_000))

    def _committed_ended(self, effect: effects.CommittedEnded) -> None:
        asked = self._asks_committed.pop(effect.token)
        found = effect.offsets if effect.error is None else _kafka_error(effect.error)
        self.fetcher.committed(asked, found, self.now_ms)


def _kafka_error(error: Exception) -> KafkaError:
    return error if isinstance(error, KafkaError) else KafkaError(str(error))
