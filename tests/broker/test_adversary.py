"""Attacks on a broker beside a member that behaves, each for a moment; `make soak` has all of them for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.adversary import adversary
from soak.attacks import ATTACKS, FLOODS

pytestmark = pytest.mark.real_time

CHOSEN = ("1 of 2 MB, then closed, ten at a time", "closed while requests are parked")
FLOOD = "flood of Heartbeat, 2 connections"


def test_attacks_leave_no_memory_behind_and_the_member_in_its_group(tmp_path: Path) -> None:
    attacks = {name: ATTACKS[name] for name in CHOSEN} | {FLOOD: FLOODS[FLOOD]}
    outcome = adversary(attacks, attacks, 0.3, tmp_path / "data", tmp_path / "log")
    assert not outcome.problems
    assert [row.name for row in outcome.rows] == list(attacks)
    assert all(row.beats for row in outcome.rows)
