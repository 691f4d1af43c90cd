"""The designs for real: the measure_herd on a real ZooKeeper is the simulator's; records are read by processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.history.compare import simulate_design
from coterie.history.design_costs import ChangeCost, Design
from coterie.history.measure import measure_herd, run_processes
from coterie.history.scenario import scenario
from coterie.history.zookeeper_server import ZooKeeper

pytestmark = pytest.mark.real_time
SIZES = (3, 10)
PARTITIONS = 24


@pytest.fixture(scope="module")
def simulated() -> dict[tuple[Design, int, str], ChangeCost]:
    old = (Design.WATCHERS, Design.SERVER)
    played = [simulate_design(one, scenario(1, size, PARTITIONS)) for one in old for size in SIZES]
    return {
        (one.design, one.scenario.members, period.name): one.cost(period)
        for one in played
        for period in one.scenario.periods
    }


@pytest.mark.parametrize("members", SIZES)
def test_the_herd_on_a_real_zookeeper_is_the_simulators(
    zookeeper: ZooKeeper, simulated: dict[tuple[Design, int, str], ChangeCost], members: int
) -> None:
    came, joined = measure_herd(zookeeper, Design.WATCHERS, members, PARTITIONS)
    model = simulated[Design.WATCHERS, members, "a broker comes"]
    assert (came.notified, came.reads, came.membership_reads, came.attempts) == (
        model.notified,
        model.reads,
        model.membership_reads,
        model.attempts,
    )
    assert (came.notified, came.reads) == (members, members * (members + 2) + PARTITIONS), "as the theory says"
    model = simulated[Design.WATCHERS, members, "one joins"]
    assert joined.notified == model.notified == members
    for cost in (joined, model):
        assert cost.membership_reads / cost.attempts == members + 3
    assert (came.notified_by_server, joined.notified_by_server) == (members, members), "as the server itself counts"


@pytest.mark.parametrize("members", SIZES)
def test_no_herd_on_a_real_zookeeper_when_a_coordinator_watches(
    zookeeper: ZooKeeper, simulated: dict[tuple[Design, int, str], ChangeCost], members: int
) -> None:
    (joined,) = measure_herd(zookeeper, Design.SERVER, members, PARTITIONS)
    model = simulated[Design.SERVER, members, "one joins"]
    assert (joined.notified, joined.reads) == (model.notified, model.reads) == (1, 4)
    assert joined.notified_by_server == 1


@pytest.mark.parametrize("design", [Design.WATCHERS, Design.SERVER, Design.EAGER, Design.CONSUMER])
def test_processes_read_every_record_at_least_once_whatever_befalls_them(
    tmp_path: Path, zookeeper: ZooKeeper, design: Design
) -> None:
    """One joins, one is killed, one is stopped for longer than its session; then a new strategy, but under design 1."""
    run = run_processes(design, tmp_path, zookeeper)
    assert run.records > 100 and run.lost == 0
    assert run.twice < run.records, "what was not committed, and what two have read"
    assert run.overlap_ms > 0, "the stopped member does not know that another has its partitions"
    assert (run.restarted, run.untouched) == {
        Design.WATCHERS: ("", ""),
        Design.SERVER: ("broker-1, broker-2", "c2, c3"),
        Design.EAGER: ("c2, c3", "the broker"),
        Design.CONSUMER: ("c2, c3", "the broker"),
    }[design]
