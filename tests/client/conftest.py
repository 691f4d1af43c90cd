from __future__ import annotations

import pytest

from client.peers import LOOPS, Run


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine, in both event loops in turn."""
    return LOOPS[request.param]
