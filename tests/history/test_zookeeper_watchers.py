"""Design 1: every consumer watches, decides alone and claims (semantics 13.1)."""

from __future__ import annotations

import pytest

from coterie.history.design_types import SessionEnded
from coterie.history.scenario import SESSION_MS
from coterie.history.simulate_zookeeper_designs import ZooKeeperWorld
from coterie.history.zookeeper_watchers import ConsumerPhase, WatchingSettings


def settled(members: int, partitions: int = 6) -> ZooKeeperWorld:
    world = ZooKeeperWorld(partitions=partitions)
    world.add_broker("1")
    world.run(200)
    for number in range(members):
        world.add_watcher(f"c{number}")
        world.run(6_000)
    assert world.is_fully_assigned()
    return world


def test_consumers_share_the_partitions_among_them_and_say_so_under_owners() -> None:
    world = settled(3)
    assert [len(world.processes[name].machine.reads) for name in ("c0", "c1", "c2")] == [2, 2, 2]
    tree = world.ensemble.leader.tree
    assert tree.children("/consumers/g/ids") == ["c0", "c1", "c2"]
    for (_, number), (owner,) in world.owners().items():
        node = tree.get(f"/consumers/g/owners/t/{number}")
        assert node is not None and node.data.decode() == owner


def test_the_next_owner_begins_where_the_one_before_ended() -> None:
    world = settled(1)
    world.processes["c0"].positions = dict.fromkeys(world.partitions, 7)
    newcomer = world.add_watcher("c1")
    world.run(6_000)
    assert newcomer.positions and set(newcomer.positions.values()) == {7}


@pytest.mark.parametrize("members", [2, 5, 12])
def test_the_herd_one_who_joins_rings_at_all_and_all_look_at_all(members: int) -> None:
    """N notifications; n + 1 consumers look at n + 1 of them, at the list, and at the brokers: (n + 1)(n + 3) reads."""
    world = settled(members, partitions=24)
    before, looked = world.counts(), attempts(world)
    world.add_watcher("new")
    world.run(20_000)
    assert world.is_fully_assigned()
    counts = world.counts() - before
    assert counts["notifications"] == members
    assert counts["membership_reads"] == (attempts(world) - looked) * (members + 3)
    assert attempts(world) - looked >= members + 1, "more, if a consumer was too early"


def test_a_broker_that_comes_wakes_everybody_and_nothing_moves() -> None:
    world = settled(4)
    before, owners = world.counts(), world.owners()
    world.add_broker("2")
    world.run(20_000)
    assert (world.counts() - before)["notifications"] == 4
    assert world.owners() == owners


def test_one_who_dies_is_replaced_when_its_session_has_ended() -> None:
    world = settled(3)
    world.crash(world.processes["c1"])
    world.run(SESSION_MS // 2)
    assert not world.is_fully_assigned(), "its session has not timed out yet"
    world.run(SESSION_MS + 10_000)
    assert world.is_fully_assigned()


def test_split_brain_one_who_is_cut_off_reads_on_while_another_has_claimed() -> None:
    world = settled(3)
    away = world.processes["c0"]
    reads = set(away.machine.reads)
    away.zookeeper.cut()
    world.run(SESSION_MS + 6_000)
    owners = world.owners()
    assert away.machine.reads == reads and all(len(owners[one]) == 2 for one in reads)
    away.zookeeper.repair()
    world.run(20_000)
    assert world.is_fully_assigned() and any(isinstance(event, SessionEnded) for event in away.events)


def test_split_brain_a_follower_that_lags_by_more_than_a_session_is_enough() -> None:
    """No process is cut off or paused: its server answers it, and does not know that its session is over."""
    world = settled(3)
    slow = world.ensemble.servers[2]
    there = [actor for actor in world.processes.values() if actor.zookeeper.server is slow and actor.name != "b1"]
    others = [actor for actor in world.processes.values() if actor.zookeeper.server is not slow and actor.name != "b1"]
    assert there and others, "by this seed"
    slow.lag_ms = 2 * SESSION_MS
    world.run(SESSION_MS + 5_000)
    assert [names for names in world.owners().values() if len(names) == 2]
    slow.lag_ms = 5
    world.run(60_000)
    assert world.is_fully_assigned()


def test_whoever_was_away_writes_its_old_offsets_over_newer_ones() -> None:
    """Nothing asks who holds the claim: what is committed goes back, until the other one commits again."""
    world = settled(2)
    away, other = world.processes["c0"], world.processes["c1"]
    away.zookeeper.cut()
    away.commit({("t", 0): 5})  # waits for a session
    world.run(SESSION_MS + 6_000)
    assert ("t", 0) in other.machine.reads
    other.commit({("t", 0): 50})
    world.run(1_000)
    away.zookeeper.repair()
    seen: list[bytes] = []
    for _ in range(100):
        world.run(1)
        node = world.ensemble.leader.tree.get("/consumers/g/offsets/t/0")
        assert node is not None
        seen += [node.data] if [node.data] != seen[-1:] else []
    assert seen[:2] == [b"50", b"5"]


def test_a_claim_that_another_holds_is_a_conflict_and_all_is_given_up_until_later() -> None:
    world = settled(1)
    world.ensemble.servers[0].lag_ms = 0
    only = world.processes["c0"]
    only.zookeeper.cut()  # hears nothing of the newcomer, and its session goes on for a while
    newcomer = world.add_watcher("c1", settings=WatchingSettings(rebalance_backoff_ms=1_000))
    world.run(500)
    machine = newcomer.machine
    assert machine.conflicts == 1 and machine.phase is ConsumerPhase.BACKING_OFF and not machine.reads
    assert world.ensemble.leader.tree.children("/consumers/g/owners/t") == [str(n) for n in range(6)], "all are c0's"
    only.zookeeper.repair()
    world.run(10_000)
    assert world.is_fully_assigned()


def test_after_a_few_tries_it_gives_up_until_the_next_change() -> None:
    world = settled(1)
    only = world.processes["c0"]
    only.zookeeper.cut()
    newcomer = world.add_watcher("c1", settings=WatchingSettings(rebalance_max_retries=2, rebalance_backoff_ms=100))
    world.run(1_000)
    assert (
        newcomer.machine.has_given_up and newcomer.machine.phase is ConsumerPhase.SETTLED and not newcomer.machine.reads
    )
    world.run(SESSION_MS + 3_000)  # c0's session ends: a change
    assert len(newcomer.machine.reads) == 6


def test_without_a_broker_there_is_nothing_to_read() -> None:
    world = ZooKeeperWorld()
    world.add_watcher("c0")
    world.run(3_000)
    assert world.owners() == {}
    world.add_broker("1")
    world.run(3_000)
    assert world.is_fully_assigned()


def attempts(world: ZooKeeperWorld) -> int:
    return sum(getattr(actor.machine, "attempts", 0) for actor in world.processes.values())
