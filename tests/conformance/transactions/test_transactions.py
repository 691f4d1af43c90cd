"""Our broker answers each request in each state of a transaction as Apache Kafka 4.3.1 did when it was recorded."""

from __future__ import annotations

import pytest

from conformance.transactions.cells import STATES, all_cells, ask
from conformance.transactions.recording import RECORDED, read
from conformance.transactions.sides import OurSide


def test_every_cell_is_recorded() -> None:
    assert list(read(RECORDED)) == list(all_cells()), "record again: make conformance KEEP=1"


@pytest.mark.parametrize("state", STATES)
def test_there_are_no_differences(state: str) -> None:
    """Section 4 of docs/semantics-transactions.md, TI3, TI5, TI6, TE1, TE2, TT2, TT3."""
    ours = OurSide()
    recorded = {request: answer for (one, request), answer in read(RECORDED).items() if one == state}
    answers = {request: ask(ours, number, state, request) for number, request in enumerate(recorded)}
    different = {
        request: (theirs, answers[request]) for request, theirs in recorded.items() if answers[request] != theirs
    }
    assert not different
