"""The list of defects for the simulator fits the sources; `make sim-mutants` runs them."""

from __future__ import annotations

import pytest

from sim_mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_a_mutant_changes_exactly_one_place(mutant: Mutant) -> None:
    text = (ROOT / "src" / "coterie" / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_there_are_enough_and_they_are_everywhere() -> None:
    assert len(MUTANTS) >= 25
    assert {mutant.file.split("/")[0] for mutant in MUTANTS} >= {"broker", "client", "coordinator", "group", "log"}
