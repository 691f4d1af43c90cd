"""A room for each test: see room.py."""

from __future__ import annotations

import pytest

from client.member.room import Room


@pytest.fixture
def room() -> Room:
    """One topic `t` of four partitions, and a coordinator without the initial delay."""
    return Room()
