"""Run the same scenario under all designs, by group size, and with the faults of many seeds.

Designs 1 and 2 are simulated by `simulate_zookeeper_designs.py`. Design 3 is Coterie itself in its simulator, with all
invariants checked; the second half of this file translates the scenario for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coterie.assignors import Assignor, CooperativeSticky, Range
from coterie.coordinator.classic import State
from coterie.errors import CoterieError, ErrorCode
from coterie.facts import Fact, OffsetsStored
from coterie.history.design_costs import NOTHING, Design, DesignRun, OwnershipTimeline, OwnersInterval, Total
from coterie.history.scenario import (
    BROKERS,
    GROUP,
    SESSION_MS,
    TOPIC,
    ActionKind,
    Backwards,
    BackwardsCooperative,
    RestartOf,
    Scenario,
    ScenarioAction,
    scenario,
)
from coterie.history.simulate_zookeeper_designs import simulate_zookeeper_design
from coterie.protocol.apis import heartbeat, join_group, leave_group, sync_group
from coterie.sim.clients import Asked, Client
from coterie.sim.consumer import ConsumerProcess, Habits
from coterie.sim.faults import BrokerPaused, CutOff, Paused
from coterie.sim.machine import Machine
from coterie.sim.plan import Plan
from coterie.sim.run import simulate
from coterie.sim.steps import Come, Fault, Leave, Step, Undo
from coterie.sim.world import Observer, World

HAS_THE_ASSIGNOR: Mapping[Design, RestartOf] = {
    design: RestartOf.BROKERS if design is Design.SERVER else RestartOf.MEMBERS for design in Design
}
"""What must be restarted for a new assignor."""


def simulate_design(design: Design, scenario: Scenario) -> DesignRun:
    is_old = design in {Design.WATCHERS, Design.SERVER}
    return simulate_zookeeper_design(design, scenario) if is_old else simulate_kafka_design(design, scenario)


def runs_without_faults(members: Sequence[int], partitions: int, seed: int) -> Iterator[DesignRun]:
    """Run the scenario without random faults and with a new assignor at its end."""
    for size in members:
        for design in Design:
            yield simulate_design(design, scenario(seed, size, partitions, rolls=HAS_THE_ASSIGNOR[design]))


def runs_with_faults(seed: int, members: int, partitions: int) -> list[DesignRun]:
    """Run the scenario with the faults of this seed under each design."""
    with_faults = scenario(seed, members, partitions, with_faults=True)
    return [simulate_design(design, with_faults) for design in Design]


@dataclass(slots=True)
class FaultTotals:
    """The sums over many seeds under one design."""

    design: Design
    seeds: int = 0
    split: int = 0
    """Seeds in which a partition had two owners."""
    two_owners: Total = NOTHING
    believed: Total = NOTHING
    unassigned: Total = NOTHING
    went_back: int = 0
    is_stable_at_end: int = 0

    def add(self, one: DesignRun) -> None:
        two_owners = Total.of(one.two_owners)
        self.seeds += 1
        self.split += bool(two_owners.count)
        self.two_owners += two_owners
        self.believed += one.believed
        self.unassigned += one.unassigned
        self.went_back += one.went_back
        self.is_stable_at_end += one.is_stable_at_end


def fault_totals(runs: Iterable[DesignRun]) -> list[FaultTotals]:
    found = {design: FaultTotals(design) for design in Design}
    for one in runs:
        found[one.design].add(one)
    return list(found.values())


def split_brain(runs: Iterable[DesignRun]) -> tuple[DesignRun, OwnersInterval] | None:
    """Return the first run in which a partition had two owners, and the longest such interval in it."""
    for one in runs:
        if one.two_owners:
            return one, max(one.two_owners, key=lambda found: found.ended_ms - found.began_ms)
    return None


# --- design 3 ---------------------------------------------------------------------------------------------------------

STRATEGIES: Mapping[Design, tuple[Assignor, Assignor]] = {
    Design.EAGER: (Range(), Backwards()),
    Design.COOPERATIVE: (CooperativeSticky(), BackwardsCooperative()),
}
"""The assignor at the begin, and the one that the scenario brings in."""
RETRY_MS = 100
RECORD_MS = 2_000


def simulate_kafka_design(design: Design, scenario: Scenario) -> DesignRun:
    partitions = [(TOPIC, number) for number in range(scenario.partitions)]
    result = DesignRun(design, scenario, OwnershipTimeline(GROUP, partitions), OwnershipTimeline(GROUP, partitions))
    plan = Plan(
        scenario.seed,
        "the scenario of the designs",
        scenario.length_ms,
        scenario.members,
        tuple(_steps(design, scenario)),
        {TOPIC: scenario.partitions},
        {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4},
        RECORD_MS,
        nodes=len(BROKERS),
    )
    outcome = simulate(plan, [lambda world: _DesignObserver(world, result)])
    if not outcome.held:
        raise CoterieError(f"design {design}, seed {scenario.seed}: {outcome.broken}: {outcome.what}")
    return result


def _steps(design: Design, scenario: Scenario) -> list[Step]:
    old, new = STRATEGIES[design]
    habits = Habits(
        assignors=(old,),
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=SESSION_MS // 3,
        auto_commit_interval_ms=1_000,
        poll_ms=10_000,
        fetch_max_wait_ms=10_000,
    )
    return [step for act in scenario.acts for step in _step(act, habits, replace(habits, assignors=(new, old)))]


def _step(act: ScenarioAction, habits: Habits, renewed: Habits) -> Sequence[Step]:
    at_ms, who, for_ms = act.at_ms, act.who, act.for_ms
    match act.do:
        case ActionKind.JOIN:
            return [Come(at_ms=at_ms, slot=who, habits=habits)]
        case ActionKind.CRASH:
            return [_Crashes(at_ms=at_ms, slot=who)]
        case ActionKind.STOP:
            return [Leave(at_ms=at_ms, slot=who)]
        case ActionKind.RESTART:
            return [_Restarts(at_ms=at_ms, slot=who, habits=renewed)]
        case ActionKind.STOP_BROKER:
            return [_CoordinatorStops(at_ms=at_ms, for_ms=for_ms)]
        case ActionKind.PAUSE:
            return [Paused(at_ms=at_ms, slot=who, for_ms=for_ms)]
        case ActionKind.CUT:
            return [CutOff(at_ms=at_ms, slot=who, for_ms=for_ms)]
        case ActionKind.PAUSE_BROKER:
            return [BrokerPaused(at_ms=at_ms, for_ms=for_ms)]
        case ActionKind.LAG:
            return []  # there is no ZooKeeper


@dataclass(frozen=True, kw_only=True)
class _Crashes(Step):
    slot: str

    def begin(self, world: World) -> None:
        consumer = world.consumers.get(self.slot)
        if consumer is not None:
            world.crash(consumer)


@dataclass(frozen=True, kw_only=True)
class _Restarts(Step):
    slot: str
    habits: Habits

    def begin(self, world: World) -> None:
        """Start the new consumer when the old one has ended."""
        if world.consumer(self.slot, replace(self.habits)) is None:
            world.schedule.after(RETRY_MS, lambda _about: self.begin(world), None)


class _CoordinatorStops(Fault):
    """Stop the node that coordinates the group; the other one takes the group over, and gives it back."""

    def begin(self, world: World) -> Undo:
        number = next((node.node_id for node, _, shard in world.machine.shards() if GROUP in shard.groups), 1)
        nodes = world.machine.nodes
        nodes.stop(number)
        return lambda: nodes.start(number)


class _DesignObserver(Observer):
    name = "the designs"

    def __init__(self, world: World, result: DesignRun) -> None:
        super().__init__(world)
        self._result = result
        self._counts: Counter[str] = Counter()
        self._accepts: dict[str, int] = {}
        """The lowest generation in which each member id can commit, also while the coordinator moves."""
        for period in result.scenario.periods:
            world.schedule.at(period.began_ms - 1, self._mark, None)
        world.schedule.at(result.scenario.length_ms, self._mark, None)

    def _mark(self, _about: object) -> None:
        self._result.marks.append(Counter(self._counts))

    def answered(self, _client: Client, asked: Asked, answer: Any) -> None:
        if asked.module in {join_group, sync_group, leave_group}:
            self._counts["messages"] += 2
        elif asked.module is heartbeat and answer is ErrorCode.REBALANCE_IN_PROGRESS:
            self._counts["messages"] += 1

    def came(self, consumer: ConsumerProcess) -> None:
        self._counts["restarts"] += consumer.name != consumer.slot
        self._result.added(consumer.slot, self.world.schedule.now_ms)

    def went(self, consumer: ConsumerProcess, _how: str) -> None:
        self._result.removed(consumer.slot, self.world.schedule.now_ms)

    def ownership_changed(self, consumer: ConsumerProcess) -> None:
        self._result.believes.owns(consumer.slot, consumer.owned, self.world.schedule.now_ms)
        self._note_ownership()

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        if isinstance(fact, OffsetsStored):
            for topic, partition, offset in fact.offsets:
                self._result.committed((topic, partition), offset)
        elif fact.group_id == GROUP:
            self._note_ownership()

    def _note_ownership(self) -> None:
        """A member owns what it can commit: in the group's generation, or during a rebalance in the one before."""
        group = self.world.group(GROUP)
        if group is not None:
            oldest = group.generation_id - (group.state is not State.STABLE)
            self._accepts = dict.fromkeys(group.members, oldest)
        now_ms = self.world.schedule.now_ms
        for consumer in self.world.consumers.values():
            member = consumer.member
            is_taken = member.generation_id >= self._accepts.get(member.member_id, member.generation_id + 1)
            self._result.owns.owns(consumer.slot, consumer.owned if is_taken else (), now_ms)
