"""A rebalance of a consumer group goes on when its coordinator restarts or moves, and the ledger says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

import pytest

from coordinator.consumer.group_world import GroupWorld
from coterie.facts import Cause, ClockSet, Fact, GroupLoaded, GroupUnloaded
from coterie.ledger import Bookmark, Ledger, Rebalance, RebalanceOutcome, fold, read_fact, write_fact
from coterie.ledger.derived import derived_facts
from coterie.protocol.consumer_group_records import read_consumer_group_record
from coterie.structs import replace

RESTARTS: Mapping[str, Callable[[GroupWorld], None]] = {
    "moves": lambda world: world.world.move_coordinator(),
    "crashes": lambda world: world.world.crash(),
}
STEPS = 8
AWAY_MS = 100


def newcomer(world: GroupWorld) -> Iterator[None]:
    """Member a owns four partitions; b joins, a gives two up, and b takes them. Stops after each step."""
    a = world.member("a").joins("t", assignor="range")
    yield
    world.world.advance(1_000)
    yield
    b = world.member("b").joins("t", assignor="range")
    yield
    world.world.advance(500)
    a.beats(expect={"t": [0, 1]})
    yield
    world.world.advance(1_500)
    yield
    a.gives_up()
    yield
    world.world.advance(2_000)
    yield
    b.beats(expect={"t": [2, 3]})
    yield


def told(restart: Callable[[GroupWorld], None] | None = None, after: int = -1, away_ms: int = 0) -> GroupWorld:
    """Tell the story, with a restart after a step."""
    world = GroupWorld(t=4)
    for number, _ in enumerate(newcomer(world)):
        if number == after and restart is not None:
            restart(world)
            world.world.advance(away_ms)
    return world


def rebalances(world: GroupWorld) -> list[Rebalance]:
    return world.world.ledger.rebalances_of("g")


@pytest.mark.parametrize("after", range(STEPS))
@pytest.mark.parametrize("restart", RESTARTS)
def test_a_restart_at_any_step_changes_nothing_but_is_noted(restart: str, after: int) -> None:
    """K27: replay restores everything. Cause, times, moves and cost are those of the whole rebalance."""
    plain, world = told(), told(RESTARTS[restart], after)
    assert [one.outcome for one in rebalances(plain)] == [RebalanceOutcome.STABLE] * 2
    first, second = rebalances(world)
    assert [first, replace(second, restarts_ms=[])] == rebalances(plain)
    is_under_way = 2 <= after < STEPS - 1
    assert len(second.restarts_ms) == (1 if is_under_way else 0)
    assert first.restarts_ms == []


@pytest.mark.parametrize("restart", RESTARTS)
def test_time_without_a_coordinator_counts(restart: str) -> None:
    """Two partitions have no owner from a's report to b's next heartbeat; the restart is in between."""
    second = rebalances(told(RESTARTS[restart], after=5, away_ms=AWAY_MS))[-1]
    assert (second.took_ms, second.unassigned_ms) == (4_000 + AWAY_MS, 2 * (2_000 + AWAY_MS))
    assert [at_ms - second.began_ms for at_ms in second.restarts_ms] == [2_000]
    assert second.outcome is RebalanceOutcome.STABLE and second.joined_after_ms == {"a": 2_000, "b": 4_000 + AWAY_MS}


def test_every_restart_is_noted() -> None:
    world = GroupWorld(t=4)
    for _ in newcomer(world):
        world.world.crash()
    assert len(rebalances(world)[-1].restarts_ms) == STEPS - 3
    assert [one.cause for one in rebalances(world)] == [Cause.NEW_MEMBER] * 2


def test_a_rebalance_without_a_coordinator_is_running() -> None:
    facts = told(RESTARTS["moves"], after=5).world.facts
    until = next(at for at, fact in enumerate(facts) if isinstance(fact, GroupUnloaded))
    assert fold(facts[: until + 1])[-1].outcome is RebalanceOutcome.RUNNING


@pytest.mark.parametrize("restart", RESTARTS)
def test_a_restart_is_kept_by_facts_and_bookmarks_that_are_written_and_read_again(restart: str) -> None:
    world = told(RESTARTS[restart], after=4)
    mark, ended = Bookmark("g"), []
    for fact in world.world.facts:
        again = read_fact(write_fact(fact))
        assert again is not None
        one = mark.add(again)
        ended += [] if one is None else [one]
        mark = Bookmark.from_json("g", json.loads(json.dumps(mark.to_json())))
    assert ended == rebalances(world) and ended[-1].restarts_ms


def test_the_log_shows_the_same_rebalance_without_the_restart() -> None:
    """The log has no record of it."""
    world = told(RESTARTS["crashes"], after=4)
    read = [(entry.at_ms, read_consumer_group_record(entry.key, entry.value)) for entry in world.world.log]
    seen = fold(derived_facts([(at_ms, one) for at_ms, one in read if one is not None], world.image.topic_names))[-1]
    known = rebalances(world)[-1]
    assert known.restarts_ms and not seen.restarts_ms
    assert (seen.took_ms, seen.unassigned_ms, seen.moves) == (known.took_ms, known.unassigned_ms, known.moves)


def without_the_last_change(facts: list[Fact], count: int) -> list[Fact]:
    """Return facts in which those before the last load are missing, as after a crash that was faster than them."""
    loaded = max(at for at, fact in enumerate(facts) if isinstance(fact, GroupLoaded))
    return [*facts[: loaded - count], *facts[loaded:]]


def test_a_group_that_is_loaded_stable_has_ended_its_rebalance() -> None:
    """Its last step was durable; the coordinator crashed before the facts of it were."""
    facts = without_the_last_change(told(RESTARTS["crashes"], after=STEPS - 1).world.facts, 2)
    assert fold(facts[:-1])[-1].outcome is RebalanceOutcome.RUNNING
    last = fold(facts)[-1]
    assert (last.outcome, last.ended_ms, last.restarts_ms) == (
        RebalanceOutcome.STABLE,
        facts[-1].at_ms,
        [last.ended_ms],
    )
    assert {move.partition for move in last.moves} == {("t", 2), ("t", 3)} and last.kept == 2


def test_a_rebalance_is_lost_if_another_epoch_has_begun_since() -> None:
    """The facts of that epoch are missing: what became of the one before is not known."""
    world = told(RESTARTS["crashes"], after=4)
    facts = [replace(fact, generation_id=9) if isinstance(fact, GroupLoaded) else fact for fact in world.world.facts]
    assert [one.outcome for one in fold(facts)] == [RebalanceOutcome.STABLE, RebalanceOutcome.LOST]


def test_a_restart_keeps_its_distance_when_the_clock_is_set() -> None:
    facts = told(RESTARTS["crashes"], after=4).world.facts
    loaded = max(at for at, fact in enumerate(facts) if isinstance(fact, GroupLoaded))
    ledger = Ledger()
    hour_ms = 3_600_000
    later = [replace(fact, at_ms=fact.at_ms + hour_ms) for fact in facts[loaded + 1 :]]
    for fact in [*facts[: loaded + 1], ClockSet(facts[loaded].at_ms + hour_ms, "", hour_ms), *later]:
        ledger.add(fact)
    one, other = ledger.rebalances_of("g")[-1], fold(facts)[-1]
    assert one.took_ms == other.took_ms
    assert [at - one.began_ms for at in one.restarts_ms] == [at - other.began_ms for at in other.restarts_ms]
