"""A few thousand hostile frames; `make soak` has a million."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.fuzz import fuzz_node
from soak.fuzz_sockets import fuzz_sockets
from soak.watch import LEAST_WATCHED

FRAMES = 4_000


def test_thousands_of_hostile_frames_do_no_harm() -> None:
    """No exception of ours, every answer can be read, nothing is kept of who has gone."""
    outcome = fuzz_node(FRAMES, seed=10)
    assert outcome.frames == FRAMES
    assert outcome.answers > FRAMES // 4 and len(outcome.by_api) > 25, "they got nowhere"
    assert outcome.reached["JoinPhaseCompleted"] > 5 and outcome.reached["OffsetsStored"] > 5


@pytest.mark.real_time
def test_a_member_is_answered_while_strangers_send_nonsense(tmp_path: Path) -> None:
    outcome = fuzz_sockets(1_000, 10, tmp_path / "data", tmp_path / "log")
    assert outcome.frames >= 1_000 and outcome.connections > 100 and outcome.watched >= LEAST_WATCHED
