"""One member of a KIP-848 group in a test: what it asks is answered by hand, all else at once. Nothing sleeps.

seat = Seat().joins("t")
seat.answer(epoch=2, t=[0, 1])      # the coordinator's answer to its heartbeat
assert seat.calls == [("assigned", tps("t:0-1"))]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from client.member.harness import GROUP
from coterie.assignors import Topic
from coterie.client.member import ConsumerMembership, MemberSettings, effects, events
from coterie.client.member.consumer_protocol.states import ConsumerMemberState
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import ConnectionLostError, ErrorCode
from coterie.facts import Emit, Fact
from coterie.protocol.apis.consumer_group_heartbeat import Assignment, Request, Response, TopicPartitions
from coterie.protocol.messages import OffsetCommit, OffsetFetch, OffsetsCommitted

INTERVAL_MS = 5_000
ID = "id-1"
TOPICS = {name: UUID(int=number) for number, name in enumerate(("t", "u", "v"), 1)}


class Seat:
    def __init__(self, **settings: Any) -> None:
        given = {"client_id": "a", "max_poll_interval_ms": 60_000, "enable_auto_commit": False, **settings}
        self.member = ConsumerMembership(MemberSettings(GROUP, **given))
        self.now_ms = 1_000
        self.topics = {"t": Topic(4), "u": Topic(2)}
        """What the metadata has."""
        self.lookup_error: Exception | None = None
        self.sent: deque[effects.SendRequest] = deque()
        """Requests that are not answered yet."""
        self.calls: list[tuple[str, list[TopicPartition]]] = []
        self.log: list[str] = []
        """Listener calls, commits and heartbeats, in their order."""
        self.holds_listener = False
        self.waiting_call: effects.CallListener | None = None
        self.listener: Callable[[str], None] | None = None
        self.positions: dict[TopicPartition, int] = {}
        self.assigned: list[TopicPartition] = []
        self.held: list[TopicPartition] = []
        self.watched: Any = ()
        self.errors: list[Exception] = []
        self.commits: dict[Any, Exception | None] = {}
        self.fetched: dict[Any, effects.CommittedEnded] = {}
        self.ended: list[effects.Ended] = []
        self.facts: list[Fact] = []
        self.timers: dict[str, tuple[int, Any]] = {}
        self._events: deque[Any] = deque()

    @property
    def state(self) -> ConsumerMemberState:
        return self.member.state

    # --- what the user does -------------------------------------------------------------------------------------------

    def subscribes(self, *topics: str, **how: Any) -> Seat:
        return self.handle(events.Subscribed(topics, fresh_id=ID, **how))

    def joins(self, *topics: str, **how: Any) -> Seat:
        return self.subscribes(*topics, **how).begins_poll()

    def begins_poll(self) -> Seat:
        return self.handle(events.PollBegan())

    def ends_poll(self) -> Seat:
        return self.handle(events.PollEnded())

    def closes(self, leave: bool | None = None, within_ms: int = 30_000) -> Seat:
        return self.handle(events.CloseAsked(self.now_ms + within_ms, leave))

    def commits_offsets(self, offsets: Mapping[TopicPartition, int], within_ms: int | None = 10_000) -> Seat:
        given = {one: OffsetAndMetadata(at) for one, at in offsets.items()}
        until_ms = None if within_ms is None else self.now_ms + within_ms
        return self.handle(events.CommitAsked("commit", given, until_ms))

    def listener_returns(self, error: Exception | None = None) -> Seat:
        call, self.waiting_call = self.waiting_call, None
        assert call is not None, "the listener is not being called"
        call.then.error = error
        return self.handle(call.then)

    # --- what the coordinator does ------------------------------------------------------------------------------------

    @property
    def heartbeat(self) -> Request:
        """The one that waits for its answer."""
        request = self.sent[0].request
        assert isinstance(request, Request), f"{request} is no heartbeat"
        return request

    def answer(self, epoch: int, interval_ms: int = INTERVAL_MS, **topics: Sequence[int]) -> Seat:
        """Answer the heartbeat with an assignment."""
        return self.assign(epoch, topics, interval_ms)

    def assign(self, epoch: int, topics: Mapping[str, Sequence[int]], interval_ms: int = INTERVAL_MS) -> Seat:
        listed = [TopicPartitions(topic_id=TOPICS[name], partitions=numbers) for name, numbers in topics.items()]
        return self._reply(self._response(epoch, interval_ms, Assignment(topic_partitions=listed)))

    def keep(self, epoch: int, interval_ms: int = INTERVAL_MS) -> Seat:
        """Answer the heartbeat; the assignment is as before."""
        return self._reply(self._response(epoch, interval_ms, None))

    def _response(self, epoch: int, interval_ms: int, assignment: Assignment | None) -> Response:
        member_id = self.heartbeat.member_id
        return Response(
            member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms, assignment=assignment
        )

    def refuse(self, error: ErrorCode, message: str | None = None) -> Seat:
        assert self.heartbeat
        return self._reply(Response(error=error, message=message))

    def commit_is(self, error: ErrorCode = ErrorCode.NONE) -> Seat:
        request = self.sent[0].request
        assert isinstance(request, OffsetCommit)
        return self._reply(OffsetsCommitted(request.partitions, [error for _ in request.partitions]))

    def lose(self, error: Exception | None = None) -> Seat:
        """No answer comes: the connection is lost."""
        send = self.sent.popleft()
        send.then.error = error or ConnectionLostError("the connection was lost")
        return self.handle(send.then)

    def _reply(self, reply: Any) -> Seat:
        send = self.sent.popleft()
        send.then.reply = reply
        return self.handle(send.then)

    def stable(self, epoch: int = 2, **topics: Sequence[int]) -> Seat:
        """A member that has these partitions and has acknowledged them."""
        self.joins(*(topics or {"t": ()}))
        self.assign(epoch, topics).keep(epoch)
        assert self.state == "Stable" and not self.sent, self.member.explain(self.now_ms)
        self.log.clear()
        self.calls.clear()
        return self

    # --- driving ------------------------------------------------------------------------------------------------------

    def handle(self, event: Any) -> Seat:
        self._events.append(event)
        if len(self._events) > 1:
            return self
        while self._events:
            for effect in self.member.handle(self._events[0], self.now_ms):
                self._perform(effect)
            self._events.popleft()
        return self

    def advance(self, ms: int) -> Seat:
        until_ms = self.now_ms + ms
        while due := sorted((at_ms, key) for key, (at_ms, _) in self.timers.items() if at_ms <= until_ms):
            at_ms, key = due[0]
            self.now_ms = max(at_ms, self.now_ms)
            self.handle(self.timers.pop(key)[1])
        self.now_ms = until_ms
        return self

    def _perform(self, effect: Any) -> None:  # noqa: PLR0915  one case for each effect
        match effect:
            case effects.SendRequest(_, request):
                self.sent.append(effect)
                self.log.append(_named(request))
            case effects.FindCoordinator(then):
                then.error = self.lookup_error
                then.reply = None if self.lookup_error else "node"
                self.handle(then)
            case effects.RefreshMetadata(_, then):
                then.reply = dict(self.topics)
                self.handle(then)
            case effects.ResolveTopicIds(ids, then):
                then.reply = {TOPICS[name]: name for name in self.topics if TOPICS[name] in ids}
                self.handle(then)
            case effects.StartTimer(key, at_ms, then):
                self.timers[key] = at_ms, then
            case effects.StopTimer(key):
                self.timers.pop(key, None)
            case effects.AskPositions(then):
                then.reply = {one: OffsetAndMetadata(at) for one, at in self.positions.items()}
                self.handle(then)
            case effects.CallListener(kind, partitions, then):
                assert self.member.polling or self.member.ending is not None, "the user is not here"
                assert self.waiting_call is None, "one call at a time"
                self.calls.append((kind.value, list(partitions)))
                self.log.append(kind.value)
                if self.listener is not None:
                    self.listener(kind.value)
                self.waiting_call = effect
                if not self.holds_listener:
                    self._events.append(then)
                    self.waiting_call = None
            case effects.SetAssignment(partitions):
                self.assigned = list(partitions)
            case effects.HoldPartitions(partitions):
                self.held = list(partitions)
            case effects.WatchTopics(topics):
                self.watched = topics
            case effects.CommitEnded(token, error):
                self.commits[token] = error
            case effects.CommittedEnded(token):
                self.fetched[token] = effect
            case effects.Fail(error):
                self.errors.append(error)
            case effects.Ended():
                self.ended.append(effect)
            case Emit(fact):
                self.facts.append(fact)
            case effects.Disconnect():
                pass
            case _:
                raise AssertionError(f"nobody does {effect}")


def _named(request: Any) -> str:
    if isinstance(request, Request):
        return f"heartbeat {request.member_epoch}"
    return "commit" if isinstance(request, OffsetCommit) else "fetch" if isinstance(request, OffsetFetch) else "?"


def owned(request: Request) -> dict[str, list[int]] | None:
    """What a heartbeat reports to own, by name; None: it reports nothing."""
    if request.topic_partitions is None:
        return None
    names = {topic_id: name for name, topic_id in TOPICS.items()}
    return {names[one.topic_id]: list(one.partitions) for one in request.topic_partitions if one.topic_id is not None}
