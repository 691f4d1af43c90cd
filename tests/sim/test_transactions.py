"""Transactions in simulated worlds: processes die, pause and are fenced within them, and each input counts once."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.coordinator.offsets.stored_offsets import StoredOffsets
from coterie.coordinator.transactions import partitions
from coterie.errors import ErrorCode
from coterie.sim import Outcome, Plan, simulate
from coterie.sim.faults import BrokerRestarted, DiesInTransaction, PausedInTransaction, WallClockChange
from coterie.sim.plan import TRANSACTIONS
from coterie.sim.steps import Come, PlanStep
from coterie.sim.transactional import Moment, SimTransaction, Stage, TransactionalProcess
from coterie.sim.world import Observer, World
from coterie.structs import replace


class Watched(Observer):
    name = "watched"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.stages: list[tuple[str, Stage]] = []
        self.lives: list[str] = []

    def initialized(self, process: TransactionalProcess, _identity: object) -> None:
        self.lives.append(process.name)

    def transaction_changed(self, _process: TransactionalProcess, transaction: SimTransaction) -> None:
        self.stages.append((transaction.name, transaction.stage))


def plan(*more: PlanStep, minutes: float = 2, abort_share: float = 0.0, timeout_ms: int = 20_000) -> Plan:
    drawn = Plan.draw(5, TRANSACTIONS, hours=minutes / 60, members=2, faults=0, nodes=1)
    kept: list[PlanStep] = []
    for step in drawn.steps:
        if isinstance(step, Come):
            if step.at_ms > 30_000:
                continue
            habits = replace(
                step.habits,
                abort_share=abort_share,
                slow_share=0.0,
                transaction_timeout_ms=timeout_ms,
                session_timeout_ms=10_000,
            )
            kept.append(replace(step, habits=habits))
        elif type(step).__name__ != "Leave":
            kept.append(step)
    steps = tuple(sorted([*kept, *more], key=lambda step: step.at_ms))
    return replace(drawn, steps=steps, every_ms=1_500, disk_ms=2, delay_ms=1, jitter_ms=3, drift_ppm=0)


def run(of: Plan) -> tuple[Outcome, Watched]:
    watched: list[Watched] = []

    def watch(world: World) -> Watched:
        watched.append(Watched(world))
        return watched[0]

    return simulate(of, watch=[watch]), watched[0]


def test_without_faults_each_input_has_one_output_whether_transactions_are_aborted_or_not() -> None:
    outcome, watched = run(plan(abort_share=0.3))
    assert outcome.held, outcome.report()
    counts = outcome.account.counts
    assert counts["offsets go with output"] > 50 and counts["transactions are whole"] > 20
    stages = [stage for _, stage in watched.stages]
    assert stages.count(Stage.ABORTED) > 5 and stages.count(Stage.COMMITTED) == counts["decisions stand"]


def test_a_process_dies_at_each_moment_of_a_transaction_and_its_successor_goes_on() -> None:
    deaths = [
        DiesInTransaction(at_ms=30_000 + 50_000 * at, for_ms=30_000, slot="c0", moment=moment, loses_power=at % 2 > 0)
        for at, moment in enumerate(Moment)
    ]
    outcome, watched = run(plan(*deaths, minutes=4))
    assert outcome.held, outcome.report()
    assert [life for life in watched.lives if life.startswith("c0")] == ["c0", "c0.2", "c0.3", "c0.4", "c0.5"]
    last = {name: stage for name, stage in watched.stages if name.startswith("c0")}
    assert len([stage for stage in last.values() if stage is Stage.BEGUN]) == 2, "after begin and after some sends"
    assert Stage.OFFSETS in last.values() and Stage.COMMITTING in last.values()


def test_what_a_process_leaves_behind_for_good_is_aborted_after_its_timeout() -> None:
    dies = DiesInTransaction(at_ms=30_000, for_ms=90_000, slot="c1", moment=Moment.SOME_SENT, for_good=True)
    outcome, watched = run(plan(dies, timeout_ms=120_000))
    assert outcome.held, outcome.report()
    assert [life for life in watched.lives if life.startswith("c1")] == ["c1"]
    assert outcome.account.simulated_ms > 30_000 + 120_000, "the run waits for the end of the transaction"


def test_a_transaction_that_began_by_a_clock_that_was_ahead_ends_after_a_restart() -> None:
    dies = DiesInTransaction(at_ms=30_000, for_ms=60_000, slot="c1", moment=Moment.SOME_SENT, for_good=True)
    ahead = WallClockChange(at_ms=20_000, for_ms=60_000, by_ms=10_800_000)
    outcome, _ = run(plan(ahead, dies, BrokerRestarted(at_ms=75_000, for_ms=500), timeout_ms=60_000))
    assert outcome.held, outcome.report()


ZOMBIE = PausedInTransaction(at_ms=30_000, for_ms=40_000, slot="c0", moment=Moment.SOME_SENT, has_successor=True)


def test_a_zombie_that_wakes_up_is_fenced_by_its_successor() -> None:
    outcome, watched = run(plan(ZOMBIE, timeout_ms=120_000))
    assert outcome.held, outcome.report()
    assert "c0.2" in watched.lives
    last = {name: stage for name, stage in watched.stages if name.startswith("c0/")}
    assert list(last.values())[-1] in {Stage.BEGUN, Stage.OFFSETS}
    assert "a newer producer has its transactional id" in outcome.story


def test_pending_offsets_that_survive_an_abort_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = StoredOffsets.end_transaction

    def counts_anyway(self: StoredOffsets, producer_id: int, *, committed: bool) -> Any:
        return ended(self, producer_id, committed=committed or True)

    monkeypatch.setattr(StoredOffsets, "end_transaction", counts_anyway)
    outcome, _ = run(plan(abort_share=0.3))
    assert outcome.broken in {"offsets go with output", "converges"}, outcome.report()


def test_an_epoch_that_is_fenced_and_taken_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = partitions._judge

    def forgives(transaction: Any, request: Any) -> ErrorCode:
        error = judge(transaction, request)
        return ErrorCode.NONE if error is ErrorCode.PRODUCER_FENCED else error

    monkeypatch.setattr(partitions, "_judge", forgives)
    outcome, _ = run(plan(ZOMBIE, timeout_ms=120_000))
    assert outcome.broken == "fenced writes nothing", outcome.report()


def test_seeds_get_transactions_by_a_stream_of_their_own() -> None:
    """The other seeds have the same worlds as before there were transactions."""
    drawn = [seed for seed in range(100) if Plan.draw(seed).workload == TRANSACTIONS]
    assert drawn == [12, 17, 20, 30, 38, 74, 91]
    assert not any(
        isinstance(step, (DiesInTransaction, PausedInTransaction))
        for seed in range(20)
        for step in Plan.draw(seed, "steady").steps
    )
