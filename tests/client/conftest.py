from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import coterie
from client.consumers import QUICK_BROKER
from client.peers import LOOPS, Run


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine, in both event loops in turn."""
    return LOOPS[request.param]


@pytest.fixture(scope="module")
def broker() -> Iterator[coterie.Broker]:
    """Whose rebalances are short, unless a file has one of its own."""
    with coterie.Broker(settings=QUICK_BROKER) as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a topic, or of a group."""
    return re.sub(r"\W+", "-", request.node.name).strip("-")
