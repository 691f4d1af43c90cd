"""What may notice a defect: the tests of its room, or simulated worlds. Each says what it was that noticed.

What noticed it the last time is tried first (`noticed.json`, written with --keep), since most need then a second or
two; if that does not see it any more, everything is tried.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mutants.mutant import ROOT, SIM, Mutant, copy_with

__all__ = ["Caught", "caught_by"]

TESTS = (
    "tests/coordinator/classic",
    "tests/coordinator/offsets",
    "tests/coordinator/test_coordinator.py",
    "tests/ledger/test_rebalances.py",
    "tests/stories",
)
MEMBER_TESTS = ("tests/client/member",)
MOST_S = 900
FOUND = "CAUGHT "
SEED = "seed "
HUNT = """
import sys
from coterie.sim import Plan, simulate
for seed in map(int, sys.argv[2:]):
    found = simulate(Plan.draw(seed, sys.argv[1] or None))
    if not found.held:
        print(f"CAUGHT simulation: seed {seed} ({found.plan.workload}), {found.broken}", flush=True)
        print(found.what.strip().splitlines()[-1])
        break
"""


@dataclass(frozen=True)
class Caught:
    defence: str
    """A story, a property, a test, or simulation."""
    where: str
    detail: str = ""

    @property
    def hint(self) -> str:
        """What to try first the next time."""
        return self.where.split(" (")[0] if self.defence == "simulation" else self.where


def caught_by(mutant: Mutant, seeds: int, hint: str | None) -> Caught | None:
    """By the first that notices; None if nothing does."""
    with copy_with(mutant) as source:
        for command, must_run in _attempts(mutant, seeds, hint):
            caught = _run(command, source, must_run=must_run)
            if caught is not None:
                return caught
    return None


def _attempts(mutant: Mutant, seeds: int, hint: str | None) -> Iterator[tuple[list[str], bool]]:
    """Commands, the cheapest first; and whether each has something to try for certain: a test may have gone."""
    if hint is not None and hint.startswith(SEED) and int(hint.removeprefix(SEED)) < seeds:
        yield _hunt(mutant, [int(hint.removeprefix(SEED))]), True
    elif hint is not None:
        yield _tests([hint]), False
    if mutant.tests or mutant.rule != SIM:
        room = MEMBER_TESTS if mutant.rule.startswith("M") else TESTS
        yield _tests(mutant.tests or room), True
    else:
        yield _hunt(mutant, range(seeds)), True


def _hunt(mutant: Mutant, seeds: Sequence[int]) -> list[str]:
    return [sys.executable, "-c", HUNT, mutant.workload, *map(str, seeds)]


def _tests(which: Sequence[str]) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    command += ["-p", "mutants.kinds", "--timeout", "20", "--timeout-method", "signal"]  # some mutants never end
    return [*command, *which]


def _run(command: list[str], source: Path, *, must_run: bool) -> Caught | None:
    env = {**os.environ, "PYTHONPATH": f"{source}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
    simulates = HUNT in command
    try:
        run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=MOST_S)
    except subprocess.TimeoutExpired:
        return Caught("simulation" if simulates else "test", f"it never ends ({MOST_S} s)")
    lines = run.stdout.splitlines()
    for at, line in enumerate(lines):
        if line.startswith(FOUND):
            defence, _, where = line.removeprefix(FOUND).partition(": ")
            if simulates:
                _check_that_it_holds_without(command[3], where.split()[1])
            return Caught(defence, where, lines[at + 1] if simulates else "")
    if run.returncode and must_run:
        raise SystemExit(f"nothing was tried\n{run.stdout[-2_000:]}{run.stderr[-2_000:]}")
    return None


@cache
def _check_that_it_holds_without(workload: str, seed: str) -> None:
    """A world that breaks by itself notices nothing."""
    command = [sys.executable, "-c", HUNT, workload, seed]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    if run.stdout:
        raise SystemExit(f"seed {seed} {workload} breaks without a defect, too; repair that first:\n{run.stdout}")
