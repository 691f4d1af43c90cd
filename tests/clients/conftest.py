from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.harness import BrokerProcess, Crew
from clients.producing import Topics


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all: each test has topics and groups of its own, and they must not notice each other."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="package")
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker.bootstrap)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name no other test uses, for topics and groups."""
    wanted = request.node.name.removeprefix("test_")
    return "".join(letter if letter.isalnum() else "-" for letter in wanted).strip("-")[:80]


@pytest.fixture
def crew(broker: BrokerProcess, tmp_path: Path, name: str) -> Iterator[Crew]:
    with Crew(broker, tmp_path, name) as members:
        yield members


@pytest.fixture
def second_crew(broker: BrokerProcess, tmp_path: Path, name: str) -> Iterator[Crew]:
    with Crew(broker, tmp_path, f"{name}-2") as members:
        yield members
