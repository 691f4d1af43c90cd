"""Count what a change costs a group of design 1 or 2 on a real ZooKeeper: reads, notifications, attempts.

The group is in one process, each member and broker with its own session, and reads no records. Under design 2, members
and coordinators are connected by sockets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from coterie.assignors import Range, Topic
from coterie.history.design_costs import Design
from coterie.history.design_types import (
    Connect,
    DesignMachine,
    DisconnectMember,
    SendMessage,
    StartReading,
    Stopped,
    StopReading,
)
from coterie.history.drivers import CoordinatorConnection, MachineDriver, MachineLoop, MemberListener
from coterie.history.server_side_coordinator import RegisteredBroker
from coterie.history.server_side_member import ServerSideMember
from coterie.history.zookeeper_server import ZooKeeper
from coterie.history.zookeeper_watchers import ConsumerPhase, WatchingConsumer, WatchingSettings

__all__ = ["HerdCost", "measure_herd"]


SESSION_MS = 8_000
TIMEOUT_MS, STABLE_MS = 30_000, 300
NOTIFIED = "zk_sum_node_children_watch_count"
SETTINGS = WatchingSettings(rebalance_max_retries=50, rebalance_backoff_ms=100)
"""Members must not give up while they are counted."""


def _ignore(_effect: Any) -> None:
    """Perform an effect that has no use here."""


class ZooKeeperGroup:
    def __init__(self, zookeeper: ZooKeeper, group_id: str, design: Design, partitions: int) -> None:
        self.partitions = partitions
        self._zookeeper = zookeeper
        self._group_id = group_id
        self._is_watching = design is Design.WATCHERS
        self._topics = {"t": Topic(partitions)}
        self._loop = MachineLoop()
        self._drivers: list[MachineDriver] = []
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._opened.close()

    # --- processes ----------------------------------------------------------------------------------------------------

    def add(self, name: str) -> None:
        machine = (
            WatchingConsumer(self._group_id, name, ["t"], self._topics, Range(), SETTINGS)
            if self._is_watching
            else ServerSideMember(self._group_id, name, ["t"])
        )
        connection = CoordinatorConnection(lambda event: driver.post(event))  # noqa: PLW0108  it is made below
        self._opened.callback(connection.close)
        driver = self._driver(
            machine,
            {
                StartReading: _ignore,
                StopReading: lambda _effect: driver.post(Stopped({})),
                Connect: connection.connect,
                SendMessage: connection.send,
            },
        )

    def add_broker(self, number: int) -> None:
        groups = [] if self._is_watching else [self._group_id]
        listener = MemberListener()
        self._opened.callback(listener.close)
        broker = RegisteredBroker(f"{self._group_id}-{number}", listener.address, groups, self._topics, Range())
        driver = self._driver(broker, {SendMessage: listener.send, DisconnectMember: listener.disconnect})
        listener.serve(driver.post)

    def _driver(self, machine: DesignMachine, performs: dict[type, Callable[[Any], None]]) -> MachineDriver:
        driver = MachineDriver(
            self._loop, machine, self._zookeeper.address, session_timeout_ms=SESSION_MS, performs=performs
        )
        self._drivers.append(driver)
        driver.zookeeper.connect()
        self._opened.callback(driver.zookeeper.close)
        return driver

    # --- counts -------------------------------------------------------------------------------------------------------

    @property
    def _members(self) -> list[Any]:
        return [one.machine for one in self._drivers if hasattr(one.machine, "reads")]

    def settle(self) -> None:
        """Wait until every member has partitions, and nothing changes any more."""
        self._loop.run_until(self._is_settled, TIMEOUT_MS, "every member to have partitions")
        self._loop.run(STABLE_MS)

    def _is_settled(self) -> bool:
        members = self._members
        return (
            all(one.reads for one in members)
            and sum(len(one.reads) for one in members) == self.partitions
            and all(one.phase is ConsumerPhase.SETTLED for one in members if self._is_watching)
        )

    def counts(self) -> Counter[str]:
        """Return the counts of all sessions, and the notifications that the server has counted itself."""
        counts = sum((one.zookeeper.counts for one in self._drivers), Counter[str]())
        counts["attempts"] = sum(getattr(one, "attempts", 0) for one in self._members)
        counts["notified by the server"] = self._zookeeper.counts()[NOTIFIED]
        return counts

    def _has_all_notifications(self, before: Counter[str]) -> bool:
        now = self.counts()
        sent = now["notified by the server"] - before["notified by the server"]
        return sent > 0 and now["notifications"] - before["notifications"] == sent

    def counted(self, change: Callable[[], None]) -> Counter[str]:
        """Make a change, and return what it cost when all notifications have come and the group is stable again."""
        before = self.counts()
        change()
        self._loop.run_until(lambda: self._has_all_notifications(before), TIMEOUT_MS, "a notification")
        self._loop.run(STABLE_MS)
        self.settle()
        counts = self.counts()
        counts.subtract(before)
        return counts


@dataclass(frozen=True, slots=True)
class HerdCost:
    """What one change cost a group of this size."""

    change: str
    design: Design
    members: int
    notified: int
    notified_by_server: int
    """The same, as the server counts it."""
    reads: int
    membership_reads: int
    """Those of the reads that list members or read their subscriptions."""
    attempts: int
    """Design 1: how often a member listed the members to assign partitions."""


def measure_herd(zookeeper: ZooKeeper, design: Design, members: int, partitions: int) -> list[HerdCost]:
    """Add a broker under design 1, where it moves no partition; then add a member. Returns the cost of each."""
    name = f"herd-{design.partition(' ')[0]}-{members}"
    with ZooKeeperGroup(zookeeper, name, design, partitions) as group:
        group.add_broker(1)
        for number in range(members):
            group.add(f"c{number}")
        group.settle()
        changes: dict[str, Callable[[], None]] = {"one joins": lambda: group.add("new")}
        if design is Design.WATCHERS:
            changes = {"a broker comes": lambda: group.add_broker(2), **changes}
        found = []
        for change, make in changes.items():
            counts = group.counted(make)
            names = ("notifications", "notified by the server", "reads", "membership_reads", "attempts")
            found.append(HerdCost(change, design, members, *(counts[name] for name in names)))
        return found
