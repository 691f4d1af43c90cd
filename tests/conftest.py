"""Fixtures for stories, and how hard the property tests search.

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


@pytest.fixture
def group() -> Story:
    """A group with Kafka's defaults, which nobody has joined yet."""
    return Story()


@pytest.fixture
def quick() -> Story:
    """A group without the initial delay."""
    return Story(group_initial_rebalance_delay_ms=0)
