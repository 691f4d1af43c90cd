"""The steps of the demo, and the group they happen to: a broker, a stream of orders, and members as processes.

A step is a function; the first line of its docstring is what the demo prints. It returns when the group is stable
again. Members that were killed or too slow are noted: only their records may be processed twice.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coterie import Admin, Broker, Producer
from coterie.client.admin import LATEST, GroupDescription, NewTopic, checked
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError, KafkaError
from coterie.facts import Fact, MemberExpired, MemberJoined, MemberReplaced
from coterie.ledger import Rebalance, RebalanceOutcome

TOPIC, GROUP = "orders", "shop"
TIMEOUT_S = 240.0
"""The time for Spark to start: it needs more than a minute on a busy machine."""
PAUSE_S = 0.1
BROKER = {"group.initial.rebalance.delay.ms": 500}
MEMBER: dict[str, Any] = {
    "group.id": GROUP,
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
    "metadata.max.age.ms": 1_000,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
}
SLOW_MS = 4_000
"""The `max.poll.interval.ms` of the slow member."""


class DemoGroup:
    def __init__(self, home: Path, partitions: int, rate: int) -> None:
        self.home = home
        self.rate = rate
        self.facts: list[Fact] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.broker = Broker(home / "broker", BROKER, on_fact=self.facts.append)
        self._partitions = partitions
        self._stops = threading.Event()
        self._stream = threading.Thread(target=self._produce, name="orders", daemon=True)
        self._failure: BaseException | None = None
        self._numbers = count(1)

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        self.broker.start()
        try:
            self.admin = Admin({"bootstrap.servers": self.bootstrap})
            checked(self.admin.create_topics([NewTopic(TOPIC, self._partitions)]))
            self._stream.start()
        except BaseException:
            self.broker.stop()
            raise
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stops.set()
        for process in self.processes.values():
            with process:
                process.kill()
        if self._stream.is_alive():
            self._stream.join(5)
        with suppress(CoterieError):
            self.admin.close()
        self.broker.stop()

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers

    # --- orders -------------------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        try:
            with Producer({"bootstrap.servers": self.bootstrap, "metadata.max.age.ms": 1_000}) as producer:
                begin, sent = time.monotonic(), 0  # noqa: TID251  this is the real world
                while not self._stops.wait(0.05):
                    due = int((time.monotonic() - begin) * self.rate)  # noqa: TID251
                    for number in range(sent, due):
                        order = {
                            "order": number,
                            "item": ("coffee", "tea", "cake")[number % 3],
                            "cents": 100 + number % 400,
                        }
                        producer.send(TOPIC, json.dumps(order), key=f"customer-{number % 997}")
                    sent = due
        except BaseException as failure:  # noqa: BLE001  raised again by end_stream
            self._failure = failure

    def end_stream(self) -> dict[int, int]:
        """Stop producing orders. Returns the number of orders in each partition."""
        self._stops.set()
        self._stream.join()
        if self._failure is not None:
            raise self._failure
        described = checked(self.admin.describe_topics([TOPIC]))[TOPIC]
        partitions = [TopicPartition(TOPIC, one.partition) for one in described.partitions]
        ends = checked(self.admin.list_offsets(dict.fromkeys(partitions, LATEST)))
        return {partition.partition: found.offset for partition, found in ends.items()}

    # --- members ------------------------------------------------------------------------------------------------------

    def start_member(self, name: str, **settings: Any) -> None:
        processed = self.home / "done" / f"{name}.{next(self._numbers)}.txt"
        processed.parent.mkdir(exist_ok=True)
        more = {name.replace("_", "."): value for name, value in settings.items()}
        options = {
            "topic": TOPIC,
            "processed": str(processed),
            "slow_s": SLOW_MS / 1_000 + 3,
            "settings": {**MEMBER, "bootstrap.servers": self.bootstrap, "client.id": name, **more},
        }
        self._run(name, "python", options)

    def start_spark(self, name: str) -> None:
        home = self.home / name
        home.mkdir()
        settings = {key: MEMBER[key] for key in ("session.timeout.ms", "heartbeat.interval.ms", "metadata.max.age.ms")}
        options = {
            "bootstrap": self.bootstrap,
            "group": GROUP,
            "topic": TOPIC,
            "home": str(home),
            "settings": {**settings, "client.id": name},
        }
        self._run(name, "spark", options)

    def _run(self, name: str, kind: str, options: dict[str, Any]) -> None:
        (self.home / "logs").mkdir(exist_ok=True)
        with (self.home / "logs" / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603  our own module
                [sys.executable, "-m", "coterie.cli.demo.members", kind, json.dumps(options)],
                stdin=subprocess.PIPE,  # so that it notices when this process ends
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self, *names: str, how: signal.Signals = signal.SIGTERM) -> None:
        """Signal these members together, and return when all have exited."""
        for name in names:
            self.processes[name].send_signal(how)
        for name in names:
            with self.processes.pop(name) as process:
                code = process.wait(TIMEOUT_S)
            if how is signal.SIGTERM and code:
                raise CoterieError(f"{name} exited with status {code}: see {self.home / 'logs' / name}.log")

    def add_partitions(self, count: int) -> None:
        """Add partitions to the topic, up to this number."""
        checked(self.admin.create_partitions({TOPIC: count}))
        self._partitions = count

    def slow_down(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGUSR1)

    # --- waiting ------------------------------------------------------------------------------------------------------

    @property
    def rebalances(self) -> list[Rebalance]:
        return self.broker.rebalances(GROUP)

    def static_joins(self, instance_id: str) -> int:
        """Return how often that static member has joined.

        It either replaced its own member id, or joined as a new member after its session had expired.
        """
        return sum(
            isinstance(fact, MemberReplaced | MemberJoined) and fact.instance_id == instance_id for fact in self.facts
        )

    def expired(self) -> int:
        return sum(isinstance(fact, MemberExpired) for fact in self.facts)

    def members(self) -> list[str] | None:
        """Return the client ids in the group, or None while it is not stable."""
        found = self._when_stable()
        return None if found is None else sorted(member.client_id for member in found.members)

    def _when_stable(self) -> GroupDescription | None:
        found = self.admin.describe_groups([GROUP])[GROUP]
        if isinstance(found, KafkaError) or found.state not in {"Stable", "Empty"}:
            return None
        if self.rebalances and self.rebalances[-1].outcome is RebalanceOutcome.RUNNING:
            return None
        return found

    def wait_for(self, names: Iterable[str], what: str) -> None:
        """Wait until the group is stable, has exactly these members, and they own all partitions.

        Between two cooperative rebalances a group is stable, too, with unassigned partitions.
        """
        wanted = sorted(names)
        who = ", ".join(wanted) or "no member"
        state = f"{who} in group {GROUP}, with all {self._partitions} partitions assigned"
        self.wait(lambda: self._has(wanted), f"{what}: {state}")

    def _has(self, names: list[str]) -> bool:
        found = self._when_stable()
        if found is None or sorted(member.client_id for member in found.members) != names:
            return False
        owned = {place for member in found.members for place in member.assignment}
        return len(owned) == self._partitions

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + TIMEOUT_S  # noqa: TID251  this is the real world
        while not condition():
            for name, process in self.processes.items():
                if process.poll() is not None:
                    log = self.home / "logs" / f"{name}.log"
                    last = log.read_text(errors="replace")[-1_500:]
                    raise CoterieError(f"{name} exited with status {process.returncode}:\n{last}")
            if time.monotonic() > give_up:  # noqa: TID251
                raise CoterieError(f"gave up after {TIMEOUT_S:.0f} s waiting for {what}; members: {self.members()}")
            time.sleep(PAUSE_S)

    def wait_until_all_is_committed(self, ends: dict[int, int]) -> None:
        def is_done() -> bool:
            committed = self.admin.list_group_offsets(GROUP)
            return all(
                not end or getattr(committed.get(TopicPartition(TOPIC, partition)), "offset", -1) >= end
                for partition, end in ends.items()
            )

        self.wait(is_done, "all orders to be processed")

    # --- results ------------------------------------------------------------------------------------------------------

    def done(self) -> dict[str, list[tuple[int, int]]]:
        """Return the partition and offset of all processed records by process."""
        found: dict[str, list[tuple[int, int]]] = {}
        for file in sorted((self.home / "done").glob("*.txt")):
            lines = file.read_text().splitlines()
            found[file.stem] = [(int(line.split()[0]), int(line.split()[1])) for line in lines]
        for orders in sorted(self.home.glob("*/orders")):
            found[orders.parent.name] = _rows(orders)
        return found


def _rows(directory: Path) -> list[tuple[int, int]]:
    """Return what Spark has committed: the files in the log of its sink, not those that a failed task left."""
    import pyarrow.parquet as pq

    log = directory / "_spark_metadata"
    files: set[str] = set()
    for entry in log.iterdir() if log.is_dir() else ():
        if entry.name.startswith("."):
            continue
        for line in entry.read_text().splitlines()[1:]:
            files.add(json.loads(line)["path"].rpartition("/")[2])
    rows: list[tuple[int, int]] = []
    for name in sorted(files):
        table = pq.read_table(directory / name, columns=["partition", "offset"])
        rows += zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    return rows


# --- the steps --------------------------------------------------------------------------------------------------------

SPARK = "spark"


@dataclass
class DemoRun:
    group: DemoGroup
    members: int
    partitions: int
    has_spark: bool
    present: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    static_rebalances: int | None = None
    static_expired: int = 0
    """Sessions that expired while static members were restarted, because the machine was too busy."""
    _count: int = 0

    def start(self, name: str = "", **settings: object) -> str:
        if not name:
            self._count += 1
            name = f"python-{self._count}"
        self.group.start_member(name, **settings)
        self.present.append(name)
        return name

    def settle(self, what: str) -> None:
        self.group.wait_for(self.present, what)

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        self.present.remove(name)
        self.group.end(name, how=how)


DemoStep = Callable[[DemoRun], None]


def steps(demo_run: DemoRun) -> Iterator[DemoStep]:
    """Return the steps in order, without those that need Spark if there is none."""
    for step in _STEPS:
        if demo_run.has_spark or step not in _NEED_SPARK:
            yield step


def opening(demo_run: DemoRun) -> None:
    """Orders arrive, and the first members process them"""
    if demo_run.has_spark:
        demo_run.group.start_spark(SPARK)  # it takes a while until it can join
    for _ in range(demo_run.members):
        demo_run.start()
    demo_run.group.wait(lambda: _have_joined(demo_run), "the first members")


def _have_joined(demo_run: DemoRun) -> bool:
    return set(demo_run.present) <= set(demo_run.group.members() or [])


def spark_joins(demo_run: DemoRun) -> None:
    """A Spark query joins the same group"""
    demo_run.present.append(SPARK)
    demo_run.settle("Spark to join")


def one_joins(demo_run: DemoRun) -> None:
    """One more member joins"""
    demo_run.start()
    demo_run.settle("the new member")


def one_leaves(demo_run: DemoRun) -> None:
    """A member leaves"""
    demo_run.stop(demo_run.present[0])
    demo_run.settle("the rest")


def one_is_killed(demo_run: DemoRun) -> None:
    """A member is killed (kill -9); the group notices when its session times out"""
    name = next(name for name in demo_run.present if name != SPARK)
    demo_run.crashed.append(name)
    demo_run.stop(name, signal.SIGKILL)
    demo_run.settle("its session to time out")


def one_is_too_slow(demo_run: DemoRun) -> None:
    """A member takes too long for a batch (max.poll.interval.ms), leaves, and rejoins"""
    name = demo_run.start("slow", max_poll_interval_ms=SLOW_MS)
    demo_run.settle("it to join")
    demo_run.crashed.append(name)
    before = len(demo_run.group.rebalances)
    demo_run.group.slow_down(name)
    demo_run.group.wait(lambda: len(demo_run.group.rebalances) >= before + 2, "it to leave and rejoin")
    demo_run.settle("it to rejoin")


def partitions_are_added(demo_run: DemoRun) -> None:
    """Partitions are added to the topic"""
    demo_run.group.add_partitions(demo_run.partitions * 3 // 2)
    demo_run.settle("them to be assigned")


def rolling_deploy(demo_run: DemoRun) -> None:
    """A rolling deploy without static membership: each member is restarted"""
    for name in [name for name in demo_run.present if name != SPARK]:
        demo_run.stop(name)
        demo_run.start(f"{name}-new" if not name.endswith("-new") else name)
        demo_run.settle("the new member")


def static_ids(demo_run: DemoRun) -> None:
    """The members are replaced by static members (group.instance.id)"""
    old = [name for name in demo_run.present if name != SPARK]
    for number in range(1, len(old) + 1):
        demo_run.start(f"static-{number}", group_instance_id=f"shop-{number}")
    demo_run.settle("the static members")
    for name in old:
        demo_run.stop(name)
    demo_run.settle("the old members to leave")


def static_deploy(demo_run: DemoRun) -> None:
    """The same rolling deploy with static members"""
    before, expired = len(demo_run.group.rebalances), demo_run.group.expired()
    for name in [name for name in demo_run.present if name != SPARK]:
        instance = f"shop-{name.removeprefix('static-')}"
        joins = demo_run.group.static_joins(instance)
        demo_run.stop(name)
        demo_run.start(name, group_instance_id=instance)
        demo_run.group.wait(partial(_has_joined, demo_run.group, instance, joins), f"{name} to join again")
        demo_run.settle(f"{name} to join again")
    demo_run.static_rebalances = len(demo_run.group.rebalances) - before
    demo_run.static_expired = demo_run.group.expired() - expired


def _has_joined(group: DemoGroup, instance_id: str, before: int) -> bool:
    return group.static_joins(instance_id) > before


_STEPS: tuple[DemoStep, ...] = (
    opening,
    one_joins,
    spark_joins,
    one_leaves,
    one_is_killed,
    one_is_too_slow,
    partitions_are_added,
    rolling_deploy,
    static_ids,
    static_deploy,
)
_NEED_SPARK = frozenset({spark_joins})
