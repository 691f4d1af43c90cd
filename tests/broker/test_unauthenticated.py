"""Clients that never log in, beside a member that has: a little of each attack. `make soak` has much of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.unauthenticated import strangers
from soak.unauthenticated_attacks import EVERYTHING

pytestmark = pytest.mark.real_time


def test_strangers_leave_no_memory_and_no_password_behind_and_the_member_in_its_group(tmp_path: Path) -> None:
    outcome = strangers({"a little of each": EVERYTHING}, 1.0, tmp_path)
    assert not outcome.problems
    (row,) = outcome.rows
    assert row.attempts >= EVERYTHING.attempts and row.latencies
