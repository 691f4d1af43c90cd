"""The list of mutants fits the sources; `make mutants` runs them."""

from __future__ import annotations

import json

import pytest

from mutants import MUTANTS, ROOT, SIM, Mutant
from mutants.__main__ import NOTICED


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule} {mutant.what}")
def test_a_mutant_changes_exactly_one_place(mutant: Mutant) -> None:
    text = (ROOT / "src" / "coterie" / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_at_least_thirty_break_rules_and_most_rules_have_one() -> None:
    rules = [mutant.rule for mutant in MUTANTS if mutant.rule != SIM]
    assert len(rules) >= 30
    assert len(set(rules)) >= 25


def test_at_least_twenty_five_are_for_the_simulator_and_they_are_everywhere() -> None:
    files = [mutant.file for mutant in MUTANTS if mutant.rule == SIM]
    assert len(files) >= 25
    assert {file.split("/")[0] for file in files} >= {"broker", "client", "coordinator", "storage"}
    assert {file.split("/")[1] for file in files} >= {"classic", "runtime"}


def test_for_every_mutant_it_is_written_down_what_noticed_it() -> None:
    """`python -m mutants --keep` writes it; what is tried first must be about a mutant that exists."""
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    assert sorted(json.loads(NOTICED.read_text())) == sorted(names)
