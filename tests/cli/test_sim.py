"""`coterie sim`, as it is called."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie.cli.app import app
from coterie.cli.sim import parse_numbers
from coterie.errors import CoterieError
from coterie.facts import RebalanceStarted
from coterie.sim.invariants import INVARIANTS
from coterie.sim.plan import Plan
from coterie.sim.run import Outcome, simulate
from coterie.sim.world import Observer

SHORT = ("--hours", "0.02", "--members", "2")


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["sim", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def test_one_seed_prints_its_plan_first_and_then_what_was_exercised() -> None:
    code, out = call("--seed", "7", "--workload", "steady", *SHORT)
    assert code == 0
    assert out.startswith("seed 7: steady, 2 members, 3 nodes, 1.2 minutes")
    assert "requests by group state:" in out and "rebalances: new member" in out and "1 seeds, 0 failed" in out


def test_many_seeds_and_every_step() -> None:
    code, out = call("--seeds", "0-2", "--workload", "flapping", "--grid", *SHORT)
    assert code == 0
    assert out.count("at_ms") == 3 and "3 seeds, 0 failed" in out


@pytest.mark.parametrize("seed", ["1", "7", "11"])
def test_a_story_is_one_screen_with_who_what_and_how_to_see_every_step(seed: str) -> None:
    code, out = call("--seed", seed, "--story", "--hours", "0.1")
    story = out.splitlines()[: out.splitlines().index(next(line for line in out.splitlines() if "fingerprint" in line))]
    assert code == 0 and len(story) <= 40 and all(len(line) <= 110 for line in story[:-1])
    assert story[0].startswith(f"seed {seed}: ") and any(line.startswith("Faults: ") for line in story)
    assert "All invariants held" in out and "rebalances (" in out and "at_ms" not in out
    assert story[-1].startswith(f"Every step: coterie sim --seed {seed} ") and story[-1].endswith(" --grid")


def test_a_page_has_the_summary_and_the_owners_of_each_partition(tmp_path: Path) -> None:
    file = tmp_path / "seed.html"
    code, out = call("--seed", "7", "--workload", "steady", "--page", str(file), *SHORT)
    page = file.read_text()
    assert code == 0 and "1 seeds, 0 failed" in out and "What followed:" not in out
    assert "<title>Seed 7</title>" in page and "What followed:" in page and "All invariants held" in page
    data = json.loads(page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])
    groups = {one["group"]: one for one in data["groups"]}
    assert groups["g"]["rebalances"] >= 1 and groups["g"]["partitions"] and groups["g"]["stories"]
    assert "The run begins at 01:00:00." in page


def test_a_page_is_of_one_seed() -> None:
    result = CliRunner().invoke(app, ["sim", "--seeds", "0-2", "--page", "never.html"])
    assert result.exit_code == 1 and "3 seeds: give --seed" in result.output


def test_the_story_of_a_failure_says_what_broke_and_when(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoRebalance(Observer):
        name = "no rebalance"

        def on_fact(self, _machine: object, fact: object) -> None:
            if isinstance(fact, RebalanceStarted):
                self.fails("there was one")

    monkeypatch.setattr("coterie.sim.run.INVARIANTS", (*INVARIANTS, NoRebalance))
    code, out = call("--seed", "3", "--workload", "steady", "--story", "--no-shrink", *SHORT)
    summary = out.partition("Every step: ")[0]
    assert code == 1
    assert "BROKEN at " in summary and "no rebalance: there was one" in summary and "| join " in summary, summary


def test_a_failure_is_exit_status_1_with_its_seed_and_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Never(Observer):
        name = "nobody comes"

        def came(self, _consumer: object) -> None:
            self.fails("somebody came")

    monkeypatch.setattr("coterie.sim.run.INVARIANTS", (*INVARIANTS, Never))
    code, out = call("--seeds", "4-5", "--workload", "steady", *SHORT)
    assert code == 1
    assert "BROKEN" in out and "replay: coterie sim --seed 4 --workload steady" in out and "2 failed" in out


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_who_interrupts_is_told_what_came_of_the_seeds_so_far(jobs: str) -> None:
    program = [sys.executable, "-m", "coterie", "sim", "--seeds", "0-9999", "--hours", "0.01", "--jobs", jobs]
    process = subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    assert "of 10000 seeds" in process.stderr.readline()  # it is under way
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does, to all of them
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "requests by group state" in said
    assert re.search(r"^interrupted after \d+ of 10000 seeds, 0 failed", said, re.MULTILINE)


def test_an_interrupt_in_the_callback_of_a_weak_reference_ends_the_run_after_its_seed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted_in_a_callback(plan: Plan) -> Outcome:
        held = frozenset({plan.seed})
        reference = weakref.ref(held, lambda _: signal.raise_signal(signal.SIGINT))
        del held
        assert reference() is None
        return simulate(plan)

    monkeypatch.setattr("coterie.cli.sim.simulate", interrupted_in_a_callback)
    code, out = call("--seeds", "0-2", "--workload", "steady", *SHORT)
    assert code == 130 and "interrupted after 1 of 3 seeds, 0 failed" in out
    assert "KeyboardInterrupt" not in capfd.readouterr().err


def test_seeds_are_named_in_three_ways() -> None:
    assert parse_numbers("7") == [7]
    assert parse_numbers("1,4,10-12") == [1, 4, 10, 11, 12]
    with pytest.raises(CoterieError, match="is not a list of numbers"):
        parse_numbers("all")
