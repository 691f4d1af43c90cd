"""Design 1: every consumer watches, decides alone and claims (semantics 13.1)."""

from __future__ import annotations

import pytest

from coterie.history.registry import SessionEnded
from coterie.history.zookeeper_watchers import Phase, WatchingSettings
from history.bench import SESSION_MS, Bench


def settled(members: int, partitions: int = 6) -> Bench:
    bench = Bench(partitions=partitions)
    bench.broker("1")
    bench.run(200)
    for number in range(members):
        bench.watching(f"c{number}")
        bench.run(6_000)
    assert bench.is_shared_out()
    return bench


def test_consumers_share_the_partitions_among_them_and_say_so_under_owners() -> None:
    bench = settled(3)
    assert {name: len(bench.actors[name].machine.reads) for name in ("c0", "c1", "c2")} == {"c0": 2, "c1": 2, "c2": 2}
    tree = bench.ensemble.leader.tree
    assert tree.children("/consumers/g/ids") == ["c0", "c1", "c2"]
    for (_, number), (owner,) in bench.owners().items():
        node = tree.get(f"/consumers/g/owners/t/{number}")
        assert node is not None and node.data.decode() == owner


def test_the_next_owner_begins_where_the_one_before_ended() -> None:
    bench = settled(1)
    bench.actors["c0"].positions = dict.fromkeys(bench.partitions, 7)
    newcomer = bench.watching("c1")
    bench.run(6_000)
    assert newcomer.positions and set(newcomer.positions.values()) == {7}


@pytest.mark.parametrize("members", [2, 5, 12])
def test_the_herd_one_who_joins_rings_at_all_and_all_look_at_all(members: int) -> None:
    """N notifications; n + 1 consumers look at n + 1 of them, at the list, and at the brokers: (n + 1)(n + 3) reads."""
    bench = settled(members, partitions=24)
    before, looked = bench.counts(), attempts(bench)
    bench.watching("new")
    bench.run(20_000)
    assert bench.is_shared_out()
    counts = bench.counts() - before
    assert counts["notifications"] == members
    assert counts["looks"] == (attempts(bench) - looked) * (members + 3)
    assert attempts(bench) - looked >= members + 1, "more, if somebody was too early"


def test_a_broker_that_comes_wakes_everybody_and_nothing_moves() -> None:
    bench = settled(4)
    before, owners = bench.counts(), bench.owners()
    bench.broker("2")
    bench.run(20_000)
    assert (bench.counts() - before)["notifications"] == 4
    assert bench.owners() == owners


def test_one_who_dies_is_replaced_when_its_session_has_ended() -> None:
    bench = settled(3)
    bench.crash(bench.actors["c1"])
    bench.run(SESSION_MS // 2)
    assert not bench.is_shared_out(), "nobody knows yet"
    bench.run(SESSION_MS + 10_000)
    assert bench.is_shared_out()


def test_split_brain_one_who_is_cut_off_reads_on_while_another_has_claimed() -> None:
    bench = settled(3)
    away = bench.actors["c0"]
    reads = set(away.machine.reads)
    away.zookeeper.cut()
    bench.run(SESSION_MS + 6_000)
    owners = bench.owners()
    assert away.machine.reads == reads and all(len(owners[one]) == 2 for one in reads)
    away.zookeeper.repair()
    bench.run(20_000)
    assert bench.is_shared_out() and any(isinstance(event, SessionEnded) for event in away.heard)


def test_split_brain_a_follower_that_lags_by_more_than_a_session_is_enough() -> None:
    """Nobody is cut off and nobody sleeps: its server answers it, and has not heard that its session is over."""
    bench = settled(3)
    slow = bench.ensemble.servers[2]
    there = [actor for actor in bench.actors.values() if actor.zookeeper.server is slow and actor.name != "b1"]
    others = [actor for actor in bench.actors.values() if actor.zookeeper.server is not slow and actor.name != "b1"]
    assert there and others, "by this seed"
    slow.lag_ms = 2 * SESSION_MS
    bench.run(SESSION_MS + 5_000)
    assert [names for names in bench.owners().values() if len(names) == 2]
    slow.lag_ms = 5
    bench.run(60_000)
    assert bench.is_shared_out()


def test_whoever_was_away_writes_its_old_offsets_over_newer_ones() -> None:
    """Nothing asks who holds the claim: what is committed goes back, until the other one commits again."""
    bench = settled(2)
    away, other = bench.actors["c0"], bench.actors["c1"]
    away.zookeeper.cut()
    away.commit({("t", 0): 5})  # waits for a session
    bench.run(SESSION_MS + 6_000)
    assert ("t", 0) in other.machine.reads
    other.commit({("t", 0): 50})
    bench.run(1_000)
    away.zookeeper.repair()
    seen: list[bytes] = []
    for _ in range(100):
        bench.run(1)
        node = bench.ensemble.leader.tree.get("/consumers/g/offsets/t/0")
        assert node is not None
        seen += [node.data] if [node.data] != seen[-1:] else []
    assert seen[:2] == [b"50", b"5"]


def test_a_claim_that_another_holds_is_a_conflict_and_all_is_given_up_until_later() -> None:
    bench = settled(1)
    bench.ensemble.servers[0].lag_ms = 0
    only = bench.actors["c0"]
    only.zookeeper.cut()  # hears nothing of the newcomer, and its session goes on for a while
    newcomer = bench.watching("c1", settings=WatchingSettings(rebalance_backoff_ms=1_000))
    bench.run(500)
    machine = newcomer.machine
    assert machine.conflicts == 1 and machine.phase is Phase.BACKING_OFF and not machine.reads
    assert bench.ensemble.leader.tree.children("/consumers/g/owners/t") == [str(n) for n in range(6)], "all are c0's"
    only.zookeeper.repair()
    bench.run(10_000)
    assert bench.is_shared_out()


def test_after_a_few_tries_it_gives_up_until_the_next_change() -> None:
    bench = settled(1)
    only = bench.actors["c0"]
    only.zookeeper.cut()
    newcomer = bench.watching("c1", settings=WatchingSettings(rebalance_max_retries=2, rebalance_backoff_ms=100))
    bench.run(1_000)
    assert newcomer.machine.has_given_up and newcomer.machine.phase is Phase.SETTLED and not newcomer.machine.reads
    bench.run(SESSION_MS + 3_000)  # c0's session ends: a change
    assert len(newcomer.machine.reads) == 6


def test_without_a_broker_there_is_nothing_to_read() -> None:
    bench = Bench()
    bench.watching("c0")
    bench.run(3_000)
    assert bench.owners() == {}
    bench.broker("1")
    bench.run(3_000)
    assert bench.is_shared_out()


def attempts(bench: Bench) -> int:
    return sum(getattr(actor.machine, "attempts", 0) for actor in bench.actors.values())
