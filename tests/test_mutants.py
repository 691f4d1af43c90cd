"""The list of mutants fits the sources; `make mutants` runs them."""

from __future__ import annotations

import pytest

from mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule} {mutant.what}")
def test_a_mutant_changes_exactly_one_place(mutant: Mutant) -> None:
    text = (ROOT / "src" / "coterie" / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_at_least_thirty_mutants_and_most_rules_have_one() -> None:
    assert len(MUTANTS) >= 30
    assert len({mutant.rule for mutant in MUTANTS}) >= 25
