"""Design 2: a coordinator alone watches and decides; members are told (semantics 13.2)."""

from __future__ import annotations

import pytest

from coterie.assignors import Range, RoundRobin
from coterie.history.brokers import coordinator_of
from coterie.history.paths import read_assignment
from coterie.history.server_side import Coordinator, State
from history.bench import SESSION_MS, Actor, Bench


def settled(members: int, brokers: int = 1, partitions: int = 6) -> Bench:
    bench = Bench(partitions=partitions)
    for number in range(1, brokers + 1):
        bench.broker(str(number), coordinates=True)
    bench.run(1_000)
    for number in range(members):
        bench.told(f"c{number}")
        bench.run(1_000)
    assert bench.is_shared_out()
    return bench


def coordinator(bench: Bench) -> tuple[Actor, Coordinator]:
    (found,) = [
        (actor, actor.machine.coordinators["g"])
        for actor in bench.actors.values()
        if actor.zookeeper.is_alive and "g" in getattr(actor.machine, "coordinators", {})
    ]
    return found


def generation(bench: Bench) -> int:
    node = bench.ensemble.leader.tree.get("/consumers/g/assignment")
    assert node is not None
    return read_assignment(node.data)[0]


@pytest.mark.parametrize("members", [2, 5, 12])
def test_no_herd_one_notification_and_two_reads_however_many_members_there_are(members: int) -> None:
    bench = settled(members, partitions=24)
    before, said = bench.counts(), bench.said
    bench.told("new")
    bench.run(5_000)
    assert bench.is_shared_out()
    counts = bench.counts() - before
    assert counts["notifications"] == 1
    assert counts["looks"] == 2, "who is there, and what does the new one want"
    assert bench.said - said <= 4 * (members + 1), "hello, stop, has stopped, start"


def test_every_partition_has_one_owner_in_a_generation_and_its_members_know_which() -> None:
    bench = settled(3)
    node = bench.ensemble.leader.tree.get("/consumers/g/assignment")
    assert node is not None
    number, owners = read_assignment(node.data)
    assert {one: [owner] for one, owner in owners.items()} == bench.owners()
    assert {bench.actors[name].machine.generation for name in ("c0", "c1", "c2")} == {number}


def test_the_next_owner_begins_where_the_one_before_ended() -> None:
    bench = settled(1)
    bench.actors["c0"].positions = dict.fromkeys(bench.partitions, 7)
    newcomer = bench.told("c1")
    bench.run(3_000)
    assert newcomer.positions and set(newcomer.positions.values()) == {7}


def test_one_who_dies_is_waited_for_as_long_as_its_session_lasts() -> None:
    bench = settled(3)
    bench.crash(bench.actors["c1"])
    bench.run(SESSION_MS // 2)
    assert not bench.is_shared_out()
    bench.run(SESSION_MS)
    assert bench.is_shared_out()


def test_one_who_was_away_reads_on_and_what_it_commits_is_refused() -> None:
    """Two read it, one owns it: the generation says who."""
    bench = settled(2)
    away, other = bench.actors["c0"], bench.actors["c1"]
    away.zookeeper.cut()
    bench.run(SESSION_MS + 1_000)
    assert ("t", 0) in away.machine.reads & other.machine.reads
    other.commit({("t", 0): 50})
    bench.run(100)
    away.commit({("t", 0): 5})
    bench.run(100)
    node = bench.ensemble.leader.tree.get("/consumers/g/offsets/t/0")
    assert node is not None and node.data == b"50"
    assert away.machine.reads == frozenset(), "it was told"
    away.zookeeper.repair()
    bench.run(5_000)
    assert bench.is_shared_out() and not set(away.machine.reads) & set(other.machine.reads)


def test_another_broker_takes_over_when_the_coordinator_dies_and_members_find_it() -> None:
    bench = settled(2, brokers=3)
    first, before = coordinator(bench)[0], generation(bench)
    bench.crash(first)
    bench.run(SESSION_MS + 5_000)
    assert coordinator(bench)[0] is not first
    assert bench.is_shared_out() and generation(bench) > before


def test_a_coordinator_that_was_replaced_and_does_not_know_it_cannot_write() -> None:
    bench = settled(2, brokers=2)
    old, machine = coordinator(bench)
    member = next(bench.actors[name] for name in ("c0", "c1") if bench.actors[name].machine.reads)
    old.zookeeper.cut()
    one = min(member.machine.reads)
    bench.schedule.after(SESSION_MS + 2_000, member.commit, {one: 99})
    bench.run(SESSION_MS + 3_000)
    assert machine.state is State.STABLE, "it thinks that all is well, and took the commit"
    assert len([b for b in bench.actors.values() if getattr(b.machine, "coordinators", None)]) == 2
    node = bench.ensemble.leader.tree.get(f"/consumers/g/offsets/t/{one[1]}")
    assert node is None or node.data != b"99"
    old.zookeeper.repair()
    bench.run(10_000)
    assert bench.is_shared_out()


def test_a_new_strategy_is_a_new_coordinator() -> None:
    """Under design 2 the strategy is the server's: to have another, it is restarted, and everybody stops."""
    bench = settled(2)
    assert bench.actors["c0"].machine.reads == {("t", 0), ("t", 1), ("t", 2)}, "range"
    before = generation(bench)
    bench.crash(bench.actors["b1"])
    bench.run(SESSION_MS + 1_000)
    bench.broker("2", coordinates=True, assignor=RoundRobin())
    bench.run(5_000)
    assert bench.actors["c0"].machine.reads == {("t", 0), ("t", 2), ("t", 4)}, "roundrobin"
    assert generation(bench) == before + 1


def test_a_group_goes_to_a_broker_by_hash_and_only_those_of_a_broker_that_goes_move() -> None:
    groups = [f"group-{number}" for number in range(200)]
    of_three = {group: coordinator_of(group, ["1", "2", "3"]) for group in groups}
    of_two = {group: coordinator_of(group, ["1", "3"]) for group in groups}
    assert {broker: list(of_three.values()).count(broker) > 30 for broker in "123"} == dict.fromkeys("123", True)
    assert all(of_two[group] == broker for group, broker in of_three.items() if broker != "2")


def test_a_broker_that_is_not_the_coordinator_costs_no_rebalance() -> None:
    bench = settled(2, brokers=3)
    who, before = coordinator(bench)[0], generation(bench)
    other = next(bench.actors[name] for name in ("b1", "b2", "b3") if bench.actors[name] is not who)
    bench.crash(other)
    bench.run(SESSION_MS + 3_000)
    assert generation(bench) == before and bench.is_shared_out()


def test_the_same_view_gives_the_same_shares_whoever_computes_them() -> None:
    from coterie.assignors import Topic
    from coterie.history.shares import shares

    members = {"b": ["t"], "a": ["t"], "c": ["t"]}
    turned = dict(reversed(members.items()))
    assert shares(Range(), members, {"t": Topic(7)}) == shares(Range(), turned, {"t": Topic(7)})
