"""`kill -9` in the middle of transactions: each is seen as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.transactions import kill_again_and_again

pytestmark = pytest.mark.real_time

KILLS = 4


def test_transactions_are_whole_after_a_few_kills(tmp_path: Path) -> None:
    """TR3, TR5, TI5; `make transactions-soak` does it 300 times."""
    outcome = kill_again_and_again(tmp_path / "data", KILLS, seed=5, log=tmp_path / "log")
    assert outcome.kills == KILLS
    assert outcome.committed > 0 and outcome.by_librdkafka > 0
