"""The scenario under today's design: the shipped broker and members in the simulator's world, invariants and all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coterie.assignors import Assignor, CooperativeSticky, Range
from coterie.coordinator.classic import State
from coterie.errors import CoterieError, ErrorCode
from coterie.facts import Fact, OffsetsStored
from coterie.history.account import Account, Design
from coterie.history.backwards import Backwards, BackwardsCooperative
from coterie.history.model_world import GROUP, SESSION_MS, TOPIC
from coterie.history.owning import Owning
from coterie.history.scenario import BROKERS, Act, Do, Scenario
from coterie.protocol.apis import heartbeat, join_group, leave_group, sync_group
from coterie.sim.client import Asked, Client
from coterie.sim.consumer import Consumer, Habits
from coterie.sim.faults import BrokerPaused, CutOff, Paused
from coterie.sim.machine import Machine
from coterie.sim.observer import Observer
from coterie.sim.plan import Plan
from coterie.sim.run import simulate
from coterie.sim.steps import Come, Fault, Leave, Step, Undo
from coterie.sim.world import World

__all__ = ["play_new"]

STRATEGIES: Mapping[Design, tuple[Assignor, Assignor]] = {
    Design.EAGER: (Range(), Backwards()),
    Design.COOPERATIVE: (CooperativeSticky(), BackwardsCooperative()),
}
"""The one it has, and the one to come."""
AGAIN_MS = 100
RECORD_MS = 2_000


def play_new(design: Design, scenario: Scenario) -> Account:
    partitions = [(TOPIC, number) for number in range(scenario.partitions)]
    account = Account(design, scenario, Owning(GROUP, partitions), Owning(GROUP, partitions))
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
    outcome = simulate(plan, [lambda world: _Watch(world, account)])
    if not outcome.held:
        raise CoterieError(f"design {design}, seed {scenario.seed}: {outcome.broken}: {outcome.what}")
    return account


# --- the acts, as steps of the simulator ------------------------------------------------------------------------------


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


def _step(act: Act, habits: Habits, renewed: Habits) -> Sequence[Step]:
    at_ms, who, for_ms = act.at_ms, act.who, act.for_ms
    match act.do:
        case Do.COME:
            return [Come(at_ms=at_ms, slot=who, habits=habits)]
        case Do.DIE:
            return [_Dies(at_ms=at_ms, slot=who)]
        case Do.STOP:
            return [Leave(at_ms=at_ms, slot=who)]
        case Do.RENEW:
            return [_Renewed(at_ms=at_ms, slot=who, habits=renewed)]
        case Do.BROKER_GOES:
            return [_CoordinatorGoes(at_ms=at_ms, for_ms=for_ms)]
        case Do.PAUSE:
            return [Paused(at_ms=at_ms, slot=who, for_ms=for_ms)]
        case Do.CUT:
            return [CutOff(at_ms=at_ms, slot=who, for_ms=for_ms)]
        case Do.PAUSE_BROKER:
            return [BrokerPaused(at_ms=at_ms, for_ms=for_ms)]
        case Do.LAG:
            return []  # there are no followers


@dataclass(frozen=True, kw_only=True)
class _Dies(Step):
    slot: str

    def begin(self, world: World) -> None:
        consumer = world.consumers.get(self.slot)
        if consumer is not None:
            world.crash(consumer)


@dataclass(frozen=True, kw_only=True)
class _Renewed(Step):
    slot: str
    habits: Habits

    def begin(self, world: World) -> None:
        """When the one before has ended."""
        if world.consumer(self.slot, replace(self.habits)) is None:
            world.schedule.after(AGAIN_MS, lambda _about: self.begin(world), None)


class _CoordinatorGoes(Fault):
    """The node that has the group, in order: the other one takes it over, and gives it back."""

    def begin(self, world: World) -> Undo:
        number = next((node.node_id for node, _, shard in world.machine.shards() if GROUP in shard.groups), 1)
        nodes = world.machine.nodes
        nodes.stop(number)
        return lambda: nodes.start(number)


# --- what is watched --------------------------------------------------------------------------------------------------


class _Watch(Observer):
    name = "the designs"

    def __init__(self, world: World, account: Account) -> None:
        super().__init__(world)
        self._account = account
        self._counts: Counter[str] = Counter()
        self._accepts: dict[str, int] = {}
        """By member id: the lowest generation it can be in. A coordinator that is moving keeps its word."""
        for chapter in account.scenario.chapters:
            world.schedule.at(chapter.began_ms - 1, self._mark, None)
        world.schedule.at(account.scenario.length_ms, self._mark, None)

    def _mark(self, _about: object) -> None:
        self._account.marks.append(Counter(self._counts))

    def answered(self, _client: Client, asked: Asked, answer: Any, _data: bytes) -> None:
        if asked.module in {join_group, sync_group, leave_group}:
            self._counts["messages"] += 2
        elif asked.module is heartbeat and answer is ErrorCode.REBALANCE_IN_PROGRESS:
            self._counts["messages"] += 1

    def came(self, consumer: Consumer) -> None:
        self._counts["restarts"] += consumer.name != consumer.slot
        self._account.owns.came(consumer.slot, self.world.schedule.now_ms)
        self._account.believes.came(consumer.slot, self.world.schedule.now_ms)

    def went(self, consumer: Consumer, _how: str) -> None:
        self._account.owns.went(consumer.slot, self.world.schedule.now_ms)
        self._account.believes.went(consumer.slot, self.world.schedule.now_ms)

    def ownership_changed(self, consumer: Consumer) -> None:
        self._account.believes.owns(consumer.slot, consumer.owned, self.world.schedule.now_ms)
        self._look()

    def tell(self, _machine: Machine, fact: Fact) -> None:
        if isinstance(fact, OffsetsStored):
            for topic, partition, offset in fact.offsets:
                self._account.committed((topic, partition), offset)
        elif fact.group_id == GROUP:
            self._look()

    def _look(self) -> None:
        """Commits are accepted in the group's generation; during a rebalance in the one before too."""
        group = self.world.group(GROUP)
        if group is not None:
            oldest = group.generation_id - (group.state is not State.STABLE)
            self._accepts = dict.fromkeys(group.members, oldest)
        now_ms = self.world.schedule.now_ms
        for consumer in self.world.consumers.values():
            member = consumer.member
            is_taken = member.generation_id >= self._accepts.get(member.member_id, member.generation_id + 1)
            self._account.owns.owns(consumer.slot, consumer.owned if is_taken else (), now_ms)
