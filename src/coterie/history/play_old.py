"""The scenario under designs 1 and 2: their machines on a model of ZooKeeper, whose followers lag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from coterie.assignors import Assignor, Range
from coterie.history.account import Account, Design
from coterie.history.backwards import Backwards
from coterie.history.design_types import Partition
from coterie.history.model_world import GROUP, SESSION_MS, Actor, ModelWorld
from coterie.history.owning import Owning
from coterie.history.paths import Paths, read_assignment, read_offset
from coterie.history.scenario import BROKERS, FOLLOWERS, Act, Do, Scenario
from coterie.history.tree import Closed, Put, Transaction
from coterie.sim.rng import Rng

__all__ = ["play_old"]

COMMIT_MS = 1_000
LAGS_MS = (2, 5, 20, 80)
"""Of a follower without faults, by the seed."""


def play_old(design: Design, scenario: Scenario) -> Account:
    return _Play(design, scenario).play()


class _Play:
    def __init__(self, design: Design, scenario: Scenario) -> None:
        rng = Rng(scenario.seed).of("followers")
        self._lags = [rng.choice(LAGS_MS) for _ in FOLLOWERS]
        self._scenario = scenario
        self._world = world = ModelWorld(scenario.seed, partitions=scenario.partitions, lags_ms=self._lags)
        self._is_watching = design is Design.WATCHERS
        self._account = Account(design, scenario, Owning(GROUP, world.partitions), Owning(GROUP, world.partitions))
        self._paths = Paths(GROUP)
        self._fence: tuple[int, Mapping[Partition, str]] = (0, {})
        self._offsets = {self._paths.offset(one): one for one in world.partitions}
        self._restarts = 0
        self._strategy: Assignor = Range()
        world.noted = self._noted
        world.ensemble.decided = self._decided
        self._do: Mapping[Do, Callable[[Act], None]] = {
            Do.COME: self._come,
            Do.DIE: lambda act: world.crash(world.actors[act.who]),
            Do.STOP: self._stop,
            Do.RENEW: self._renew,
            Do.BROKER_GOES: self._broker_goes,
            Do.PAUSE: self._pause,
            Do.PAUSE_BROKER: self._pause,
            Do.CUT: self._cut,
            Do.LAG: self._lag,
        }

    def play(self) -> Account:
        schedule = self._world.schedule
        for broker in BROKERS:
            self._broker(broker)
        for act in self._scenario.acts:
            schedule.at(act.at_ms, self._acts, act)
        for chapter in self._scenario.chapters:
            schedule.at(chapter.began_ms - 1, self._mark, None)
        schedule.at(COMMIT_MS, self._commit, None)
        schedule.run(self._scenario.length_ms)
        self._mark(None)
        return self._account

    def _acts(self, act: Act) -> None:
        self._do[act.do](act)

    def _mark(self, _about: object) -> None:
        attempts = sum(getattr(one.machine, "attempts", 0) for one in self._world.actors.values())
        more = Counter(messages=self._world.said, restarts=self._restarts, attempts=attempts)
        self._account.marks.append(self._world.counts() + more)

    def _commit(self, _about: object) -> None:
        for actor in self._world.members:
            actor.commit()
        self._world.schedule.after(COMMIT_MS, self._commit, None)

    # --- acts ---------------------------------------------------------------------------------------------------------

    def _come(self, act: Act) -> None:
        now_ms = self._world.schedule.now_ms
        self._account.owns.came(act.who, now_ms)
        self._account.believes.came(act.who, now_ms)
        if self._is_watching:
            self._world.watching(act.who, assignor=self._strategy)
        else:
            self._world.told(act.who)

    def _broker(self, number: str) -> None:
        self._world.broker(number, coordinates=not self._is_watching, assignor=self._strategy)

    def _stop(self, act: Act) -> None:
        actor = self._world.actors[act.who]
        actor.resume()
        actor.repair()
        self._world.close(actor)

    def _renew(self, act: Act) -> None:
        self._restarts += 1
        self._strategy = Backwards()
        if act.who.startswith("b"):
            self._broker(act.who[1:])
        else:
            self._come(act)

    def _broker_goes(self, act: Act) -> None:
        """The one that coordinates; under design 1, where none does, the first."""
        who = next((a for a in self._world.actors.values() if a.is_alive and _coordinates(a)), self._world.actors["b1"])
        self._stop(Act(act.at_ms, Do.STOP, who.name))
        self._world.schedule.after(act.for_ms, self._broker, who.name[1:])

    def _pause(self, act: Act) -> None:
        actor = self._world.actors[act.who]
        if actor.is_alive and not actor.is_paused:
            actor.pause()
            self._world.schedule.after(act.for_ms, lambda _about: actor.resume(), None)

    def _cut(self, act: Act) -> None:
        actor = self._world.actors[act.who]
        if not actor.is_cut:
            actor.cut()
            self._world.schedule.after(act.for_ms, lambda _about: actor.repair(), None)

    def _lag(self, act: Act) -> None:
        number = int(act.who.removeprefix("follower "))
        server = self._world.ensemble.servers[number]
        server.lag_ms = 2 * SESSION_MS

        def repair(_about: object) -> None:
            server.lag_ms = self._lags[number - 1]

        self._world.schedule.after(act.for_ms, repair, None)

    # --- who owns what ------------------------------------------------------------------------------------------------

    def _noted(self, actor: Actor) -> None:
        if not hasattr(actor.machine, "reads") or self._world.actors.get(actor.name) is not actor:
            return
        now_ms, account = self._world.schedule.now_ms, self._account
        if not actor.is_alive:
            account.owns.went(actor.name, now_ms)
            account.believes.went(actor.name, now_ms)
            return
        account.believes.owns(actor.name, actor.machine.reads, now_ms)
        account.owns.owns(actor.name, self._owned_by(actor), now_ms)

    def _owned_by(self, actor: Actor) -> Collection[Partition]:
        reads: frozenset[Partition] = actor.machine.reads
        if self._is_watching:
            return reads if not actor.is_paused else frozenset(filter(self._claimed_by(actor.name), reads))
        generation, owners = self._fence
        return [one for one in reads if actor.machine.generation == generation and owners.get(one) == actor.name]

    def _claimed_by(self, name: str) -> Callable[[Partition], bool]:
        """It sleeps and reads nothing; as long as its claims stand, nobody else does."""
        tree = self._world.ensemble.leader.tree

        def is_so(one: Partition) -> bool:
            node = tree.get(self._paths.owner(one))
            return node is not None and node.data.decode() == name

        return is_so

    def _decided(self, what: Transaction) -> None:
        if isinstance(what, Put):
            for path, data in what.values.items():
                if path == self._paths.assignment:
                    self._fence = read_assignment(data)
                elif path in self._offsets:
                    self._account.committed(self._offsets[path], read_offset(data))
        if isinstance(what, Closed) or (isinstance(what, Put) and self._paths.assignment in what.values):
            for actor in self._world.members:
                self._noted(actor)


def _coordinates(actor: Actor) -> bool:
    return bool(getattr(actor.machine, "coordinators", None))
