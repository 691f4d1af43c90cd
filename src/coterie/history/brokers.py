"""What a broker says to ZooKeeper: that it is there; and under design 2, which groups it coordinates.

A group goes to a broker by hash: of all that are there, the one whose number and the group's name give the lowest
checksum. When a broker goes, its groups are spread over the others and no other group moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

from coterie.assignors import Assignor, Topic
from coterie.history.design_types import Effects, HangUp, Heard, Hung, Rang
from coterie.history.paths import BROKERS
from coterie.history.registry import (
    ANY_SESSION,
    Answered,
    Ask,
    Changed,
    Children,
    Create,
    SessionBegan,
    SessionEnded,
)
from coterie.history.server_messages import Hello
from coterie.history.server_side import Asked, Coordinator

__all__ = ["BrokerSlot", "coordinator_of"]


def coordinator_of(group_id: str, brokers: Iterable[str]) -> str:
    return min(brokers, key=lambda broker: (crc32(f"{group_id}/{broker}".encode()), broker))


class BrokerSlot:
    """`groups` empty: it only says that it is there, as under design 1, where nobody coordinates."""

    def __init__(
        self,
        broker_id: str,
        address: str,
        groups: Sequence[str] = (),
        topics: Mapping[str, Topic] | None = None,
        assignor: Assignor | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.coordinators: dict[str, Coordinator] = {}
        self._groups_of: dict[str, str] = {}
        """Which group somebody who speaks to us is in."""
        self._address = address
        self._groups = groups
        self._topics = topics or {}
        self._assignor = assignor
        self._session = ANY_SESSION
        self._tenures = 0
        """So many coordinators it has been."""
        self._on: Mapping[type, Callable[[Any, int], Effects]] = {
            SessionBegan: self._session_began,
            SessionEnded: self._session_ended,
            Answered: self._answered,
            Changed: self._changed,
            Heard: self._heard,
            Hung: self._to_all,
            Rang: self._to_all,
        }

    def handle(self, event: Any, now_ms: int) -> Effects:
        return self._on[type(event)](event, now_ms)

    def _session_began(self, event: SessionBegan, _now_ms: int) -> Effects:
        self._session = event.number
        return [Ask(Create(f"{BROKERS}/{self.broker_id}", self._address.encode()), self._session)]

    def _session_ended(self, _event: SessionEnded, _now_ms: int) -> Effects:
        """Whatever it coordinated, somebody else does now."""
        effects = [effect for one in self.coordinators.values() for effect in one.end() if isinstance(effect, HangUp)]
        self._session = ANY_SESSION
        self.coordinators.clear()
        return effects

    def _answered(self, event: Answered, now_ms: int) -> Effects:
        if event.ask.session != self._session:
            return []
        if event.trouble is not None:
            return [event.ask]  # as long as there is a session, everything can be asked twice
        about = event.ask.about
        if isinstance(about, Asked):
            one = self.coordinators.get(about.group_id)
            if one is None or one.tenure != about.tenure:
                return []
            return one.answered(about, event.value, now_ms)
        if isinstance(event.ask.operation, Create):
            return self._look() if self._groups else []
        return self._looked(event.value)

    def _look(self) -> Effects:
        return [Ask(Children(BROKERS), self._session)]

    def _looked(self, brokers: list[str]) -> Effects:
        effects: Effects = []
        for group_id in self._groups:
            is_ours = bool(brokers) and coordinator_of(group_id, brokers) == self.broker_id
            one = self.coordinators.get(group_id)
            if is_ours and one is None:
                assert self._assignor is not None
                self._tenures += 1
                one = Coordinator(group_id, self._address, self._session, self._topics, self._assignor, self._tenures)
                self.coordinators[group_id] = one
                effects += one.begin()
            elif not is_ours and one is not None:
                del self.coordinators[group_id]
                effects += one.end()
        return effects

    def _changed(self, event: Changed, now_ms: int) -> Effects:
        return self._look() if event.path == BROKERS else self._to_all(event, now_ms)

    def _heard(self, event: Heard, now_ms: int) -> Effects:
        if isinstance(event.message, Hello):
            self._groups_of[event.peer] = event.message.group_id
        one = self.coordinators.get(self._groups_of.get(event.peer, ""))
        return one.handle(event, now_ms) if one is not None else [HangUp(event.peer)]

    def _to_all(self, event: Any, now_ms: int) -> Effects:
        return [effect for one in list(self.coordinators.values()) for effect in one.handle(event, now_ms)]
