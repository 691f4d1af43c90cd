"""Runs: a fixed set of seeds in which everything holds; the same seed is the same run; a failure is told and shrunk."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys

import pytest

from coterie.protocol.apis import by_key, heartbeat, join_group
from coterie.sim import Plan, simulate
from coterie.sim.clients import Asked, Client
from coterie.sim.faults import PowerLostAfterRestart
from coterie.sim.invariants import INVARIANTS
from coterie.sim.plan import LEAST_FAULTS, WORKLOADS
from coterie.sim.run import shrink
from coterie.sim.steps import FaultStep, GrowTopic
from coterie.sim.world import Observer
from coterie.stories.grid import read

SEED = 2
"""`make sim` runs a hundred, and `make sim-soak` ten thousand."""


@pytest.mark.parametrize("workload", WORKLOADS)
def test_everything_holds(workload: str) -> None:
    """Ten simulated minutes with at least five faults, then everybody comes to rest."""
    plan = Plan.draw(SEED, workload)
    assert plan.length_ms >= 600_000 and plan.faults >= LEAST_FAULTS
    outcome = simulate(plan)
    assert outcome.held, outcome.report()
    assert outcome.account.counts["every record is processed"] > 0
    assert sum(outcome.account.faults.values()) == plan.faults


def test_work_begun_on_a_slow_disk_ends_when_the_disk_is_fast_again() -> None:
    """It kept the slow disk's speed: here a checkpoint took 1 000 s, and CreatePartitions waited behind it."""
    assert simulate(Plan.draw(712, "several-groups")).held


PRINT = "from coterie.sim import Plan, simulate; print(simulate(Plan.draw(5, 'flapping', hours=0.05)).fingerprint)"


def test_a_seed_is_the_same_run_in_every_process_and_with_every_hash_seed() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", PRINT],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }
    assert len(found) == 1


def test_another_seed_is_another_run() -> None:
    prints = {simulate(Plan.draw(seed, "steady", hours=0.02)).fingerprint for seed in range(4)}
    assert len(prints) == 4


class NobodyIsCutOff(Observer):
    """An invariant that does not hold, for whoever wants to see one fail."""

    name = "nobody is cut off"

    def happened(self, _who: str, what: str) -> None:
        if ": cut off" in what:
            self.fails("somebody was")


def test_observers_hear_every_answer_also_those_that_no_task_waits_for() -> None:
    """The consumer sends heartbeats of classic groups by `BrokerConnection.ask`."""
    heard: set[str] = set()

    class Answers(Observer):
        name = "answers"

        def answered(self, _client: object, asked: Asked, _answer: object) -> None:
            heard.add(asked.module.API.name)

    outcome = simulate(Plan.draw(1, "steady", members=2, hours=0.02, faults=0), [Answers])
    assert outcome.held, outcome.what
    assert heard >= {"Heartbeat", "JoinGroup", "SyncGroup", "Fetch", "Metadata"}


def test_an_observer_hears_of_the_apis_that_it_asks_for_and_of_all_without_asking() -> None:
    heard: dict[str, set[str]] = {"some": set(), "all": set()}

    class All(Observer):
        name = "all"

        def request_arrived(self, _machine: object, _link: object, frame: bytes) -> None:
            heard[self.name].add(by_key[frame[1]].name)

        def answered(self, _client: object, asked: Asked, _answer: object) -> None:
            heard[self.name].add(f"answer to {asked.module.API.name}")

    class Some(All):
        name = "some"
        requests = (join_group.API.key,)
        answers = (heartbeat.API.key,)

    assert simulate(Plan.draw(1, "steady", members=2, hours=0.02, faults=0), [All, Some]).held
    assert heard["some"] == {"JoinGroup", "answer to Heartbeat"}
    assert heard["all"] >= {"JoinGroup", "Heartbeat", "Fetch", "answer to Fetch", "answer to Metadata"}


def test_a_run_ends_its_clients_also_those_that_are_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coroutine that waits while the garbage collector closes it is reported by Python, and by nobody else."""
    noise: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", noise.append)
    clients: list[Client] = []

    class ClosesAtTheEnd(Observer):
        name = "closes at the end"

        def ended(self) -> None:
            clients.extend(self.world.processes)
            for consumer in self.world.consumers.values():
                consumer.close()

    assert simulate(Plan.draw(3, "steady", members=3, hours=0.02, faults=0), [ClosesAtTheEnd]).held
    assert len(clients) == 5, "three consumers, a producer and the admin"
    assert not any(client.is_alive or asyncio.all_tasks(client.loop) for client in clients)
    gc.collect()
    assert not noise


def test_a_failure_is_told_with_its_seed_the_command_and_the_story_and_shrinks_to_what_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coterie.sim.run.INVARIANTS", (*INVARIANTS, NobodyIsCutOff))
    seed = next(
        seed
        for seed in range(100)
        if any(type(step).__name__ == "CutOff" for step in Plan.draw(seed, "steady", hours=0.05).steps)
    )
    outcome = simulate(Plan.draw(seed, "steady", hours=0.05))
    assert outcome.broken == "nobody is cut off"
    small = shrink(outcome)
    assert [type(step).__name__ for _, step in small.plan.kept] == ["CutOff"]
    dropped = sorted(small.plan.dropped)
    assert small.command.startswith(f"coterie sim --seed {seed} --workload steady")
    again = simulate(Plan.draw(seed, "steady", hours=0.05, members=small.plan.members, drop=dropped))
    assert (again.broken, again.fingerprint) == (small.broken, small.fingerprint)
    assert read(small.story), "the story is a grid that others can read"
    told = small.report()
    assert f"seed {seed}" in told and small.command in told and "BROKEN" in told


def test_a_plan_is_drawn_whole_and_any_step_can_be_left_out() -> None:
    plan = Plan.draw(9, "rolling-deploy", members=3)
    assert plan == Plan.draw(9, "rolling-deploy", members=3)
    assert plan.members == 3 and plan.without([0]).kept == plan.kept[1:]
    assert len(list(plan.script())) == len(plan.steps)
    assert any(isinstance(step, FaultStep) for step in plan.steps)


def test_seeds_draw_all_workloads_and_a_slow_disk_only_where_it_belongs() -> None:
    plans = [Plan.draw(seed) for seed in range(200)]
    assert {plan.workload for plan in plans} == set(WORKLOADS)
    assert all("slow-disk" in plan.workload for plan in plans if plan.disk_ms > 200)


def test_a_broker_is_at_times_restarted_while_new_partitions_are_empty_and_never_when_nothing_is_to_go_wrong() -> None:
    aimed = [
        fault
        for seed in range(10)
        for plan in [Plan.draw(seed, "growing-topics")]
        for fault in plan.steps
        if isinstance(fault, PowerLostAfterRestart)
        if any(isinstance(step, GrowTopic) and 0 <= fault.at_ms - step.at_ms <= 3_000 for step in plan.steps)
    ]
    assert len(aimed) >= 5
    assert not any(isinstance(step, FaultStep) for step in Plan.draw(0, "growing-topics", faults=0).steps)


def test_without_faults_a_steady_group_has_one_rebalance_for_each_wave_of_members() -> None:
    """What is printed as exercised is what happened."""
    outcome = simulate(Plan.draw(0, "steady", members=4, faults=0))
    assert outcome.held
    assert set(outcome.account.causes) <= {"new member", "protocols changed"}, (
        "the second is KIP-429's second rebalance"
    )
    assert not outcome.account.faults
    assert outcome.account.cells["Heartbeat", "Stable"] > 500
