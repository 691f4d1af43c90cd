"""A group of design 1 or 2 on a real ZooKeeper, in one process: to count what it asks and is told. It reads nothing.

Everybody has a session of his own; under design 2 members speak to coordinators over sockets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from coterie.assignors import Range, Topic
from coterie.history.account import Design
from coterie.history.brokers import BrokerSlot
from coterie.history.design_types import Connect, HangUp, Machine, Say, StartReading, Stopped, StopReading
from coterie.history.lines import Line, Listener
from coterie.history.loop import Loop, Station
from coterie.history.told_member import ToldMember
from coterie.history.zookeeper import ZooKeeper
from coterie.history.zookeeper_watchers import Phase, WatchingConsumer, WatchingSettings

__all__ = ["Crowd"]

SESSION_MS = 8_000
PATIENCE_MS, CALM_MS = 30_000, 300
RANG = "zk_sum_node_children_watch_count"
PATIENT = WatchingSettings(rebalance_max_retries=50, rebalance_backoff_ms=100)
"""A crowd is not to give up while it is counted."""


def _nothing(_effect: Any) -> None:
    """No records here."""


class Crowd:
    def __init__(self, zookeeper: ZooKeeper, group_id: str, design: Design, partitions: int) -> None:
        self.partitions = partitions
        self._zookeeper = zookeeper
        self._group_id = group_id
        self._is_watching = design is Design.WATCHERS
        self._topics = {"t": Topic(partitions)}
        self._loop = Loop()
        self._stations: list[Station] = []
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._opened.close()

    # --- who is there -------------------------------------------------------------------------------------------------

    def add(self, name: str) -> None:
        machine = (
            WatchingConsumer(self._group_id, name, ["t"], self._topics, Range(), PATIENT)
            if self._is_watching
            else ToldMember(self._group_id, name, ["t"])
        )
        line = Line(lambda event: station.post(event))  # noqa: PLW0108  there will be one
        self._opened.callback(line.close)
        station = self._station(
            machine,
            {
                StartReading: _nothing,
                StopReading: lambda _effect: station.post(Stopped({})),
                Connect: line.connect,
                Say: line.say,
            },
        )

    def add_broker(self, number: int) -> None:
        groups = [] if self._is_watching else [self._group_id]
        listener = Listener()
        self._opened.callback(listener.close)
        slot = BrokerSlot(f"{self._group_id}-{number}", listener.address, groups, self._topics, Range())
        station = self._station(slot, {Say: listener.say, HangUp: listener.hang_up})
        listener.serve(station.post)

    def _station(self, machine: Machine, performs: dict[type, Callable[[Any], None]]) -> Station:
        station = Station(
            self._loop, machine, self._zookeeper.address, session_timeout_ms=SESSION_MS, performs=performs
        )
        self._stations.append(station)
        station.registry.connect()
        self._opened.callback(station.registry.close)
        return station

    # --- what it does -------------------------------------------------------------------------------------------------

    @property
    def _members(self) -> list[Any]:
        return [one.machine for one in self._stations if hasattr(one.machine, "reads")]

    def settle(self) -> None:
        """Until everybody has a share, and nothing more happens."""
        self._loop.run_until(self._is_settled, PATIENCE_MS, "everybody to have a share")
        self._loop.run(CALM_MS)

    def _is_settled(self) -> bool:
        members = self._members
        return (
            all(one.reads for one in members)
            and sum(len(one.reads) for one in members) == self.partitions
            and all(one.phase is Phase.SETTLED for one in members if self._is_watching)
        )

    def counts(self) -> Counter[str]:
        """So far: asked by us and told to us, and what rang as the server itself counts."""
        counts = sum((one.registry.counts for one in self._stations), Counter[str]())
        counts["attempts"] = sum(getattr(one, "attempts", 0) for one in self._members)
        counts["rang at the server"] = self._zookeeper.counts()[RANG]
        return counts

    def _has_heard(self, before: Counter[str]) -> bool:
        now = self.counts()
        rang = now["rang at the server"] - before["rang at the server"]
        return rang > 0 and now["notifications"] - before["notifications"] == rang

    def counted(self, change: Callable[[], None]) -> Counter[str]:
        """What a change came to: when all that rang for it was heard, and all is calm again."""
        before = self.counts()
        change()
        self._loop.run_until(lambda: self._has_heard(before), PATIENCE_MS, "a watch to ring")
        self._loop.run(CALM_MS)
        self.settle()
        counts = self.counts()
        counts.subtract(before)
        return counts
