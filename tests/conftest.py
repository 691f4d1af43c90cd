from __future__ import annotations

import pytest

from coterie.stories import Story


@pytest.fixture
def group() -> Story:
    """A group with Kafka's defaults, which nobody has joined yet."""
    return Story()


@pytest.fixture
def quick() -> Story:
    """A group without the initial delay."""
    return Story(group_initial_rebalance_delay_ms=0)
