"""What happened, as the text grid of `coterie.stories`, and as one number that is the same for the same seed."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from struct import pack
from typing import Any

from coterie.errors import ErrorCode
from coterie.facts import Fact, GroupLoaded, MemberExpired, RebalanceStarted
from coterie.protocol.apis import by_key, heartbeat
from coterie.sim.client import Asked, Client
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.machine import BrokerLink, Machine
from coterie.sim.observer import Observer
from coterie.sim.world import World
from coterie.stories.grid import StoryStep, in_words

__all__ = ["StoryObserver"]

_TOLD = {
    "JoinGroup": "join",
    "SyncGroup": "sync",
    "LeaveGroup": "leave",
    "OffsetCommit": "commit",
    "OffsetFetch": "offsets?",
    "DeleteGroups": "delete group",
}
_SAYS = {row.key: _TOLD[row.name] for row in by_key.values() if row.name in _TOLD}
_KEPT = 4_000
_WIDEST = 100


class StoryObserver(Observer):
    name = "story"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.steps: deque[StoryStep] = deque(maxlen=_KEPT)
        self._schedule = world.schedule
        self._hash = blake2b(digest_size=12)
        self._unhashed: list[bytes] = []
        self._times: list[int] = []
        """Of what is not hashed yet."""

    @property
    def fingerprint(self) -> str:
        """Of every byte that arrived anywhere, with its time, and of all that befell the world."""
        self._hash_now()
        return self._hash.hexdigest()

    def _note(self, who: bytes, what: bytes) -> None:
        self._times.append(self._schedule.now_ms)
        self._unhashed += (who, what)

    def sample(self) -> None:
        self._hash_now()

    def _hash_now(self) -> None:
        """Many at once: this is about every packet."""
        self._hash.update(pack(f">{len(self._times)}q", *self._times))
        self._hash.update(b"".join(self._unhashed))
        self._times.clear()
        self._unhashed.clear()

    def _row(self, who: str, says: str, hears: str, group_id: str = "") -> None:
        group = self.world.group(group_id) if group_id else None
        state = str(group.state) if group is not None else "Dead" if group_id else ""
        self.steps.append(StoryStep(self.world.schedule.now_ms, who, says, hears, state))

    def request_arrived(self, _machine: Machine, link: BrokerLink, frame: bytes) -> None:
        client = link.wire.client
        self._note(client.tag, frame)
        says = _SAYS.get(frame[1])
        if says is not None:
            self._row(client.name, says, "-", client.group_id)

    def bytes_arrived(self, client: Client, data: bytes) -> None:
        self._note(client.tag, data)

    def answered(self, client: Client, asked: Asked, answer: Any) -> None:
        module = asked.module
        if module is heartbeat:
            if answer is not ErrorCode.NONE:
                self._row(client.name, "", f"beat: {answer.name}", client.group_id)
        elif module.API.key in _SAYS:
            first = answer[0] if isinstance(answer, list) else answer
            said = in_words(first[1] if isinstance(first, tuple) else first)
            self._row("", "", f"{client.name}: {said}"[:_WIDEST], client.group_id)

    def timed_out(self, client: Client, api: str) -> None:
        self._row(client.name, "", f"no answer to {api}", client.group_id)

    def tell(self, machine: Machine, fact: Fact) -> None:
        if isinstance(fact, RebalanceStarted):
            self._row(machine.name, f"(rebalance: {fact.cause}, {fact.member_id or 'nobody'})", "", fact.group_id)
        elif isinstance(fact, MemberExpired):
            self._row(machine.name, f"(expires {fact.member_id})", "", fact.group_id)
        elif isinstance(fact, GroupLoaded):
            self._row(
                machine.name, f"(loads generation {fact.generation_id}, {len(fact.members)} members)", "", fact.group_id
            )

    def came(self, consumer: ConsumerProcess) -> None:
        self.happened(consumer.name, "comes")

    def went(self, consumer: ConsumerProcess, how: str) -> None:
        self.happened(consumer.name, how)

    def broker_began(self, machine: Machine) -> None:
        self.happened(machine.name, "serves")

    def broker_ended(self, machine: Machine) -> None:
        self.happened(machine.name, "is gone")

    def happened(self, who: str, what: str) -> None:
        self._note(who.encode(), what.encode())
        self._row(who, f"({what})", "")
