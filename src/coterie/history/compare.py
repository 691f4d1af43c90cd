"""Run the same scenario under all designs, by group size, and with the faults of many seeds.

Designs 1 and 2 are simulated by `simulate_zookeeper_designs.py`. Designs 3 and 4 are Coterie itself in its simulator,
with all invariants checked; the second half of this file translates the scenario for them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.assignors import CooperativeSticky, Range
from coterie.coordinator.classic import ClassicGroupState
from coterie.errors import CoterieError, ErrorCode
from coterie.facts import Fact, OffsetsStored
from coterie.history.design_costs import NOTHING, Design, DesignRun, OwnershipTimeline, OwnersInterval, Total
from coterie.history.design_types import Partition
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
from coterie.protocol.apis import consumer_group_heartbeat, heartbeat, join_group, leave_group, sync_group
from coterie.sim.clients import Asked, Client
from coterie.sim.consumer import ConsumerProcess, Habits
from coterie.sim.faults import BrokerPaused, CutOff, Paused
from coterie.sim.machine import Machine
from coterie.sim.plan import Plan
from coterie.sim.run import simulate
from coterie.sim.steps import Come, Crash, FaultStep, Leave, PlanStep, Restart, Undo
from coterie.sim.world import Observer, World
from coterie.structs import replace

RESTARTED: Mapping[Design, RestartOf] = {
    design: RestartOf.BROKERS if design is Design.SERVER else RestartOf.MEMBERS for design in Design
}
"""The processes that are restarted for a new assignor. Under design 4 brokers have both; members name one (K16)."""


def simulate_design(design: Design, scenario: Scenario) -> DesignRun:
    is_old = design in {Design.WATCHERS, Design.SERVER}
    return simulate_zookeeper_design(design, scenario) if is_old else simulate_kafka_design(design, scenario)


def runs_without_faults(members: Sequence[int], partitions: int, seed: int) -> Iterator[DesignRun]:
    """Run the scenario without random faults and with a new assignor at its end."""
    for size in members:
        for design in Design:
            yield simulate_design(design, scenario(seed, size, partitions, rolls=RESTARTED[design]))


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


# --- designs 3 and 4 --------------------------------------------------------------------------------------------------

HEARTBEAT_MS = SESSION_MS // 3
_CLASSIC = Habits(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS)
_CONSUMER = Habits(group_protocol="consumer")
STRATEGIES: Mapping[Design, tuple[Habits, Habits]] = {
    Design.EAGER: (
        replace(_CLASSIC, assignors=(Range(),)),
        replace(_CLASSIC, assignors=(Backwards(), Range())),
    ),
    Design.COOPERATIVE: (
        replace(_CLASSIC, assignors=(CooperativeSticky(),)),
        replace(_CLASSIC, assignors=(BackwardsCooperative(), CooperativeSticky())),
    ),
    Design.CONSUMER: (replace(_CONSUMER, remote_assignor="uniform"), replace(_CONSUMER, remote_assignor="range")),
}
"""Members with the assignor at the begin, and with the one that the scenario brings in."""
SETTINGS: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
}
RECORD_MS = 2_000
DRIFT_PPM = 20_000
"""The largest difference in speed between the clocks of hosts. After a rebalance, all members send their heartbeats at
the same moments. In a real group these spread within an hour, since timers are late by some milliseconds each time;
here, by the drift, within a minute. Without it, all members of an eager group would stop together."""


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
        dict(SETTINGS),
        RECORD_MS,
        drift_ppm=DRIFT_PPM,
        nodes=len(BROKERS),
    )
    observer = _ConsumerGroupObserver if design is Design.CONSUMER else _ClassicGroupObserver
    outcome = simulate(plan, [lambda world: observer(world, result)])
    if not outcome.held:
        raise CoterieError(f"design {design}, seed {scenario.seed}: {outcome.broken}: {outcome.what}")
    return result


def _steps(design: Design, scenario: Scenario) -> list[PlanStep]:
    habits, renewed = (
        replace(one, auto_commit_interval_ms=1_000, poll_ms=10_000, fetch_max_wait_ms=10_000)
        for one in STRATEGIES[design]
    )
    return [step for act in scenario.acts for step in _step(act, habits, renewed)]


def _step(act: ScenarioAction, habits: Habits, renewed: Habits) -> Sequence[PlanStep]:
    at_ms, who, for_ms = act.at_ms, act.who, act.for_ms
    match act.do:
        case ActionKind.JOIN:
            return [Come(at_ms=at_ms, slot=who, habits=habits)]
        case ActionKind.CRASH:
            return [Crash(at_ms=at_ms, slot=who)]
        case ActionKind.STOP:
            return [Leave(at_ms=at_ms, slot=who)]
        case ActionKind.RESTART:
            return [Restart(at_ms=at_ms, slot=who, habits=renewed)]
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


class _CoordinatorStops(FaultStep):
    """Stop the node that coordinates the group; the other one takes the group over, and gives it back."""

    def begin(self, world: World) -> Undo:
        number = next((node.node_id for node, _, shard in world.machine.shards() if GROUP in shard.groups), 1)
        nodes = world.machine.nodes
        nodes.stop(number)
        return lambda: nodes.start(number)


class _DesignObserver(Observer, ABC):
    name = "the designs"

    def __init__(self, world: World, result: DesignRun) -> None:
        super().__init__(world)
        self._result = result
        self._counts: Counter[str] = Counter()
        for period in result.scenario.periods:
            world.schedule.at(period.began_ms - 1, self._mark, None)
        world.schedule.at(result.scenario.length_ms, self._mark, None)

    def _mark(self, _about: object) -> None:
        self._result.marks.append(Counter(self._counts))

    def answered(self, _client: Client, asked: Asked, answer: Any) -> None:
        """Count a request that changes something, with its answer, and an answer to a heartbeat that announces it."""
        if asked.module in {join_group, sync_group, leave_group}:
            self._counts["messages"] += 2
        elif asked.module is heartbeat:
            self._counts["messages"] += answer is ErrorCode.REBALANCE_IN_PROGRESS
        elif asked.module is consumer_group_heartbeat:
            request = asked.request
            says_something = request.member_epoch <= 0 or request.topic_partitions is not None
            self._counts["messages"] += 2 if says_something else answer.assignment is not None

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
        """A member owns what it can commit. While the coordinator moves, that is what it could commit before."""
        self._look_at_group()
        now_ms = self.world.schedule.now_ms
        for consumer in self.world.consumers.values():
            self._result.owns.owns(consumer.slot, self._accepted(consumer), now_ms)

    @abstractmethod
    def _look_at_group(self) -> None:
        """Note what members can commit now, if the group has a coordinator."""

    @abstractmethod
    def _accepted(self, consumer: ConsumerProcess) -> Collection[Partition]:
        """Return the partitions of a consumer whose commits would be accepted."""


class _ClassicGroupObserver(_DesignObserver):
    """A member can commit in the group's generation, and during a rebalance in the one before."""

    def __init__(self, world: World, result: DesignRun) -> None:
        super().__init__(world, result)
        self._oldest: dict[str, int] = {}
        """The lowest generation in which each member id can commit."""

    def _look_at_group(self) -> None:
        group = self.world.group(GROUP)
        if group is not None:
            self._oldest = dict.fromkeys(
                group.members, group.generation_id - (group.state is not ClassicGroupState.STABLE)
            )

    def _accepted(self, consumer: ConsumerProcess) -> Collection[Partition]:
        member = consumer.member
        is_taken = member.generation_id >= self._oldest.get(member.member_id, member.generation_id + 1)
        return consumer.owned if is_taken else ()


class _ConsumerGroupObserver(_DesignObserver):
    """A member can commit what it is assigned, or has still to give up (K11, K19)."""

    def __init__(self, world: World, result: DesignRun) -> None:
        super().__init__(world, result)
        self._holders: dict[Partition, str] = {}

    def _look_at_group(self) -> None:
        group = self.world.consumer_group(GROUP)
        if group is not None:
            holders_by_topic = group.holders.values()  # there is one topic
            self._holders = {(TOPIC, one): holder for held in holders_by_topic for one, holder in held.items()}

    def _accepted(self, consumer: ConsumerProcess) -> Collection[Partition]:
        return [one for one in consumer.owned if self._holders.get(one) == consumer.member.member_id]
