"""The list of mutants fits the sources; `make mutants` runs them."""

from __future__ import annotations

import json

import pytest

from mutants import MUTANTS, ROOT, Mutant
from mutants.__main__ import NOTICED


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule} {mutant.what}")
def test_a_mutant_changes_exactly_one_place(mutant: Mutant) -> None:
    text = (ROOT / "src" / "coterie" / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_for_every_mutant_it_is_written_down_what_noticed_it() -> None:
    """`python -m mutants --keep` writes it; what is tried first must be about a mutant that exists."""
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    assert sorted(json.loads(NOTICED.read_text())) == sorted(names)
