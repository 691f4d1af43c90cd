"""`coterie watch` that is killed and started again misses nothing, and counts nothing twice."""

from __future__ import annotations

from pathlib import Path
from random import Random  # noqa: TID251

import pytest

from coterie import Broker
from soak.watch_restarts import SETTINGS, killed_again_and_again


@pytest.mark.real_time
def test_a_watch_that_is_killed_has_every_commit_and_every_rebalance_once(tmp_path: Path) -> None:
    """Record by record, those of the time when it was away too. `make watch-soak` does it more often, and on Kafka."""
    with Broker(settings=SETTINGS) as broker:
        found = killed_again_and_again(broker.bootstrap_servers, tmp_path / "ledger", 2, Random(1), longest_s=0.5)
    assert not found.differences, found.differences[:10]
    assert found.records > 10 and found.commits > 90
