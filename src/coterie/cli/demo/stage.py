"""What the demonstration happens on: an embedded broker, a stream of orders, and members as processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coterie import Admin, Broker, Producer
from coterie.client.admin import LATEST, GroupDescription, NewTopic, checked
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError, KafkaError
from coterie.facts import Fact, MemberExpired, MemberJoined, MemberReplaced
from coterie.ledger import Outcome, Rebalance

__all__ = ["GROUP", "TOPIC", "Stage"]

TOPIC, GROUP = "orders", "shop"
PATIENCE_S = 240.0
"""On a busy machine Spark needs more than a minute to be there."""
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
"""How long a member that dawdles may be silent (`max.poll.interval.ms`)."""


class Stage:
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
        except BaseException as failure:  # noqa: BLE001  told to whoever ends the stream
            self._failure = failure

    def end_stream(self) -> dict[int, int]:
        """No more orders. Returns how many each partition got."""
        self._stops.set()
        self._stream.join()
        if self._failure is not None:
            raise self._failure
        described = checked(self.admin.describe_topics([TOPIC]))[TOPIC]
        places = [TopicPartition(TOPIC, one.partition) for one in described.partitions]
        ends = checked(self.admin.list_offsets(dict.fromkeys(places, LATEST)))
        return {place.partition: found.offset for place, found in ends.items()}

    # --- members ------------------------------------------------------------------------------------------------------

    def start_member(self, name: str, **settings: Any) -> None:
        notes = self.home / "done" / f"{name}.{next(self._numbers)}.txt"
        notes.parent.mkdir(exist_ok=True)
        more = {name.replace("_", "."): value for name, value in settings.items()}
        told = {
            "topic": TOPIC,
            "notes": str(notes),
            "dawdles_s": SLOW_MS / 1_000 + 3,
            "settings": {**MEMBER, "bootstrap.servers": self.bootstrap, "client.id": name, **more},
        }
        self._run(name, "coterie.cli.demo.member", told)

    def start_spark(self, name: str) -> None:
        home = self.home / name
        home.mkdir()
        settings = {key: MEMBER[key] for key in ("session.timeout.ms", "heartbeat.interval.ms", "metadata.max.age.ms")}
        told = {
            "bootstrap": self.bootstrap,
            "group": GROUP,
            "topic": TOPIC,
            "home": str(home),
            "settings": {**settings, "client.id": name},
        }
        self._run(name, "coterie.cli.demo.spark_member", told)

    def _run(self, name: str, module: str, told: dict[str, Any]) -> None:
        (self.home / "logs").mkdir(exist_ok=True)
        with (self.home / "logs" / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603  our own module
                [sys.executable, "-m", module, json.dumps(told)],
                stdin=subprocess.PIPE,  # so that it notices when we are gone
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self, *names: str, how: signal.Signals = signal.SIGTERM) -> None:
        """All at once; returns when they are gone."""
        for name in names:
            self.processes[name].send_signal(how)
        for name in names:
            with self.processes.pop(name) as process:
                code = process.wait(PATIENCE_S)
            if how is signal.SIGTERM and code:
                raise CoterieError(f"{name} exited with status {code}: see {self.home / 'logs' / name}.log")

    def add_partitions(self, count: int) -> None:
        """So that there are so many."""
        checked(self.admin.create_partitions({TOPIC: count}))
        self._partitions = count

    def dawdle(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGUSR1)

    # --- waiting ------------------------------------------------------------------------------------------------------

    @property
    def rebalances(self) -> list[Rebalance]:
        return self.broker.rebalances(GROUP)

    def static_joins(self, instance_id: str) -> int:
        """How often that static member has joined: it took its own place, or joined as a new member after its session
        had expired.
        """
        return sum(
            isinstance(fact, MemberReplaced | MemberJoined) and fact.instance_id == instance_id for fact in self.facts
        )

    def expired(self) -> int:
        return sum(isinstance(fact, MemberExpired) for fact in self.facts)

    def members(self) -> list[str] | None:
        """The clients in the group, while it is stable; None while it is not."""
        found = self._at_rest()
        return None if found is None else sorted(member.client_id for member in found.members)

    def _at_rest(self) -> GroupDescription | None:
        found = self.admin.describe_groups([GROUP])[GROUP]
        if isinstance(found, KafkaError) or found.state not in {"Stable", "Empty"}:
            return None
        if self.rebalances and self.rebalances[-1].outcome is Outcome.RUNNING:
            return None
        return found

    def wait_for(self, names: Iterable[str], what: str) -> None:
        """Until the group is stable, has exactly these members, and they own everything.

        A cooperative group is stable between its two rebalances as well, with partitions that nobody owns.
        """
        wanted = sorted(names)
        said = (
            f"{what}: {', '.join(wanted) or 'nobody'} in group {GROUP}, with all {self._partitions} partitions assigned"
        )
        self.wait(lambda: self._has(wanted), said)

    def _has(self, names: list[str]) -> bool:
        found = self._at_rest()
        if found is None or sorted(member.client_id for member in found.members) != names:
            return False
        owned = {place for member in found.members for place in member.assignment}
        return len(owned) == self._partitions

    def wait(self, it_is_so: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + PATIENCE_S  # noqa: TID251  this is the real world
        while not it_is_so():
            for name, process in self.processes.items():
                if process.poll() is not None:
                    log = self.home / "logs" / f"{name}.log"
                    last = log.read_text(errors="replace")[-1_500:]
                    raise CoterieError(f"{name} exited with status {process.returncode}:\n{last}")
            if time.monotonic() > give_up:  # noqa: TID251
                raise CoterieError(f"gave up after {PATIENCE_S:.0f} s waiting for {what}; members: {self.members()}")
            time.sleep(PAUSE_S)

    def wait_until_all_is_committed(self, ends: dict[int, int]) -> None:
        def is_done() -> bool:
            committed = self.admin.list_group_offsets(GROUP)
            return all(
                not end or getattr(committed.get(TopicPartition(TOPIC, partition)), "offset", -1) >= end
                for partition, end in ends.items()
            )

        self.wait(is_done, "all orders to be processed")

    # --- what was done ------------------------------------------------------------------------------------------------

    def done(self) -> dict[str, list[tuple[int, int]]]:
        """By process: partition and offset of all it has processed."""
        found: dict[str, list[tuple[int, int]]] = {}
        for notes in sorted((self.home / "done").glob("*.txt")):
            lines = notes.read_text().splitlines()
            found[notes.stem] = [(int(line.split()[0]), int(line.split()[1])) for line in lines]
        for orders in sorted(self.home.glob("*/orders")):
            found[orders.parent.name] = _rows(orders)
        return found


def _rows(directory: Path) -> list[tuple[int, int]]:
    """What Spark has made durable: the files its sink's own log names, not those a replaced task left behind."""
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
