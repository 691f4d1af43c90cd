"""Fixtures for stories, how hard the property tests search, and which tests stay together.

COTERIE_HYPOTHESIS=soak looks longer, and elsewhere each time.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from coterie.stories import Story

_SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)

# The same examples every time, so that a change that breaks nothing cannot fail by bad luck; soak is for finding.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=100)
settings.register_profile(
    "soak", deadline=None, max_examples=5_000, stateful_step_count=120, suppress_health_check=_SLOW_IS_FINE
)
settings.load_profile(os.environ.get("COTERIE_HYPOTHESIS", "default"))


_ROOMS_WITH_ONE_START = ("spark", "clients")  # what they start, a session of Spark or a broker, is started once


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `-n 2 --dist loadgroup`, a file's tests run in one process, and so do those of a room that shares a start.

    Most of what takes long waits, for sessions to expire and for Java to start, so two processes halve it.
    """
    here = config.rootpath / "tests"
    for item in items:
        room, *_ = parts = item.path.relative_to(here).parts
        item.add_marker(pytest.mark.xdist_group(room if room in _ROOMS_WITH_ONE_START else "/".join(parts)))


@pytest.fixture
def group() -> Story:
    """A group with Kafka's defaults, which nobody has joined yet."""
    return Story()


@pytest.fixture
def quick() -> Story:
    """A group without the initial delay."""
    return Story(group_initial_rebalance_delay_ms=0)
