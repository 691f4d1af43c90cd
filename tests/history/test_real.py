"""The designs for real: the herd on a real ZooKeeper is the simulator's; records are read by processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.history.account import Cost, Design
from coterie.history.compare import play
from coterie.history.real import herd, story
from coterie.history.scenario import scenario
from coterie.history.zookeeper import ZooKeeper

pytestmark = pytest.mark.real_time
SIZES = (3, 10)
PARTITIONS = 24


@pytest.fixture(scope="module")
def simulated() -> dict[tuple[Design, int, str], Cost]:
    played = [play(one, scenario(1, size, PARTITIONS)) for one in (Design.WATCHERS, Design.SERVER) for size in SIZES]
    return {
        (one.design, one.scenario.members, chapter.name): one.cost(chapter)
        for one in played
        for chapter in one.scenario.chapters
    }


@pytest.mark.parametrize("members", SIZES)
def test_the_herd_on_a_real_zookeeper_is_the_simulators(
    zookeeper: ZooKeeper, simulated: dict[tuple[Design, int, str], Cost], members: int
) -> None:
    came, joined = herd(zookeeper, Design.WATCHERS, members, PARTITIONS)
    model = simulated[Design.WATCHERS, members, "a broker comes"]
    assert (came.notified, came.reads, came.looks, came.attempts) == (
        model.notified,
        model.reads,
        model.looks,
        model.attempts,
    )
    assert (came.notified, came.reads) == (members, members * (members + 2) + PARTITIONS), "as the theory says"
    model = simulated[Design.WATCHERS, members, "one joins"]
    assert joined.notified == model.notified == members
    assert (joined.looks / joined.attempts, model.looks / model.attempts) == (members + 3, members + 3)
    assert (came.rang, joined.rang) == (members, members), "as the server itself counts"


@pytest.mark.parametrize("members", SIZES)
def test_no_herd_on_a_real_zookeeper_when_a_coordinator_watches(
    zookeeper: ZooKeeper, simulated: dict[tuple[Design, int, str], Cost], members: int
) -> None:
    (joined,) = herd(zookeeper, Design.SERVER, members, PARTITIONS)
    model = simulated[Design.SERVER, members, "one joins"]
    assert (joined.notified, joined.reads) == (model.notified, model.reads) == (1, 4)
    assert joined.rang == 1


@pytest.mark.parametrize("design", [Design.WATCHERS, Design.SERVER, Design.EAGER])
def test_processes_read_every_record_at_least_once_whatever_befalls_them(
    tmp_path: Path, zookeeper: ZooKeeper, design: Design
) -> None:
    """One joins, one is killed, one is stopped for longer than its session; under designs 2 and 3 a new strategy."""
    told = story(design, tmp_path, zookeeper)
    assert told.records > 100 and told.lost == 0
    assert told.twice < told.records, "what was not committed, and what two have read"
    assert told.overlap_ms > 0, "whoever was stopped does not know that another has its partitions"
    assert (told.restarted, told.untouched) == {
        Design.WATCHERS: ("", ""),
        Design.SERVER: ("broker-1, broker-2", "c2, c3"),
        Design.EAGER: ("c2, c3", "the broker"),
    }[design]
