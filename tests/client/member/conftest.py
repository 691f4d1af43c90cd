"""A harness for each test: see harness.py."""

from __future__ import annotations

import pytest

from client.member.harness import Harness


@pytest.fixture
def harness() -> Harness:
    """One topic `t` of four partitions, and a coordinator without the initial delay."""
    return Harness()
