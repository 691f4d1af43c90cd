"""Nodes stop and start, and hand groups to each other, in virtual time as on asyncio (C4, docs/nodes.md)."""

from __future__ import annotations

import pytest

from coterie.facts import Fact, GroupLoaded, RebalanceStarted
from coterie.sim import Plan, simulate
from coterie.sim.consumer import Habits
from coterie.sim.faults import NodeStops, SwapInterrupted
from coterie.sim.machine import FIRST_PORT, Machine
from coterie.sim.steps import Come, MoveCoordinator
from coterie.sim.world import Observer, World
from coterie.structs import replace


class Told(Observer):
    name = "told"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.facts: list[Fact] = []

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        self.facts.append(fact)


def plan(*steps: Come | MoveCoordinator | NodeStops) -> Plan:
    drawn = Plan.draw(3, "steady", hours=0.05, members=2, faults=0)
    joins = [Come(at_ms=4_000, slot=slot, habits=Habits()) for slot in ("c0", "c1")]
    settings: dict[str, object] = {"offsets.topic.num.partitions": 4, "group.initial.rebalance.delay.ms": 3_000}
    return replace(drawn, steps=(*joins, *steps), settings=settings, nodes=3)


def facts_of(of: Plan) -> list[Fact]:
    told: list[Told] = []

    def watch(world: World) -> Told:
        told.append(Told(world))
        return told[0]

    outcome = simulate(of, watch=[watch])
    assert outcome.held, outcome.report()
    return told[0].facts


def test_a_group_that_is_moved_goes_on_in_its_generation_without_a_rebalance() -> None:
    facts = facts_of(
        plan(*(MoveCoordinator(at_ms=60_000 + 9_000 * node, group_id="g", node=node) for node in (1, 2, 3)))
    )
    moved = [fact for fact in facts if isinstance(fact, GroupLoaded)]
    assert len(moved) >= 2 and all(len(fact.members) == 2 for fact in moved)
    assert not any(isinstance(fact, RebalanceStarted) and fact.at_ms > moved[0].at_ms for fact in facts)


def test_every_node_may_stop_and_comes_back_and_the_group_does_not_notice() -> None:
    stops = (NodeStops(at_ms=60_000 + 20_000 * node, for_ms=5_000, node=node) for node in (1, 2, 3))
    facts = facts_of(plan(*stops))
    loaded = [fact for fact in facts if isinstance(fact, GroupLoaded)]
    assert len(loaded) == 2, "by another node when its preferred leader stops, and by that again"
    assert not any(isinstance(fact, RebalanceStarted) and fact.at_ms > loaded[0].at_ms for fact in facts)


def test_a_node_that_is_down_refuses_and_closes_what_was_open() -> None:
    world = World(1, [], {}, nodes=3)
    machine = world.machine
    machine.start()
    world.admin.create_topic("t", 3)
    world.schedule.run(5_000)
    (wire,) = world.network.wires
    number = wire.port - FIRST_PORT
    machine.nodes.stop(number)
    world.schedule.run(6_000)
    assert not machine.links and not wire.is_open
    assert not machine.nodes.listens(number) and machine.cluster is not None
    assert machine.cluster.leadership.up == {1, 2, 3} - {number}
    machine.nodes.start(number)
    world.schedule.run(7_000)
    assert machine.nodes.listens(number) and machine.cluster.leadership.up == {1, 2, 3}


COMPACTED: dict[str, object] = {"coterie.offsets.roll.bytes": 8_192, "offsets.topic.num.partitions": 1}


def test_logs_are_compacted_meanwhile() -> None:
    drawn = Plan.draw(3, "several-groups", hours=0.05, faults=0)
    assert not simulate(replace(drawn, settings={})).account.counts["long work"]
    outcome = simulate(replace(drawn, settings=COMPACTED))
    assert outcome.held, outcome.report()
    assert outcome.account.counts["long work"] > 5


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_broker_dies_within_the_steps_of_a_swap_and_finishes_it_when_it_comes_back(loses_power: bool) -> None:
    """storage/cleanup.py: a crash at any moment leaves the log as it was or as it will be."""
    drawn = Plan.draw(3, "several-groups", hours=0.1, faults=0)
    cuts = tuple(
        SwapInterrupted(at_ms=20_000 + 40_000 * number, for_ms=35_000, loses_power=loses_power) for number in range(8)
    )
    outcome = simulate(replace(drawn, steps=(*drawn.steps, *cuts), settings=COMPACTED))
    assert outcome.held, outcome.report()
    assert outcome.account.counts["swaps interrupted"] >= 2


def test_as_many_nodes_as_are_asked_for_and_whoever_replays_it_has_them_too() -> None:
    asked = Plan.draw(2, "moving-coordinators", hours=0.05, faults=0, nodes=5)
    assert asked.nodes == 5 and Plan.draw(2, "moving-coordinators", nodes=1).nodes == 3, "it takes more than one"
    outcome = simulate(asked)
    assert outcome.held, outcome.report()
    assert outcome.command.endswith("--faults 0 --nodes 5")
