"""Design 2, the member (semantics 13.2): it says that it is there, and is told what to read. It watches nothing.

Its node under ids is ephemeral, so its session is its sign of life. Who the coordinator is stands in one node, read
when there is no connection. Whatever it commits goes to the coordinator, with its generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coterie.history.design_types import (
    Arm,
    CommitDue,
    Connect,
    Connected,
    Effects,
    Heard,
    Hung,
    Partition,
    Rang,
    Say,
    StartReading,
    Stopped,
    StopReading,
)
from coterie.history.paths import Paths, read_broker, write_topics
from coterie.history.registry import (
    ANY_SESSION,
    Answered,
    Ask,
    Create,
    Get,
    Operation,
    SessionBegan,
    SessionEnded,
)
from coterie.history.server_messages import (
    NO_GENERATION,
    Commit,
    HasStopped,
    Hello,
    Refused,
    Start,
    Stop,
)

__all__ = ["ToldMember"]

LOOK, LOOK_MS = "look for the coordinator", 200


class ToldMember:
    def __init__(self, group_id: str, member_id: str, subscribed: Sequence[str]) -> None:
        self.member_id = member_id
        self.generation = NO_GENERATION
        self.reads: frozenset[Partition] = frozenset()
        self._group_id = group_id
        self._paths = Paths(group_id)
        self._subscribed = subscribed
        self._session = ANY_SESSION
        self._is_connected = self._is_looking = False
        self._stops_for: Stop | Refused | SessionBegan | None = None
        """Why reading is being stopped: what to do when it has."""
        self._on: Mapping[type, Callable[[Any, int], Effects]] = {
            SessionBegan: self._session_began,
            SessionEnded: self._session_ended,
            Answered: self._answered,
            Connected: self._connected,
            Hung: self._hung,
            Heard: self._heard,
            Stopped: self._stopped,
            CommitDue: self._commit_due,
            Rang: self._rang,
        }
        self._told: Mapping[type, Callable[[Any], Effects]] = {
            Stop: self._stop,
            Start: self._start,
            Refused: self._stop,
        }

    def handle(self, event: Any, now_ms: int) -> Effects:
        return self._on[type(event)](event, now_ms)

    # --- being there --------------------------------------------------------------------------------------------------

    def _session_began(self, event: SessionBegan, now_ms: int) -> Effects:
        self._session = event.number
        if self.reads:  # of an earlier session: somebody else has it by now
            is_stopping, self._stops_for = self._stops_for is not None, event
            return [] if is_stopping else [StopReading()]
        self.generation = NO_GENERATION
        return self._register(now_ms)

    def _session_ended(self, _event: SessionEnded, _now_ms: int) -> Effects:
        """It goes on until it has a new one, or is told: what it commits meanwhile is judged by its generation."""
        self._session = ANY_SESSION
        return []

    def _register(self, now_ms: int) -> Effects:
        create = Create(self._paths.member(self.member_id), write_topics(self._subscribed))
        return [self._ask(create), *self._look(now_ms)]

    def _ask(self, operation: Operation) -> Ask:
        return Ask(operation, self._session)

    def _look(self, _now_ms: int) -> Effects:
        if self._is_connected:
            return [Say(Hello(self._group_id, self.member_id, self.generation))]
        if self._is_looking:
            return []
        self._is_looking = True
        return [self._ask(Get(self._paths.coordinator))]

    def _rang(self, _event: Rang, now_ms: int) -> Effects:
        return [] if self._is_connected else self._look(now_ms)

    def _answered(self, event: Answered, now_ms: int) -> Effects:
        if event.ask.session != self._session:
            self._is_looking = False
            return [Arm(LOOK, now_ms + LOOK_MS)]
        if isinstance(event.ask.operation, Create):
            return [event.ask] if event.trouble is not None else []
        self._is_looking = False
        if event.value is None:  # also if the answer was lost
            return [Arm(LOOK, now_ms + LOOK_MS)]
        return [Connect(read_broker(event.value.data))]

    def _connected(self, _event: Connected, now_ms: int) -> Effects:
        self._is_connected = True
        return self._look(now_ms)

    def _hung(self, _event: Hung, now_ms: int) -> Effects:
        """What it reads it goes on reading."""
        self._is_connected = False
        return [Arm(LOOK, now_ms + LOOK_MS)]

    # --- being told ---------------------------------------------------------------------------------------------------

    def _heard(self, event: Heard, _now_ms: int) -> Effects:
        return self._told[type(event.message)](event.message)

    def _stop(self, message: Stop | Refused) -> Effects:
        if self._stops_for is not None:
            self._stops_for = message
            return []
        self._stops_for = message
        return [StopReading()]

    def _start(self, message: Start) -> Effects:
        if self._stops_for is not None or message.generation < self.generation:
            return []  # of a rebalance before: another one is on
        self.generation = message.generation
        self.reads = frozenset(message.offsets)
        return [StartReading(message.offsets)]

    def _stopped(self, event: Stopped, now_ms: int) -> Effects:
        why, self._stops_for = self._stops_for, None
        self.reads = frozenset()
        if isinstance(why, Stop):
            return [Say(HasStopped(self.generation, event.positions))] if self._is_connected else []
        self.generation = NO_GENERATION  # what it has read since is not counted
        if isinstance(why, SessionBegan):
            return self._register(now_ms)
        return self._look(now_ms)

    def _commit_due(self, event: CommitDue, _now_ms: int) -> Effects:
        if not event.positions or not self._is_connected:
            return []
        return [Say(Commit(self.generation, event.positions))]
