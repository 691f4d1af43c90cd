"""Machines of both old designs on the model of ZooKeeper, with readers that only say what they were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from coterie.assignors import Assignor, Range, Topic
from coterie.history.brokers import BrokerSeat
from coterie.history.ensemble import Ensemble
from coterie.history.registry import Ask
from coterie.history.told_member import ToldMember
from coterie.history.words import (
    Arm,
    CommitDue,
    Connect,
    Connected,
    HangUp,
    Heard,
    Hung,
    Partition,
    Rang,
    Say,
    StartReading,
    Stopped,
    StopReading,
)
from coterie.history.zookeeper_watchers import WatchingConsumer, WatchingSettings
from coterie.sim.dice import Dice
from coterie.sim.schedule import Schedule

SESSION_MS = 6_000


class Actor:
    def __init__(self, bench: Bench, name: str, machine: Any) -> None:
        self.name = name
        self.machine = machine
        self.bench = bench
        self.positions: dict[Partition, int] = {}
        self.heard: list[Any] = []
        self.zookeeper = bench.ensemble.client(name, self.tell)
        self.peer: Actor | None = None
        """Whom a member is connected to."""
        self._armed: dict[str, int] = {}
        self._perform: dict[type, Callable[[Any], None]] = {
            Ask: self.zookeeper.ask,
            Arm: self._arm,
            StartReading: self._start,
            StopReading: self._stop,
            Connect: self._connect,
            Say: self._say,
            HangUp: lambda effect: bench.hang_up(bench.actors[effect.to]),
        }

    def tell(self, event: Any) -> None:
        self.heard.append(event)
        for effect in self.machine.handle(event, self.bench.schedule.now_ms):
            self._perform[type(effect)](effect)

    def commit(self, positions: dict[Partition, int]) -> None:
        self.positions.update(positions)
        self.tell(CommitDue(positions))

    def _arm(self, effect: Arm) -> None:
        self._armed[effect.key] = effect.at_ms
        self.bench.schedule.at(effect.at_ms, self._ring, (effect.key, effect.at_ms))

    def _ring(self, about: tuple[str, int]) -> None:
        if self.zookeeper.is_alive and self._armed.get(about[0]) == about[1]:
            self.tell(Rang(about[0]))

    def _start(self, effect: StartReading) -> None:
        self.positions = dict(effect.offsets)

    def _stop(self, _effect: StopReading) -> None:
        positions, self.positions = self.positions, {}
        self.bench.schedule.after(1, self.tell, Stopped(positions))

    def _connect(self, effect: Connect) -> None:
        found = self.bench.actors.get(effect.address)
        self.peer = found if found is not None and found.zookeeper.is_alive else None
        self.bench.schedule.after(1, self.tell, Connected() if self.peer is not None else Hung())

    def _say(self, effect: Say) -> None:
        """A broker names whom it speaks to; a member has one to speak to."""
        to = self.bench.actors[effect.to] if effect.to else self.peer
        self.bench.said += 1
        if to is not None and (not effect.to or to.peer is self):
            self.bench.schedule.after(1, to.tell, Heard(effect.message, "" if effect.to else self.name))


class Bench:
    def __init__(self, seed: int = 1, *, partitions: int = 6, lags_ms: Sequence[int] = (5, 20)) -> None:
        self.schedule = Schedule()
        self.ensemble = Ensemble(
            self.schedule, Dice(seed).of("ensemble"), session_timeout_ms=SESSION_MS, lags_ms=lags_ms
        )
        self.topics = {"t": Topic(partitions)}
        self.partitions = [("t", number) for number in range(partitions)]
        self.actors: dict[str, Actor] = {}
        self.said = 0

    def add(self, name: str, machine: Any) -> Actor:
        actor = self.actors[name] = Actor(self, name, machine)
        actor.zookeeper.connect()
        return actor

    def watching(self, name: str, **settings: int) -> Actor:
        rules = WatchingSettings(**settings)
        return self.add(name, WatchingConsumer("g", name, ["t"], self.topics, Range(), rules))

    def told(self, name: str) -> Actor:
        return self.add(name, ToldMember("g", name, ["t"]))

    def broker(self, number: str, *, coordinates: bool = False, assignor: Assignor | None = None) -> Actor:
        groups = ["g"] if coordinates else []
        name = f"b{number}"
        return self.add(name, BrokerSeat(number, name, groups, self.topics, assignor or Range()))

    def run(self, ms: int) -> None:
        self.schedule.run(self.schedule.now_ms + ms)

    def crash(self, actor: Actor) -> None:
        actor.zookeeper.vanish()
        for other in self.actors.values():
            if other.peer is actor:
                self.hang_up(other)

    def hang_up(self, member: Actor) -> None:
        if member.peer is not None:
            self.schedule.after(1, member.peer.tell, Hung(member.name))
            member.peer = None
            self.schedule.after(1, member.tell, Hung())

    def owners(self) -> dict[Partition, list[str]]:
        found: dict[Partition, list[str]] = {}
        for actor in self.actors.values():
            if actor.zookeeper.is_alive and hasattr(actor.machine, "reads"):
                for one in actor.machine.reads:
                    found.setdefault(one, []).append(actor.name)
        return found

    def is_shared_out(self) -> bool:
        owners = self.owners()
        return sorted(owners) == self.partitions and all(len(names) == 1 for names in owners.values())

    def counts(self) -> Counter[str]:
        return sum((actor.zookeeper.counts for actor in self.actors.values()), Counter())
