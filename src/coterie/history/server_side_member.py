"""Design 2, the member (semantics 13.2): it registers, and its coordinator sends what to read. It watches nothing.

Its node under `ids` is ephemeral, so its session shows that it is alive. It reads the coordinator's address from
ZooKeeper whenever it has no connection, and sends commits to the coordinator with its generation. The messages between
the two are here as well; on a real connection each is one line of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.errors import MalformedError
from coterie.history.design_types import (
    ANY_SESSION,
    CommitDue,
    Connect,
    Connected,
    Create,
    Disconnected,
    Effects,
    Get,
    MessageReceived,
    Offsets,
    Operation,
    Partition,
    Paths,
    SendMessage,
    SessionBegan,
    SessionEnded,
    SetTimer,
    StartReading,
    Stopped,
    StopReading,
    TimerFired,
    ZkRequest,
    ZkResponse,
    read_broker,
    write_topics,
)

# Design 2: what coordinator and members say to each other, and the line of JSON each is on a real connection.

NO_GENERATION = 0


@dataclass(frozen=True, slots=True)
class MemberHello:
    """A member joins, or has found its coordinator again. `generation` is the one in which it reads, if it does."""

    group_id: str
    member_id: str
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class StopReadingRequest:
    """The coordinator begins a rebalance and asks a member to stop reading."""

    generation: int


@dataclass(frozen=True, slots=True)
class ReadingStopped:
    generation: int
    positions: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StartReadingRequest:
    """The coordinator asks a member to read these partitions in this generation."""

    generation: int
    offsets: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitRequest:
    generation: int
    positions: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """The generation of the commit is over, or the member does not own the partitions in it."""

    generation: int


Message = MemberHello | StopReadingRequest | ReadingStopped | StartReadingRequest | CommitRequest | CommitRefused
_KINDS: Mapping[str, type[Any]] = {
    kind.__name__: kind
    for kind in (MemberHello, StopReadingRequest, ReadingStopped, StartReadingRequest, CommitRequest, CommitRefused)
}
_OFFSETS = ("positions", "offsets")


def write_message(message: Message) -> bytes:
    fields = {name: getattr(message, name) for name in message.__slots__}
    for name in _OFFSETS:
        if name in fields:
            fields[name] = [[topic, number, at] for (topic, number), at in sorted(fields[name].items())]
    return json.dumps({"kind": type(message).__name__, **fields}).encode() + b"\n"


def read_message(line: bytes) -> Message:
    try:
        fields = json.loads(line)
        kind = _KINDS[fields.pop("kind")]
        for name in _OFFSETS:
            if name in fields:
                fields[name] = {(topic, number): at for topic, number, at in fields[name]}
        message: Message = kind(**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise MalformedError(f"not a message between a member and its coordinator: {line[:80]!r} ({problem})") from None
    return message


FIND, FIND_MS = "find the coordinator", 200


class ServerSideMember:
    def __init__(self, group_id: str, member_id: str, subscribed: Sequence[str]) -> None:
        self.member_id = member_id
        self.generation = NO_GENERATION
        self.reads: frozenset[Partition] = frozenset()
        self._group_id = group_id
        self._paths = Paths(group_id)
        self._subscribed = subscribed
        self._session = ANY_SESSION
        self._is_connected = self._awaits_address = False
        self._stops_for: StopReadingRequest | CommitRefused | SessionBegan | None = None
        """The reason why reading is being stopped, which decides what follows."""
        self._starts_next: StartReadingRequest | None = None
        """The assignment that came while reading was being stopped: the coordinator does not wait for all members."""
        self._on: Mapping[type, Callable[[Any, int], Effects]] = {
            SessionBegan: self._session_began,
            SessionEnded: self._session_ended,
            ZkResponse: self._answered,
            Connected: self._connected,
            Disconnected: self._disconnected,
            MessageReceived: self._received,
            Stopped: self._stopped,
            CommitDue: self._commit_due,
            TimerFired: self._timer_fired,
        }
        self._on_message: Mapping[type, Callable[[Any], Effects]] = {
            StopReadingRequest: self._stop,
            StartReadingRequest: self._start,
            CommitRefused: self._stop,
        }

    def handle(self, event: Any, now_ms: int) -> Effects:
        return self._on[type(event)](event, now_ms)

    # --- session and coordinator --------------------------------------------------------------------------------------

    def _session_began(self, event: SessionBegan, now_ms: int) -> Effects:
        self._session = event.number
        self._starts_next = None
        if self.reads:  # since an earlier session: another member has it by now
            is_stopping, self._stops_for = self._stops_for is not None, event
            return [] if is_stopping else [StopReading()]
        self.generation = NO_GENERATION
        return self._register(now_ms)

    def _session_ended(self, _event: SessionEnded, _now_ms: int) -> Effects:
        """Read on until the next session, or until the coordinator says stop: commits are fenced by generation."""
        self._session = ANY_SESSION
        return []

    def _register(self, now_ms: int) -> Effects:
        create = Create(self._paths.member(self.member_id), write_topics(self._subscribed))
        return [self._request(create), *self._find_coordinator(now_ms)]

    def _request(self, operation: Operation) -> ZkRequest:
        return ZkRequest(operation, self._session)

    def _find_coordinator(self, _now_ms: int) -> Effects:
        if self._is_connected:
            return [SendMessage(MemberHello(self._group_id, self.member_id, self.generation))]
        if self._awaits_address:
            return []
        self._awaits_address = True
        return [self._request(Get(self._paths.coordinator))]

    def _timer_fired(self, _event: TimerFired, now_ms: int) -> Effects:
        return [] if self._is_connected else self._find_coordinator(now_ms)

    def _answered(self, event: ZkResponse, now_ms: int) -> Effects:
        if event.request.session != self._session:
            self._awaits_address = False
            return [SetTimer(FIND, now_ms + FIND_MS)]
        if isinstance(event.request.operation, Create):
            return [event.request] if event.error is not None else []
        self._awaits_address = False
        if event.value is None:  # or the response was lost
            return [SetTimer(FIND, now_ms + FIND_MS)]
        return [Connect(read_broker(event.value.data))]

    def _connected(self, _event: Connected, now_ms: int) -> Effects:
        self._is_connected = True
        return self._find_coordinator(now_ms)

    def _disconnected(self, _event: Disconnected, now_ms: int) -> Effects:
        """Read on, and look for the coordinator."""
        self._is_connected = False
        return [SetTimer(FIND, now_ms + FIND_MS)]

    # --- messages from the coordinator --------------------------------------------------------------------------------

    def _received(self, event: MessageReceived, _now_ms: int) -> Effects:
        return self._on_message[type(event.message)](event.message)

    def _stop(self, message: StopReadingRequest | CommitRefused) -> Effects:
        self._starts_next = None
        if self._stops_for is not None:
            self._stops_for = message
            return []
        self._stops_for = message
        return [StopReading()]

    def _start(self, message: StartReadingRequest) -> Effects:
        stops_for = self._stops_for
        if isinstance(stops_for, StopReadingRequest) and message.generation > stops_for.generation:
            self._starts_next = message
            return []
        if stops_for is not None or message.generation < self.generation:
            return []  # it belongs to an earlier rebalance
        self.generation = message.generation
        self.reads = frozenset(message.offsets)
        return [StartReading(message.offsets)]

    def _stopped(self, event: Stopped, now_ms: int) -> Effects:
        why, self._stops_for = self._stops_for, None
        self.reads = frozenset()
        start, self._starts_next = self._starts_next, None
        if start is not None:
            return self._start(start)
        if isinstance(why, StopReadingRequest):
            return [SendMessage(ReadingStopped(self.generation, event.positions))] if self._is_connected else []
        self.generation = NO_GENERATION  # what it has read since is not committed
        if isinstance(why, SessionBegan):
            return self._register(now_ms)
        return self._find_coordinator(now_ms)

    def _commit_due(self, event: CommitDue, _now_ms: int) -> Effects:
        if not event.positions or not self._is_connected:
            return []
        return [SendMessage(CommitRequest(self.generation, event.positions))]
