"""Both old designs on a real ZooKeeper: the herd, counted by us and by the server; records, read by real processes."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie.assignors import Range, Topic
from coterie.history.brokers import BrokerSeat
from coterie.history.journal import lines_of
from coterie.history.loop import Loop, Station
from coterie.history.stage import Stage
from coterie.history.words import StartReading, Stopped, StopReading
from coterie.history.zookeeper import ZooKeeper, why_not
from coterie.history.zookeeper_watchers import Phase, WatchingConsumer, WatchingSettings

pytestmark = [
    pytest.mark.xdist_group("zookeeper"),
    pytest.mark.real_time,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
RANG = "zk_sum_node_children_watch_count"


class Crowd:
    """Consumers of design 1 in one process, each with a session of its own; they read nothing."""

    def __init__(self, zookeeper: ZooKeeper, group_id: str, members: int) -> None:
        self.loop = Loop()
        self.zookeeper = zookeeper
        self.group_id = group_id
        self.partitions = 2 * members + 2
        self.stations = [self._station(BrokerSeat(f"{group_id}-1", "nowhere"))]
        for number in range(members):
            self.add(f"c{number}")
        self.loop.run_until(self.is_settled, 30_000, "everybody to have a share")

    def _station(self, machine: Any) -> Station:
        station = Station(
            self.loop,
            machine,
            self.zookeeper.address,
            session_timeout_ms=8_000,
            performs={
                StartReading: lambda _effect: None,
                StopReading: lambda _effect: station.post(Stopped({})),
            },
        )
        station.registry.connect()
        return station

    def add(self, name: str) -> None:
        settings = WatchingSettings(rebalance_max_retries=50, rebalance_backoff_ms=100)
        topics = {"t": Topic(self.partitions)}
        self.stations.append(self._station(WatchingConsumer(self.group_id, name, ["t"], topics, Range(), settings)))

    @property
    def members(self) -> list[WatchingConsumer]:
        return [one.machine for one in self.stations[1:] if isinstance(one.machine, WatchingConsumer)]

    def is_settled(self) -> bool:
        reads = [one.reads for one in self.members]
        return (
            all(reads)
            and sum(map(len, reads)) == self.partitions
            and all(one.phase is Phase.SETTLED for one in self.members)
        )

    def counts(self) -> Counter[str]:
        counts = sum((one.registry.counts for one in self.stations), Counter[str]())
        counts["attempts"] = sum(one.attempts for one in self.members)
        counts["rang at the server"] = self.zookeeper.counts()[RANG]
        return counts

    def close(self) -> None:
        for station in self.stations:
            station.registry.close()


@pytest.fixture
def crowds() -> Iterator[list[Crowd]]:
    made: list[Crowd] = []
    yield made
    for crowd in made:
        crowd.close()


@pytest.mark.parametrize("members", [3, 6, 12])
def test_the_herd_on_a_real_zookeeper_is_the_one_of_the_model(
    zookeeper: ZooKeeper, crowds: list[Crowd], members: int
) -> None:
    """N notifications, and every attempt of one of n + 1 consumers looks n + 3 times (test_zookeeper_watchers.py)."""
    crowd = Crowd(zookeeper, f"herd-{members}", members)
    crowds.append(crowd)
    crowd.loop.run(300)
    before = crowd.counts()
    crowd.add("new")
    crowd.loop.run_until(crowd.is_settled, 30_000, "everybody to have a new share")
    crowd.loop.run(300)
    counts = crowd.counts()
    counts.subtract(before)
    assert counts["notifications"] == members
    assert counts["rang at the server"] == members, "as ZooKeeper itself counts"
    assert counts["looks"] == counts["attempts"] * (members + 3)
    assert counts["attempts"] >= members + 1


@pytest.mark.parametrize("design", [1, 2, 3])
def test_real_processes_process_every_record_at_least_once_though_one_is_killed(tmp_path: Path, design: int) -> None:
    with Stage(tmp_path, design=design, partitions=6) as stage:
        stage.add("c1")
        stage.add("c2")
        stage.settle()
        stage.add("c3")
        stage.settle()
        stage.end("c1", signal.SIGKILL)
        stage.settle()
        ends = stage.end_stream()
        stage.wait_until_all_is_processed(ends)
        processed = stage.processed()
    assert processed.keys() == {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    twice = sum(processed.values()) - len(processed)
    assert twice < len(processed) // 2, "only what was not committed when it was killed"


def test_split_brain_for_real_one_that_was_stopped_reads_on_while_another_has_its_partitions(tmp_path: Path) -> None:
    """Its session expires while it is stopped (SIGSTOP); when it goes on, it does not know (design 1)."""
    with Stage(tmp_path, design=1, partitions=4) as stage:
        stage.add("c1")
        stage.add("c2")
        stage.settle()
        stage.signal("c1", signal.SIGSTOP)
        stage.wait(lambda: [len(names) for names in stage.owners().values()].count(2) == 2, "c2 to claim all")
        stage.signal("c1", signal.SIGCONT)
        stage.settle()
    claimed = next(line.at_ms for line in lines_of(tmp_path)["c2"] if len(line.reads) == 4)
    before = [line for line in lines_of(tmp_path)["c1"] if line.at_ms < claimed]
    after = [line for line in lines_of(tmp_path)["c1"] if line.at_ms >= claimed]
    assert len(before[-1].reads) == 2 and not after[0].reads, "c1 let go when c2 had them already"
