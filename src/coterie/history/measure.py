"""Measure what changes cost, with real sessions and real processes.

`measure_herd` counts reads, notifications and attempts of designs 1 and 2 on a real ZooKeeper. The group is in one
process, each member and broker with its own session, and reads no records. Under design 2, members and coordinators
are connected by sockets.

`run_processes` uses real processes that read records from Coterie's broker. One member joins, one is killed, one is
stopped for longer than its session, and then a new assignor is deployed, while records are produced all the time.
`ProcessGroup` is the broker with its topic, the producer, ZooKeeper and the processes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coterie import Admin, Broker, Producer
from coterie.assignors import Range, Topic
from coterie.client.admin import LATEST, NewTopic, checked
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError
from coterie.history.design_costs import Design
from coterie.history.design_types import (
    Connect,
    DesignMachine,
    DisconnectMember,
    Partition,
    SendMessage,
    StartReading,
    Stopped,
    StopReading,
    assigned_partitions,
)
from coterie.history.drivers import CoordinatorConnection, MachineDriver, MachineLoop, MemberListener
from coterie.history.processes import processed_by, progress_of
from coterie.history.scenario import GROUP, TOPIC, Backwards, BackwardsCooperative
from coterie.history.server_side_coordinator import RegisteredBroker
from coterie.history.server_side_member import ServerSideMember
from coterie.history.zookeeper_server import ZooKeeper
from coterie.history.zookeeper_watchers import ConsumerPhase, WatchingConsumer, WatchingSettings

SESSION_MS = 8_000
TIMEOUT_MS, STABLE_MS = 120_000, 300
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
    """The cost of one change for a group of this size."""

    change: str
    design: Design
    members: int
    notified: int
    notified_by_server: int
    """The same, as the server counts it."""
    reads: int
    membership_reads: int
    """The reads that list members or read their subscriptions."""
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


BROKERS = 2
RATE = 200
"""Records produced per second."""
BROKER_NAME = "broker-"
TIMEOUT_S, PAUSE_S = 60.0, 0.05
STABLE_S = 0.3
"""A group is stable when nothing has changed for this time."""
PROCESS_SESSION_MS = 2_000
PROCESS_HEARTBEAT_MS = PROCESS_SESSION_MS // 6
BROKER = {
    "group.initial.rebalance.delay.ms": 300,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": PROCESS_SESSION_MS,
    "group.consumer.min.session.timeout.ms": PROCESS_SESSION_MS,
    "group.consumer.heartbeat.interval.ms": PROCESS_HEARTBEAT_MS,
    "group.consumer.min.heartbeat.interval.ms": PROCESS_HEARTBEAT_MS,
}
MEMBERS = {1: "member", 2: "member", 3: "kafka-member", 4: "kafka-member"}
"""The kind of process by design (`processes.py`)."""


class ProcessGroup:
    def __init__(
        self,
        home: Path,
        *,
        design: int,
        partitions: int,
        strategies: Sequence[str] = ("range",),
        zookeeper: ZooKeeper | None = None,
    ) -> None:
        """Prepare a group of a design.

        `strategies` are the assignors of the consumers; under design 2 there is one, the brokers', and under design 4
        one, which members ask the brokers for. `zookeeper` is a running server to use; everything is then stored below
        a node named like `home`.
        """
        self.home = home
        self.design = design
        self.has_zookeeper = design in {1, 2}
        self.strategies = list(strategies)
        self.partitions = partitions
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.broker = Broker(None, BROKER, nodes=BROKERS)
        self._zookeeper = zookeeper
        self._address = ""
        self._stops = threading.Event()
        self._stream = threading.Thread(target=self._produce, name="stream", daemon=True)
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            opened.enter_context(self.broker)
            if self.has_zookeeper:
                zookeeper = self._zookeeper or opened.enter_context(ZooKeeper(self.home / "zookeeper"))
                self._address = f"{zookeeper.address}/{self.home.name}"
            self.admin = opened.enter_context(Admin({"bootstrap.servers": self.broker.bootstrap_servers}))
            checked(self.admin.create_topics([NewTopic(TOPIC, self.partitions)]))
            opened.callback(self._end_all)
            for number in range(BROKERS):
                self.add_broker(str(number + 1))
            self._stream.start()
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stops.set()
        self._opened.close()

    # --- processes ----------------------------------------------------------------------------------------------------

    def add(self, name: str, **more: Any) -> None:
        self._run(name, MEMBERS[self.design], {"name": name, **more})

    def add_broker(self, broker: str) -> None:
        """Register a broker in ZooKeeper, if the design has one."""
        if self.has_zookeeper:
            groups = [GROUP] if self.design == 2 else []
            self._run(f"{BROKER_NAME}{broker}", "broker", {"broker": broker, "groups": groups})

    def _run(self, name: str, kind: str, options: dict[str, Any]) -> None:
        common = {
            "design": self.design,
            "group": GROUP,
            "topics": {TOPIC: self.partitions},
            "bootstrap": self.broker.bootstrap_servers,
            "zookeeper": self._address,
            "session_timeout_ms": PROCESS_SESSION_MS,
            "heartbeat_interval_ms": PROCESS_HEARTBEAT_MS,
            "backoff_ms": 300,
            "strategy": self.strategies[0],
            "strategies": self.strategies,
            "home": str(self.home),
        }
        with (self.home / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603  our own module
                [sys.executable, "-m", "coterie.history.processes", kind, json.dumps({**common, **options})],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait(TIMEOUT_S)

    def restart(self, name: str) -> None:
        """Stop a process cleanly and start it with the current assignors."""
        self.end(name)
        if name.startswith(BROKER_NAME):
            self.add_broker(name.removeprefix(BROKER_NAME))
        else:
            self.add(name)

    def signal(self, name: str, how: signal.Signals) -> None:
        self.processes[name].send_signal(how)

    def _end_all(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    # --- records ------------------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        with Producer({"bootstrap.servers": self.broker.bootstrap_servers}) as producer:
            number = 0
            while not self._stops.wait(0.05):
                for _ in range(RATE // 20):
                    number += 1
                    producer.send(TOPIC, str(number), partition=number % self.partitions)

    def end_stream(self) -> dict[int, int]:
        """Stop producing. Returns the end offset of each partition."""
        self._stops.set()
        self._stream.join()
        partitions = [TopicPartition(TOPIC, number) for number in range(self.partitions)]
        ends = checked(self.admin.list_offsets(dict.fromkeys(partitions, LATEST)))
        return {partition.partition: found.offset for partition, found in ends.items()}

    def processed(self) -> Counter[tuple[int, int]]:
        """Return how often each record, by partition and offset, was processed."""
        return Counter(record for done in processed_by(self.home).values() for record in done)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def owners(self) -> dict[Partition, list[str]]:
        """Return which running processes read each partition, by their own account."""
        found: dict[Partition, list[str]] = {}
        for name, entries in progress_of(self.home).items():
            if name in self.processes and entries:
                for one in entries[-1].reads:
                    found.setdefault(one, []).append(name)
        return found

    @property
    def brokers(self) -> list[str]:
        """Return the names of the broker processes."""
        return [name for name in self.processes if name.startswith(BROKER_NAME)]

    @property
    def members(self) -> list[str]:
        return [name for name in self.processes if not name.startswith(BROKER_NAME)]

    def is_fully_assigned(self) -> bool:
        """Return whether every partition has one reader, and every member that can read something does."""
        owners = self.owners()
        busy = {name for names in owners.values() for name in names}
        return (
            len(owners) == self.partitions
            and all(len(names) == 1 for names in owners.values())
            and len(busy) == min(len(self.members), self.partitions)
        )

    def has_all_but(self, name: str) -> bool:
        """Return whether other members read all partitions, whatever this one believes."""
        return len({one for one, names in self.owners().items() if names != [name]}) == self.partitions

    def settle(self) -> None:
        """Wait until the group is fully assigned and stays so for a while."""
        self.wait(lambda: self.is_fully_assigned() and self._is_unchanged(), "every partition to have one reader")

    def _is_unchanged(self) -> bool:
        before = self.owners()
        time.sleep(STABLE_S)
        return before == self.owners()

    def wait_until_all_is_processed(self, ends: dict[int, int]) -> None:
        wanted = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
        self.wait(lambda: wanted <= self.processed().keys(), "all records to be processed")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + TIMEOUT_S  # noqa: TID251  this is the real world
        while not condition():
            for name, process in self.processes.items():
                if process.poll() is not None:
                    last = (self.home / f"{name}.log").read_text(errors="replace")[-1_500:]
                    raise CoterieError(f"{name} ended by itself, with {process.returncode}:\n{last}")
            if time.monotonic() > give_up:  # noqa: TID251
                raise CoterieError(f"waited {TIMEOUT_S:.0f} s in vain for {what}; there is {self.owners()}")
            time.sleep(PAUSE_S)


@dataclass(frozen=True, slots=True)
class ProcessRun:
    design: Design
    records: int
    lost: int
    twice: int
    join_s: float
    """The time that each change took until the group was stable again. It depends on the machine's load."""
    death_s: float
    strategy_s: float | None
    restarted: str
    """The processes that were restarted for the new assignor."""
    untouched: str
    """The processes that were not restarted."""
    overlap_ms: int
    """The time for which the stopped member still believed to own partitions that another member had taken over."""


_BACKWARDS, _BACKWARDS_COOPERATIVE = (f"{one.__module__}:{one.__name__}" for one in (Backwards, BackwardsCooperative))
STRATEGIES: Mapping[Design, tuple[str, Sequence[str], str]] = {
    Design.SERVER: ("range", [_BACKWARDS], Backwards.name),
    Design.EAGER: ("range", [_BACKWARDS, "range"], Backwards.name),
    Design.COOPERATIVE: (
        "cooperative-sticky",
        [_BACKWARDS_COOPERATIVE, "cooperative-sticky"],
        BackwardsCooperative.name,
    ),
    Design.CONSUMER: ("uniform", ["range"], "range"),
}
"""The first assignor, the list that the restarted processes have, and the name of the assignor that comes into use."""


def run_processes(design: Design, home: Path, zookeeper: ZooKeeper | None) -> ProcessRun:
    number = int(design.partition(" ")[0])
    strategy, renewed, new = STRATEGIES.get(design, ("range", (), ""))
    with ProcessGroup(home, design=number, partitions=6, strategies=[strategy], zookeeper=zookeeper) as group:
        group.add("c1")
        group.add("c2")
        group.settle()
        join_s = _timed(group, lambda: group.add("c3"))
        death_s = _timed(group, lambda: group.end("c1", signal.SIGKILL))
        _stop_longer_than_session(group, "c2")
        overlap_ms = _overlap_ms(home, "c2", "c3")
        strategy_s, restarted, untouched = None, "", ""
        if new:
            group.strategies = list(renewed)
            whom = group.brokers if number == 2 else group.members
            running = {name: process.pid for name, process in group.processes.items() if name not in whom}
            strategy_s = _timed(group, lambda: _roll(group, whom, new))
            restarted = ", ".join(whom)
            ran_on = [name for name, pid in running.items() if group.processes[name].pid == pid]
            untouched = ", ".join(ran_on) if number == 2 else "the broker"  # it is in this process
        ends = group.end_stream()
        group.wait_until_all_is_processed(ends)
        processed = group.processed()
    records = sum(ends.values())
    wanted = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    twice = sum(processed.values()) - len(processed)
    lost = len(wanted - processed.keys())
    return ProcessRun(design, records, lost, twice, join_s, death_s, strategy_s, restarted, untouched, overlap_ms)


def _timed(group: ProcessGroup, change: Callable[[], None]) -> float:
    began = time.monotonic()  # noqa: TID251  this is the real world
    change()
    group.settle()
    return time.monotonic() - began - STABLE_S  # noqa: TID251


def _roll(group: ProcessGroup, whom: Sequence[str], strategy: str) -> None:
    """Restart processes one by one, until every member has what the new assignor gives it."""
    for name in whom:
        group.restart(name)
        group.settle()
    given = assigned_partitions(
        Backwards(), {name: [TOPIC] for name in group.members}, {TOPIC: Topic(group.partitions)}
    )
    wanted = {one: [name] for name, mine in given.items() for one in mine}

    def is_in_use() -> bool:
        rebalances, owners = group.broker.rebalances(GROUP), group.owners()
        # Under design 4 the order of members is that of their random ids: any of them may have any share of `range`.
        is_shared = _shares(owners) == _shares(wanted) if group.design == 4 else owners == wanted
        return is_shared and (not rebalances or rebalances[-1].protocol_name == strategy)

    group.wait(is_in_use, f"{strategy} to be in use")


def _shares(owners: Mapping[Partition, Sequence[str]]) -> set[frozenset[Partition]]:
    return {
        frozenset(one for one, names in owners.items() if name in names) for names in owners.values() for name in names
    }


def _stop_longer_than_session(group: ProcessGroup, name: str) -> None:
    group.signal(name, signal.SIGSTOP)
    group.wait(lambda: group.has_all_but(name), "the others to have all partitions")
    group.signal(name, signal.SIGCONT)
    group.settle()


def _overlap_ms(home: Path, name: str, other: str) -> int:
    """Return how long `name` kept its partitions after `other` had got all of them."""
    entries = progress_of(home)
    everything = max(len(entry.reads) for entry in entries[other])
    had_all = max(entry.at_ms for entry in entries[other] if len(entry.reads) == everything)
    let_go = next((entry.at_ms for entry in entries[name] if entry.at_ms >= had_all), had_all)
    return let_go - had_all
