"""Designs 1 and 2 on virtual time: their machines, a model of ZooKeeper, lines between members and coordinators.

Does for the machines what `loop.py`, `lines.py` and `kazoo_registry.py` do in the real world. Nobody reads records
here: a reader only says what it was told to read, and how far it would have come.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coterie.assignors import Assignor, Range, Topic
from coterie.history.brokers import BrokerSlot
from coterie.history.design_types import (
    Arm,
    CommitDue,
    Connect,
    Connected,
    HangUp,
    Heard,
    Hung,
    Machine,
    Partition,
    Rang,
    Say,
    StartReading,
    Stopped,
    StopReading,
)
from coterie.history.ensemble import Ensemble
from coterie.history.registry import Ask
from coterie.history.server_messages import Commit
from coterie.history.told_member import ToldMember
from coterie.history.zookeeper_watchers import WatchingConsumer, WatchingSettings
from coterie.sim.rng import Rng
from coterie.sim.schedule import Schedule

__all__ = ["GROUP", "SESSION_MS", "TOPIC", "Actor", "ModelWorld"]

GROUP, TOPIC = "g", "t"
SESSION_MS = 6_000
LINE_MS = 1
RECORD_MS = 100
"""Every partition gets a record so often."""


class Actor:
    """A process: a machine, its session, and for a member its connection to a coordinator."""

    def __init__(self, world: ModelWorld, name: str, machine: Machine) -> None:
        self.name = name
        self.machine: Any = machine
        self.positions: dict[Partition, int] = {}
        self.heard: list[Any] = []
        self.zookeeper = world.ensemble.client(name, self.tell)
        self.peer: Actor | None = None
        """Whom a member is connected to."""
        self.is_paused = self.is_cut = False
        self._world = world
        self._held: deque[Callable[[], None]] = deque()
        self._armed: dict[str, int] = {}
        self._perform: Mapping[type, Callable[[Any], None]] = {
            Ask: self.zookeeper.ask,
            Arm: self._arm,
            StartReading: self._start,
            StopReading: self._stop,
            Connect: self._connect,
            Say: self._say,
            HangUp: lambda effect: world.hang_up(world.actors[effect.to]),
        }

    @property
    def is_alive(self) -> bool:
        return self.zookeeper.is_alive

    def tell(self, event: Any) -> None:
        if self.is_paused:
            self._held.append(lambda: self.tell(event))
            return
        self.heard.append(event)
        for effect in self.machine.handle(event, self._world.schedule.now_ms):
            self._perform[type(effect)](effect)
        self._world.noted(self)

    # --- what befalls it ----------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Nobody is home: what comes waits, and its session is not kept alive."""
        if not self.is_paused:
            self.is_paused = True
            self.zookeeper.cut()
            self._world.noted(self)

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self._let_through()
            self.zookeeper.repair()
            self._world.noted(self)

    def cut(self) -> None:
        """From everybody who says who is in the group. The records it goes on reading, if it was told to."""
        if not self.is_cut:
            self.is_cut = True
            self.zookeeper.cut()

    def repair(self) -> None:
        if self.is_cut:
            self.is_cut = False
            self._let_through()
            self.zookeeper.repair()

    def _let_through(self) -> None:
        held, self._held = self._held, deque()
        for act in held:
            act()

    def hears(self, event: Any, sender: Actor) -> None:
        """On the line to its coordinator, or from a member."""
        away = next((one for one in (self, sender) if one.is_cut), None)
        if away is not None:
            away._held.append(lambda: self.hears(event, sender))  # noqa: SLF001  one of us
        elif self.is_alive:
            self.tell(event)

    # --- what its machine wants ---------------------------------------------------------------------------------------

    def commit(self, positions: Mapping[Partition, int] | None = None) -> None:
        """So far it has read, unless said otherwise."""
        if self.is_paused or not self.is_alive or not (positions or self.positions):
            return
        so_far = self._world.schedule.now_ms // RECORD_MS
        self.positions = {**dict.fromkeys(self.positions, so_far), **(positions or {})}
        self.tell(CommitDue(dict(positions or self.positions)))

    def _arm(self, effect: Arm) -> None:
        self._armed[effect.key] = effect.at_ms
        self._world.schedule.at(effect.at_ms, self._ring, (effect.key, effect.at_ms))

    def _ring(self, about: tuple[str, int]) -> None:
        if self.is_alive and self._armed.get(about[0]) == about[1]:
            self.tell(Rang(about[0]))

    def _start(self, effect: StartReading) -> None:
        self.positions = dict(effect.offsets)

    def _stop(self, _effect: StopReading) -> None:
        positions, self.positions = self.positions, {}
        self._world.schedule.after(LINE_MS, self.tell, Stopped(positions))

    def _connect(self, effect: Connect) -> None:
        found = self._world.actors.get(effect.address)
        self.peer = found if found is not None and found.is_alive else None
        answer = Connected() if self.peer is not None else Hung()
        self._world.schedule.after(LINE_MS, lambda event: self.hears(event, found or self), answer)

    def _say(self, effect: Say) -> None:
        """A broker names whom it speaks to; a member has one to speak to."""
        to = self._world.actors[effect.to] if effect.to else self.peer
        if not isinstance(effect.message, Commit):
            self._world.said += 1
        if to is not None and (not effect.to or to.peer is self):
            heard = Heard(effect.message, "" if effect.to else self.name)
            self._world.schedule.after(LINE_MS, lambda event: to.hears(event, self), heard)


class ModelWorld:
    def __init__(self, seed: int = 1, *, partitions: int = 6, lags_ms: Sequence[int] = (5, 20)) -> None:
        self.schedule = Schedule()
        self.ensemble = Ensemble(
            self.schedule, Rng(seed).of("ensemble"), session_timeout_ms=SESSION_MS, lags_ms=lags_ms
        )
        self.topics = {TOPIC: Topic(partitions)}
        self.partitions = [(TOPIC, number) for number in range(partitions)]
        self.actors: dict[str, Actor] = {}
        self.said = 0
        """Messages between members and coordinators, but for commits."""
        self.noted: Callable[[Actor], None] = lambda _actor: None
        """Called whenever what somebody reads may have changed."""
        self._gone: Counter[str] = Counter()
        """Asked by those who are not there any more, and whose names others have now."""

    # --- who is there -------------------------------------------------------------------------------------------------

    def add(self, name: str, machine: Machine) -> Actor:
        if name in self.actors:
            self._gone += self.actors[name].zookeeper.counts
        actor = self.actors[name] = Actor(self, name, machine)
        actor.zookeeper.connect()
        return actor

    def watching(
        self, name: str, *, assignor: Assignor | None = None, settings: WatchingSettings | None = None
    ) -> Actor:
        return self.add(name, WatchingConsumer(GROUP, name, [TOPIC], self.topics, assignor or Range(), settings))

    def told(self, name: str) -> Actor:
        return self.add(name, ToldMember(GROUP, name, [TOPIC]))

    def broker(self, number: str, *, coordinates: bool = False, assignor: Assignor | None = None) -> Actor:
        groups = [GROUP] if coordinates else []
        name = f"b{number}"
        return self.add(name, BrokerSlot(number, name, groups, self.topics, assignor or Range()))

    def run(self, ms: int) -> None:
        self.schedule.run(self.schedule.now_ms + ms)

    def crash(self, actor: Actor) -> None:
        actor.zookeeper.vanish()
        self._hangs_up(actor)

    def close(self, actor: Actor) -> None:
        """In order: what it has read is committed, and its session ends at once."""
        actor.commit()
        actor.zookeeper.close()
        self._hangs_up(actor)

    def _hangs_up(self, actor: Actor) -> None:
        self.noted(actor)
        self.hang_up(actor)
        for other in self.actors.values():
            if other.peer is actor:
                self.hang_up(other)

    def hang_up(self, member: Actor) -> None:
        peer = member.peer
        if peer is not None:
            member.peer = None
            self.schedule.after(LINE_MS, lambda event: peer.hears(event, member), Hung(member.name))
            self.schedule.after(LINE_MS, lambda event: member.hears(event, peer), Hung())

    # --- what there is to see -----------------------------------------------------------------------------------------

    @property
    def members(self) -> list[Actor]:
        return [one for one in self.actors.values() if one.is_alive and hasattr(one.machine, "reads")]

    def owners(self) -> dict[Partition, list[str]]:
        """Who reads what."""
        found: dict[Partition, list[str]] = {}
        for actor in self.members:
            for one in actor.machine.reads:
                found.setdefault(one, []).append(actor.name)
        return found

    def is_shared_out(self) -> bool:
        owners = self.owners()
        return sorted(owners) == self.partitions and all(len(names) == 1 for names in owners.values())

    def counts(self) -> Counter[str]:
        """Of all together: what was asked of ZooKeeper, and what it told."""
        return sum((actor.zookeeper.counts for actor in self.actors.values()), self._gone)
