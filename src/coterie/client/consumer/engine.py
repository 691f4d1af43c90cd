"""The asyncio of a consumer: does what its member (`client.member`) wants done. Records are `fetch_driver.py`'s
business.

It lives on one event loop. Everything that decides is in the two machines; here are the sockets, the timers and the
waiting. What the user's side must do by itself: `until_something` returns a listener's call to make, raises
an error to be raised, or says that there may be records to take.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from re import Pattern
from types import ModuleType
from typing import Any
from uuid import UUID

from coterie.assignors import Assignor
from coterie.assignors import Topic as AssignorTopic
from coterie.client.consumer.consumer_log import CONSUMER_LINES
from coterie.client.consumer.fetch_driver import FetchDriver
from coterie.client.consumer.rebalance_listener import RebalanceCallbacks
from coterie.client.consumer.topic_watch import TopicWatch
from coterie.client.event_log import EventLog
from coterie.client.member import ConsumerMembership, MemberSettings, Membership, effects, events, facts
from coterie.client.member.member import DUE, HEARTBEAT
from coterie.client.member.quick_heartbeat import quick_answer, quick_due
from coterie.client.metrics import CONSUMER_ROWS, ConsumerMetrics, Metrics, of_partition, snapshot
from coterie.client.network.network_client import NetworkClient
from coterie.client.network.runtime import REAL, BackgroundTasks, Runtime, shared_ticks, within
from coterie.client.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition
from coterie.errors import CoterieError, ErrorCode, KafkaError
from coterie.facts import Emit
from coterie.protocol.apis import (
    consumer_group_heartbeat,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)
from coterie.protocol.apis.consumer_group_heartbeat import Request as ConsumerGroupHeartbeat
from coterie.protocol.messages import Heartbeat, JoinGroup, LeaveGroup, OffsetCommit, OffsetFetch, SyncGroup
from coterie.settings.consumer_settings import ConsumerSettings

PATIENCE_MS = 10_000


class CoordinatorReach:
    """Notices that a coordinator has not answered for 10 s, and that it answers again. The time comes in.

    A join or a sync may wait long for other members, so only its failure counts. A coordinator that was found is not
    reached yet: if the next request fails, the time counts from the first failure.
    """

    __slots__ = ("_before_ms", "_is_reported", "_since_ms", "_why")

    def __init__(self) -> None:
        self._since_ms: int | None = None
        """The time at which the first request without an answer was sent."""
        self._before_ms: int | None = None
        """The same, while the coordinator has been found again and has not answered yet."""
        self._is_reported = False
        self._why = ""

    @property
    def due_ms(self) -> int | None:
        """The time at which `look` should be called, if nothing else happens."""
        return None if self._since_ms is None or self._is_reported else self._since_ms + PATIENCE_MS

    def asked(self, now_ms: int) -> None:
        """A request that is answered at once was sent, or a lookup began."""
        if self._since_ms is None:
            self._since_ms = now_ms

    def failed(self, why: str, now_ms: int) -> None:
        """No answer came."""
        self._why = why
        if self._since_ms is None or self._before_ms is not None:
            self._since_ms = self._before_ms if self._before_ms is not None else now_ms
            self._before_ms = None

    def found(self) -> None:
        """Another node has said where the coordinator is."""
        if self._before_ms is None:
            self._before_ms = self._since_ms
        self._since_ms = None

    def answered(self, now_ms: int) -> int | None:
        """The coordinator has answered. Return for how long it had not, if `look` has reported it."""
        since_ms = self._since_ms if self._before_ms is None else self._before_ms
        was_reported, self._is_reported = self._is_reported, False
        self._since_ms = self._before_ms = None
        self._why = ""
        return now_ms - since_ms if was_reported and since_ms is not None else None

    def look(self, now_ms: int) -> tuple[int, str] | None:
        """Return how long the coordinator has not answered, and why, if that is long enough to report; once."""
        due_ms = self.due_ms
        if due_ms is None or now_ms < due_ms:
            return None
        self._is_reported = True
        return now_ms - due_ms + PATIENCE_MS, self._why


_APIS: dict[type, ModuleType] = {
    JoinGroup: join_group,
    SyncGroup: sync_group,
    Heartbeat: heartbeat,
    LeaveGroup: leave_group,
    OffsetCommit: offset_commit,
    OffsetFetch: offset_fetch,
    ConsumerGroupHeartbeat: consumer_group_heartbeat,
}
_LAST_HEARTBEAT = heartbeat.API.last_by_name
_AT_LEAST = {consumer_group_heartbeat: 1}
"""Version 0 was an early access: the member's id came from the broker, and there were no patterns."""


class WakeupError(CoterieError):
    """`wakeup` was called: the poll it interrupted has returned nothing, and nothing is lost."""


_HEARTBEATS = (Heartbeat, ConsumerGroupHeartbeat)
_PARKED = (JoinGroup, SyncGroup)
"""Requests that wait at the coordinator for other members."""
_REBALANCE_BEGAN = (facts.RebalanceBegan, facts.ReconciliationBegan)
_REBALANCE_ENDED = (facts.AssignmentTaken, facts.AssignmentReconciled)


class Engine:
    """One consumer on its event loop: the member of the group, the fetcher, the connections and the timers.

    Its user waits in `until_something`, makes the listener's calls that come out of it and reports them with
    `listener_done`. `AsyncConsumer` does so within poll; a Spark query does so in a task of its own.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        assignors: Sequence[Assignor],
        runtime: Runtime = REAL,
        *,
        fetches: bool = True,
        logger: str = "coterie.consumer",
    ) -> None:
        """Create it in the event loop that it lives on.

        Args:
            settings: The settings of the consumer.
            assignors: The assignors that the member offers to its group.
            runtime: Where time, chance and connections come from.
            fetches: Whether the records of assigned partitions are fetched. Without it the listener's calls are all
                that its user sees of an assignment, so that it can read the records elsewhere; enable.auto.commit must
                be off then, as there are no positions to commit.
            logger: The name of the logger that the events of the member go to.
        """
        assert fetches or not settings.commits_automatically, "without fetching there are no positions to commit"
        self.settings = settings
        self.clock_ms = runtime.clock_ms
        self.log = EventLog("consumer", settings, logger, CONSUMER_LINES)
        if settings.group_id is not None:
            self.log.name_group(settings.group_id, settings.group_instance_id)
        self.measured = ConsumerMetrics(settings)
        self.cluster = NetworkClient(settings, self.log, self.measured, runtime)
        ticks = shared_ticks() if runtime is REAL else None  # the simulator's members are on machines of their own
        self.tasks = BackgroundTasks(self.clock_ms, self.fail, ticks)
        self.reading = FetchDriver(
            settings,
            self.cluster,
            self.tasks,
            self.log,
            self.measured,
            committed=self.committed,
            on_news=self._something_was_read,
        )
        self.watch = TopicWatch(settings, self.cluster, self.tasks, self._topics_changed, self._topics_denied, self.log)
        self._reach = CoordinatorReach()
        self._reach_is_watched = False
        self.member: Membership | ConsumerMembership | None = None
        self._fresh_id = ""
        if settings.group_id is not None:
            chance = runtime.rng.random()  # so that members that failed together do not return together
            about = MemberSettings.of(settings, settings.group_id, assignors, chance)
            if settings.group_protocol == "consumer":
                self.member = ConsumerMembership(about)
                self._fresh_id = str(UUID(int=runtime.rng.getrandbits(128), version=4))
            else:
                self.member = Membership(about)
        self.listener = RebalanceCallbacks({})
        self._needs_attention = False
        self._events: deque[Any] = deque()
        self._is_handling = False
        self._calls: deque[effects.CallListener] = deque()
        self._failures: deque[Exception] = deque()
        self._is_woken = False
        self._waiters: dict[asyncio.Future[None], Callable[[], bool] | None] = {}
        """The event that each of them waits for; None: any event."""
        self._endings: dict[int, asyncio.Future[Any]] = {}
        self._last_token = 0
        self._perform: Mapping[type, Callable[[Any], None]] = {
            effects.SendRequest: self._start_sending,
            effects.FindCoordinator: lambda effect: self.tasks.start(self._find_coordinator(effect)),
            effects.Disconnect: self._disconnect,
            effects.StartTimer: self._start_timer,
            effects.StopTimer: lambda effect: self.tasks.disarm(effect.key),
            effects.CallListener: self._call_listener,
            effects.HoldPartitions: self._hold,
            effects.SetAssignment: lambda effect: self.assign(sorted(effect.partitions)) if fetches else None,
            effects.WatchTopics: lambda effect: self.watch.watch(effect.topics),
            effects.RefreshMetadata: lambda effect: self.tasks.start(self._refresh(effect)),
            effects.ResolveTopicIds: lambda effect: self.tasks.start(self._resolve(effect)),
            effects.AskPositions: self._answer_positions,
            effects.CommitEnded: self._commit_ended,
            effects.CommittedEnded: lambda effect: self._end(effect.token, effect.offsets, effect.error),
            effects.Fail: lambda effect: self.fail(effect.error),
            effects.Ended: lambda effect: self._end(id(effect.asked), None, effect.error),
            Emit: self._emit,
        }

    @property
    def needs_attention(self) -> bool:
        """True if a poll has more to do than to take records. An iteration must poll then."""
        return self._needs_attention

    @needs_attention.setter
    def needs_attention(self, value: bool) -> None:
        self._needs_attention = value
        if value:
            self.reading.fetcher.buffer.stop()

    # --- the member ---------------------------------------------------------------------------------------------------

    def handle(self, event: Any) -> None:
        """Hand an event to the member and perform its effects; events that arise meanwhile are handled after it."""
        assert self.member is not None, "without a group there is no member"
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                for effect in self.member.handle(self._events.popleft(), self.clock_ms()):
                    self._perform[type(effect)](effect)
        finally:
            self._is_handling = False
        self._handled()

    def subscribe(self, names: Collection[str], pattern: Pattern[str] | SubscriptionPattern | None) -> None:
        """Subscribe the member, and give it an id if it has to bring its own (KIP-848)."""
        if isinstance(pattern, SubscriptionPattern):
            event = events.Subscribed(names, remote_pattern=pattern.pattern, fresh_id=self._fresh_id)
        else:
            event = events.Subscribed(names, pattern, fresh_id=self._fresh_id)
        self.handle(event)

    def _answer(self, then: Any, reply: Any = None, error: Exception | None = None) -> None:
        if not self.tasks.is_closed:
            then.reply, then.error = reply, error
            self.handle(then)

    def _start_timer(self, effect: effects.StartTimer) -> None:
        if effect.then is DUE:
            self.tasks.arm(effect.key, effect.at_ms, self._heartbeat_is_due)
        else:
            self.tasks.arm(effect.key, effect.at_ms, self.handle, effect.then)

    def _heartbeat_is_due(self) -> None:
        member = self.member
        if not self._is_handling and isinstance(member, Membership):
            request = quick_due(member, self.clock_ms())
            if request is not None:
                self._start_sending(request)
                self.tasks.arm(HEARTBEAT, member.heartbeat_at_ms, self._heartbeat_is_due)
                self._handled()
                return
        self.handle(DUE)

    def _handled(self) -> None:
        """Something has happened: there may be more to ask for, or others who wait for it."""
        if self.reading.fetcher.needs_data:
            self.reading.ask_more()
        if self._waiters:
            self.news()

    def _start_sending(self, effect: effects.SendRequest) -> None:
        if type(effect.request) is not Heartbeat or not self._beat(effect):
            self.tasks.start(self._send(effect))

    def _beat(self, effect: effects.SendRequest) -> bool:
        """Send a heartbeat without a task, as `_send` does; return False if that must connect first."""
        began_ms = self.clock_ms()

        def answered(reply: Any, error: Exception | None) -> None:
            if self.tasks.is_closed:
                return
            if error is not None:
                self._not_answered(effect, error)
                return
            now_ms = self.clock_ms()
            self.measured.responses.record(now_ms - began_ms, now_ms)
            self._note_answer(effect.request, reply, began_ms, now_ms)
            member = self.member
            if (
                not self._is_handling
                and isinstance(member, Membership)
                and quick_answer(member, effect.then, reply, now_ms)
            ):
                self._handled()
            else:
                self._answer(effect.then, reply)

        try:
            is_sent = self.cluster.ask(
                effect.to.id,
                heartbeat,
                effect.request,
                answered,
                timeout_ms=effect.timeout_ms,
                lane=effect.lane,
                at_most=_LAST_HEARTBEAT,
            )
        except CoterieError:
            return False  # the connection is being lost: open another
        if is_sent:
            self.measured.requests.record(1, began_ms)
            self._asks_coordinator(began_ms)
        return is_sent

    async def _send(self, effect: effects.SendRequest) -> None:
        request: Any = effect.request
        is_fetch = isinstance(request, OffsetFetch)
        api = _APIS[type(request)]
        began_ms = self.clock_ms()
        if not isinstance(request, _PARKED):
            self._asks_coordinator(began_ms)
        try:
            reply = await self.cluster.send_within(
                effect.to.id,
                api,
                [request] if is_fetch else request,
                timeout_ms=effect.timeout_ms,
                lane=effect.lane,
                at_most=api.API.last_by_name,  # names are what members speak of
                at_least=_AT_LEAST.get(api, 0),
            )
        except CoterieError as error:
            self._not_answered(effect, error)
        except Exception as error:  # the member waits for an answer, whosever mistake it is
            self._answer(effect.then, error=CoterieError(f"{type(request).__name__} could not be sent: {error!r}"))
            raise
        else:
            self._answered(effect, reply[0] if is_fetch else reply, began_ms)

    def _not_answered(self, effect: effects.SendRequest, error: Exception) -> None:
        self._reach.failed(str(error), self.clock_ms())
        self._watch_reach()
        if isinstance(effect.request, _PARKED):
            self.measured.failed_rebalances.record(1, self.clock_ms())
        self._answer(effect.then, error=error)

    def _answered(self, effect: effects.SendRequest, reply: Any, began_ms: int) -> None:
        self._note_answer(effect.request, reply, began_ms, self.clock_ms())
        self._answer(effect.then, reply)

    def _note_answer(self, request: Any, reply: Any, began_ms: int, now_ms: int) -> None:
        after_ms = self._reach.answered(now_ms)
        if after_ms is not None:
            self.log.write(facts.CoordinatorReached(now_ms, self.settings.group_id or "", after_ms))
        self._measure(request, reply, began_ms, now_ms)

    def _measure(self, request: Any, reply: Any, began_ms: int, now_ms: int) -> None:
        measured, took_ms = self.measured, now_ms - began_ms
        if isinstance(request, _HEARTBEATS):
            measured.heartbeats.record(took_ms, now_ms)
            measured.last_heartbeat_ms = began_ms
        elif isinstance(request, OffsetCommit):
            measured.commits.record(took_ms, now_ms)
        elif isinstance(request, _PARKED):
            if not reply.error:
                (measured.joins if isinstance(request, JoinGroup) else measured.syncs).record(took_ms, now_ms)
            elif reply.error is not ErrorCode.MEMBER_ID_REQUIRED:
                measured.failed_rebalances.record(1, now_ms)

    def metrics(self) -> Metrics:
        """Can be called from any thread."""
        measured, fetcher, now_ms = self.measured, self.reading.fetcher, self.clock_ms()
        with self.reading.lock:
            self.reading.measure(now_ms)
            partitions: Metrics = {
                of_partition(one): {"records-lag": fetcher.lag(one), "records-lead": fetcher.lead(one)}
                for one in fetcher.assignment
            }
        member = self.member
        assigned = member.assigned if member is not None and member.subscribed else partitions
        measured.assigned_partitions = len(assigned)
        measured.connection_count = len(self.cluster.addresses)
        measured.note_quick_polls()
        return snapshot(CONSUMER_ROWS, measured, now_ms) | partitions

    def _emit(self, effect: Emit) -> None:
        fact = effect.fact
        if isinstance(fact, _REBALANCE_BEGAN):
            self.measured.rebalance_began(fact.at_ms)
        elif isinstance(fact, _REBALANCE_ENDED):
            self.measured.rebalance_ended(fact.at_ms)
        self.log.write(fact)

    async def _find_coordinator(self, effect: effects.FindCoordinator) -> None:
        assert self.settings.group_id is not None
        self._asks_coordinator(self.clock_ms())
        asked = self.cluster.find_coordinator(self.settings.group_id)
        try:
            found = await within(self.settings.request_timeout_ms, asked)
        except CoterieError as error:
            self._reach.failed(str(error), self.clock_ms())
            self._answer(effect.then, error=error)
        else:
            self._reach.found()
            self._answer(effect.then, found)

    def _asks_coordinator(self, now_ms: int) -> None:
        self._reach.asked(now_ms)
        if not self._reach_is_watched:
            self._watch_reach()

    def _watch_reach(self) -> None:
        """Arm one timer, which checks again when it fires: requests are more frequent than the timer."""
        due_ms = None if self._reach_is_watched else self._reach.due_ms
        if due_ms is not None:
            self._reach_is_watched = True
            self.tasks.arm("reach", due_ms, self._look_at_reach)

    def _look_at_reach(self) -> None:
        self._reach_is_watched = False
        now_ms = self.clock_ms()
        late = self._reach.look(now_ms)
        if late is not None:
            self.log.write(facts.CoordinatorUnreachable(now_ms, self.settings.group_id or "", *late))
        self._watch_reach()

    def _disconnect(self, effect: effects.Disconnect) -> None:
        for lane in (effects.COORDINATOR_LANE, effects.LEAVING_LANE):
            self.cluster.disconnect(effect.node.id, lane)

    async def _refresh(self, effect: effects.RefreshMetadata) -> None:
        try:
            may_create = effect.may_create and self.settings.allow_auto_create_topics
            await self.cluster.refresh(effect.topics, allow_auto_create=may_create)
        except CoterieError as error:
            self._answer(effect.then, error=error)
        else:
            self._answer(effect.then, self.watch.topics(effect.topics))

    async def _resolve(self, effect: effects.ResolveTopicIds) -> None:
        names = self.cluster.metadata.topic_names()
        if not effect.topic_ids <= names.keys():
            try:
                await self.cluster.refresh_ids(effect.topic_ids)
            except CoterieError as error:
                self._answer(effect.then, error=error)
                return
            names = self.cluster.metadata.topic_names()
        self._answer(effect.then, {one: names[one] for one in effect.topic_ids if one in names})

    def _topics_changed(self, topics: Mapping[str, AssignorTopic]) -> None:
        if self.member is not None and self.member.subscribed:
            self.handle(events.MetadataChanged(topics))
        else:
            self.reading.ask_more()

    def _call_listener(self, effect: effects.CallListener) -> None:
        if self.listener.hears(effect.kind):
            self._calls.append(effect)
            self.needs_attention = True
        else:
            self._answer(effect.then)

    def listener_done(self, call: effects.CallListener, error: Exception | None) -> None:
        self._calls.remove(call)
        self._answer(call.then, error=error)

    def _hold(self, effect: effects.HoldPartitions) -> None:
        with self.reading.lock:
            self.reading.fetcher.hold(effect.partitions)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        with self.reading.lock:
            self.reading.fetcher.assign(partitions)
        self.reading.ask_more()

    def _answer_positions(self, effect: effects.AskPositions) -> None:
        with self.reading.lock:
            offsets = self.reading.fetcher.processed()
        self._answer(effect.then, offsets)

    def fail(self, error: Exception) -> None:
        """The caller of poll is to know."""
        self._failures.append(error)
        self.needs_attention = True
        self.news()

    def _topics_denied(self, error: KafkaError) -> None:
        """Raise it in the next poll, as Java does; once, however often it occurs until then."""
        if str(error) not in map(str, self._failures):
            self.fail(error)

    # --- what was asked and ends --------------------------------------------------------------------------------------

    def begin(self) -> tuple[int, asyncio.Future[Any]]:
        """A token for an event, and the future that ends with it."""
        self._last_token += 1
        ending: asyncio.Future[Any] = self.tasks.loop.create_future()
        self._endings[self._last_token] = ending
        return self._last_token, ending

    def _commit_ended(self, effect: effects.CommitEnded) -> None:
        if effect.error is not None:
            self.log.write(facts.CommitFailed(self.clock_ms(), self.settings.group_id or "", str(effect.error)))
        self._end(effect.token, None, effect.error)

    def _end(self, token: Any, result: Any, error: Exception | None) -> None:
        ending = self._endings.pop(token, None)
        if ending is None or ending.done():
            return
        if error is not None:
            ending.set_exception(error)
        else:
            ending.set_result(result)

    def ask_to_end(self, event: events.UnsubscribeAsked | events.CloseAsked) -> asyncio.Future[Any]:
        """Hand in an event that ends the membership; `until_something` returns the listener calls until it is done."""
        ending: asyncio.Future[Any] = self.tasks.loop.create_future()
        self._endings[id(event)] = ending
        ending.add_done_callback(lambda _: self.news())
        self.handle(event)
        return ending

    async def commit(self, offsets: events.Offsets, until_ms: int | None, *, are_positions: bool = False) -> None:
        token, ending = self.begin()
        self.handle(events.CommitAsked(token, offsets, until_ms, are_positions))
        await ending

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: float
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        token, ending = self.begin()
        self.handle(events.CommittedAsked(token, partitions, self.clock_ms() + round(timeout_ms)))
        found: Mapping[TopicPartition, OffsetAndMetadata] = await ending
        return found

    # --- what the user's side waits for -------------------------------------------------------------------------------

    async def until_something(
        self, until_ms: float, ending: asyncio.Future[Any] | None = None
    ) -> effects.CallListener | None:
        """A listener's call to make; or None: there may be records, `ending` is done, or the time is over."""
        while True:
            if self._calls:
                return self._calls[0]
            if ending is not None and ending.done():
                return None
            if ending is None:
                self._raise_what_waits()
                if self.reading.fetcher.has_something:
                    return None
            if not await self.until_news(until_ms, lambda: self._is_there_something(ending)):
                return self._calls[0] if self._calls else None  # it may have come in the last moment

    def _is_there_something(self, ending: asyncio.Future[Any] | None) -> bool:
        if self._calls:
            return True
        if ending is not None:
            return ending.done()
        return self._is_woken or bool(self._failures) or self.reading.fetcher.has_something

    def _raise_what_waits(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")
        self.needs_attention = bool(self._failures)
        if self._failures:
            error = self._failures.popleft()
            self.needs_attention = bool(self._failures)
            raise error

    async def until_news(self, until_ms: float, is_wanted: Callable[[], bool] | None = None) -> bool:
        """Wait for an event after which `is_wanted` is true, or for any; return False when the time is over."""
        left_s = (until_ms - self.clock_ms()) / 1000
        waiter = self.tasks.loop.create_future()
        self._waiters[waiter] = is_wanted
        try:
            async with asyncio.timeout(max(left_s, 0)):  # also without time left others get their turn
                await waiter
        except TimeoutError:
            return False
        finally:
            del self._waiters[waiter]
        return True

    def news(self) -> None:
        """Wake the callers that wait in `until_news` for what is there now."""
        for waiter, is_wanted in self._waiters.items():
            if not waiter.done() and (is_wanted is None or is_wanted()):
                waiter.set_result(None)

    def wake_up(self) -> None:
        """Can be called from any thread."""
        self._is_woken = True
        self.needs_attention = True
        self.tasks.loop.call_soon_threadsafe(self.news)

    async def poll(self, until_ms: float, *, begins: bool = True) -> effects.CallListener | None:
        """Do `until_something` as a poll: it begins here, and ends with anything but a call of the listener.

        So the member knows of the end before records are taken: what is handed over stays ours until the next poll.
        """
        if begins:
            with self.reading.lock:
                self.reading.fetcher.begin_poll()
            if self.member is not None:
                self.handle(events.PollBegan())
        try:
            call = await self.until_something(until_ms)
        except BaseException:
            self.end_poll()
            raise
        if call is None:
            self.end_poll()
        return call

    def end_poll(self) -> None:
        if self.member is not None and not self.tasks.is_closed:
            self.handle(events.PollEnded())

    def _something_was_read(self) -> None:
        if not self.tasks.is_closed:
            self.watch.look_again()
            self.news()

    async def close(self) -> None:
        """Cancel everything that is under way; no more requests are sent."""
        await self.tasks.close()
        for ending in self._endings.values():
            if not ending.done():
                ending.set_exception(CoterieError("the consumer was closed before this was done"))
                ending.exception()  # a caller that still waits gets it; asyncio must not warn if there is none
        self._endings.clear()
        self.news()
        await self.cluster.close()
