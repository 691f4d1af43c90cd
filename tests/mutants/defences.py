"""What may notice a defect: the tests of its room, or simulated worlds. Each says what it was that noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

from mutants.mutant import ROOT, SIM, Mutant, copy_with

__all__ = ["Caught", "caught_by"]

TESTS = ["tests/group", "tests/coordinator/test_coordinator.py", "tests/ledger/test_rounds.py", "tests/stories"]
MEMBER_TESTS = ["tests/client/member"]
MOST_S = 900
FOUND = "CAUGHT "
HUNT = """
import sys
from coterie.sim import Plan, simulate
for seed in range(int(sys.argv[1])):
    found = simulate(Plan.draw(seed, sys.argv[2] or None))
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


def caught_by(mutant: Mutant, seeds: int) -> Caught | None:
    """By the first that notices; None if nothing does."""
    with copy_with(mutant) as source:
        command = [sys.executable, "-c", HUNT, str(seeds), mutant.workload] if mutant.rule == SIM else _tests(mutant)
        env = {**os.environ, "PYTHONPATH": f"{source}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            run = subprocess.run(
                command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=MOST_S
            )
        except subprocess.TimeoutExpired:
            return Caught("simulation" if mutant.rule == SIM else "test", f"it never ends ({MOST_S} s)")
    lines = run.stdout.splitlines()
    for at, line in enumerate(lines):
        if line.startswith(FOUND):
            defence, _, where = line.removeprefix(FOUND).partition(": ")
            return Caught(defence, where, lines[at + 1] if mutant.rule == SIM else "")
    if run.returncode:
        raise SystemExit(f"{mutant.what}: nothing was tried\n{run.stdout[-2_000:]}{run.stderr[-2_000:]}")
    return None


def _tests(mutant: Mutant) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    command += ["-p", "mutants.kinds", "--timeout", "20", "--timeout-method", "signal"]  # some mutants never end
    return [*command, *(MEMBER_TESTS if mutant.rule.startswith("M") else TESTS)]
