"""Transactions in simulated worlds: each input record counts once."""

from __future__ import annotations

from coterie.sim import Outcome, Plan, simulate
from coterie.sim.faults import DiesInTransaction, PausedInTransaction
from coterie.sim.plan import TRANSACTIONS
from coterie.sim.steps import Come, Leave, PlanStep
from coterie.sim.transactional import SimTransaction, Stage, TransactionalProcess
from coterie.sim.world import Observer, World
from coterie.structs import replace


class Watched(Observer):
    name = "watched"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.stages: list[Stage] = []

    def transaction_changed(self, _process: TransactionalProcess, transaction: SimTransaction) -> None:
        self.stages.append(transaction.stage)


def plan(abort_share: float) -> Plan:
    """Two minutes of two processes that stay, without faults."""
    drawn = Plan.draw(5, TRANSACTIONS, hours=2 / 60, members=2, faults=0, nodes=1)
    kept: list[PlanStep] = []
    for step in drawn.steps:
        if isinstance(step, Come):
            if step.at_ms <= 30_000:
                habits = replace(step.habits, abort_share=abort_share, slow_share=0.0, session_timeout_ms=10_000)
                kept.append(replace(step, habits=habits))
        elif not isinstance(step, Leave):
            kept.append(step)
    return replace(drawn, steps=tuple(kept), every_ms=1_500, disk_ms=2, delay_ms=1, jitter_ms=3, drift_ppm=0)


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
    assert watched.stages.count(Stage.ABORTED) > 5
    assert watched.stages.count(Stage.COMMITTED) == counts["decisions stand"]


def test_seeds_get_transactions_by_a_stream_of_their_own() -> None:
    """The other seeds have the same worlds as before there were transactions."""
    drawn = [seed for seed in range(100) if Plan.draw(seed).workload == TRANSACTIONS]
    assert drawn == [12, 17, 20, 30, 38, 74, 91]
    assert not any(
        isinstance(step, (DiesInTransaction, PausedInTransaction))
        for seed in range(20)
        for step in Plan.draw(seed, "steady").steps
    )
