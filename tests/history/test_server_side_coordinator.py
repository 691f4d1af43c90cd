"""Design 2: only the coordinator watches and assigns (semantics 13.2)."""

from __future__ import annotations

import pytest

from coterie.assignors import Range, RoundRobin
from coterie.history.design_types import read_assignment
from coterie.history.scenario import SESSION_MS
from coterie.history.server_side_coordinator import CoordinatorState, ServerSideCoordinator, coordinator_of
from coterie.history.simulate_zookeeper_designs import SimulatedProcess, ZooKeeperWorld


def settled(members: int, brokers: int = 1, partitions: int = 6) -> ZooKeeperWorld:
    world = ZooKeeperWorld(partitions=partitions)
    for number in range(1, brokers + 1):
        world.add_broker(str(number), coordinates=True)
    world.run(1_000)
    for number in range(members):
        world.add_member(f"c{number}")
        world.run(1_000)
    assert world.is_fully_assigned()
    return world


def coordinator(world: ZooKeeperWorld) -> tuple[SimulatedProcess, ServerSideCoordinator]:
    (found,) = [
        (actor, actor.machine.coordinators["g"])
        for actor in world.processes.values()
        if actor.zookeeper.is_alive and "g" in getattr(actor.machine, "coordinators", {})
    ]
    return found


def generation(world: ZooKeeperWorld) -> int:
    node = world.ensemble.leader.tree.get("/consumers/g/assignment")
    assert node is not None
    return read_assignment(node.data)[0]


@pytest.mark.parametrize("members", [2, 5, 12])
def test_no_herd_one_notification_and_two_reads_however_many_members_there_are(members: int) -> None:
    world = settled(members, partitions=24)
    before, said = world.counts(), world.messages
    world.add_member("new")
    world.run(5_000)
    assert world.is_fully_assigned()
    counts = world.counts() - before
    assert counts["notifications"] == 1
    assert counts["membership_reads"] == 2, "who is there, and what does the new one want"
    assert world.messages - said <= 4 * (members + 1), "hello, stop, has stopped, start"


def test_every_partition_has_one_owner_in_a_generation_and_its_members_know_which() -> None:
    world = settled(3)
    node = world.ensemble.leader.tree.get("/consumers/g/assignment")
    assert node is not None
    number, owners = read_assignment(node.data)
    assert {one: [owner] for one, owner in owners.items()} == world.owners()
    assert {world.processes[name].machine.generation for name in ("c0", "c1", "c2")} == {number}


def test_the_next_owner_begins_where_the_one_before_ended() -> None:
    world = settled(1)
    world.processes["c0"].positions = dict.fromkeys(world.partitions, 7)
    newcomer = world.add_member("c1")
    world.run(3_000)
    assert newcomer.positions and set(newcomer.positions.values()) == {7}


def test_one_who_dies_is_waited_for_as_long_as_its_session_lasts() -> None:
    world = settled(3)
    world.crash(world.processes["c1"])
    world.run(SESSION_MS // 2)
    assert not world.is_fully_assigned()
    world.run(SESSION_MS)
    assert world.is_fully_assigned()


def test_one_who_was_away_reads_on_and_what_it_commits_is_refused() -> None:
    """Two read it, one owns it: the generation says who."""
    world = settled(2)
    away, other = world.processes["c0"], world.processes["c1"]
    away.zookeeper.cut()
    world.run(SESSION_MS + 1_000)
    assert ("t", 0) in away.machine.reads & other.machine.reads
    other.commit({("t", 0): 50})
    world.run(100)
    away.commit({("t", 0): 5})
    world.run(100)
    node = world.ensemble.leader.tree.get("/consumers/g/offsets/t/0")
    assert node is not None and node.data == b"50"
    assert away.machine.reads == frozenset(), "the coordinator has stopped it"
    away.zookeeper.repair()
    world.run(5_000)
    assert world.is_fully_assigned() and not set(away.machine.reads) & set(other.machine.reads)


def test_another_broker_takes_over_when_the_coordinator_dies_and_members_find_it() -> None:
    world = settled(2, brokers=3)
    first, before = coordinator(world)[0], generation(world)
    world.crash(first)
    world.run(SESSION_MS + 5_000)
    assert coordinator(world)[0] is not first
    assert world.is_fully_assigned() and generation(world) > before


def test_a_coordinator_that_was_replaced_and_does_not_know_it_cannot_write() -> None:
    world = settled(2, brokers=2)
    old, machine = coordinator(world)
    member = next(world.processes[name] for name in ("c0", "c1") if world.processes[name].machine.reads)
    old.zookeeper.cut()
    one = min(member.machine.reads)
    world.schedule.after(SESSION_MS + 2_000, member.commit, {one: 99})
    world.run(SESSION_MS + 3_000)
    assert machine.state is CoordinatorState.STABLE, "it thinks that all is well, and took the commit"
    assert len([b for b in world.processes.values() if getattr(b.machine, "coordinators", None)]) == 2
    node = world.ensemble.leader.tree.get(f"/consumers/g/offsets/t/{one[1]}")
    assert node is None or node.data != b"99"
    old.zookeeper.repair()
    world.run(10_000)
    assert world.is_fully_assigned()


def test_a_new_strategy_is_a_new_coordinator() -> None:
    """Under design 2 the strategy is the server's: to have another, it is restarted, and all members stop."""
    world = settled(2)
    assert world.processes["c0"].machine.reads == {("t", 0), ("t", 1), ("t", 2)}, "range"
    before = generation(world)
    world.crash(world.processes["b1"])
    world.run(SESSION_MS + 1_000)
    world.add_broker("2", coordinates=True, assignor=RoundRobin())
    world.run(5_000)
    assert world.processes["c0"].machine.reads == {("t", 0), ("t", 2), ("t", 4)}, "roundrobin"
    assert generation(world) == before + 1


def test_a_group_goes_to_a_broker_by_hash_and_only_those_of_a_broker_that_goes_move() -> None:
    groups = [f"group-{number}" for number in range(200)]
    of_three = {group: coordinator_of(group, ["1", "2", "3"]) for group in groups}
    of_two = {group: coordinator_of(group, ["1", "3"]) for group in groups}
    assert {broker: list(of_three.values()).count(broker) > 30 for broker in "123"} == dict.fromkeys("123", True)
    assert all(of_two[group] == broker for group, broker in of_three.items() if broker != "2")


def test_a_broker_that_is_not_the_coordinator_costs_no_rebalance() -> None:
    world = settled(2, brokers=3)
    who, before = coordinator(world)[0], generation(world)
    other = next(world.processes[name] for name in ("b1", "b2", "b3") if world.processes[name] is not who)
    world.crash(other)
    world.run(SESSION_MS + 3_000)
    assert generation(world) == before and world.is_fully_assigned()


def test_the_same_view_gives_the_same_shares_whoever_computes_them() -> None:
    from coterie.assignors import Topic
    from coterie.history.design_types import assigned_partitions

    members = {"b": ["t"], "a": ["t"], "c": ["t"]}
    turned = dict(reversed(members.items()))
    assert assigned_partitions(Range(), members, {"t": Topic(7)}) == assigned_partitions(
        Range(), turned, {"t": Topic(7)}
    )
