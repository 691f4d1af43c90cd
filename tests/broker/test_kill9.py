"""`kill -9` under commit and produce load: nothing acknowledged is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.kill9 import kill_again_and_again

pytestmark = pytest.mark.real_time

KILLS = 10


def test_nothing_acknowledged_is_lost_to_ten_kills(tmp_path: Path) -> None:
    """Rules 22 and C4, acks=all, D1; `make soak` does it 300 times."""
    outcome = kill_again_and_again(tmp_path / "data", KILLS, seed=9, log=tmp_path / "log")
    assert outcome.kills == KILLS
    assert outcome.acknowledged > 20 * KILLS
    assert outcome.idle_lives < KILLS // 2, "the load was too light to find anything"
