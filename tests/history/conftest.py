"""One ZooKeeper for all tests that want a real one: Java takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.history.zookeeper_server import ZooKeeper, why_no_zookeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    reason = why_no_zookeeper()
    if reason is not None:
        pytest.skip(reason)
    directory: Path = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeper(directory) as running:
        yield running
