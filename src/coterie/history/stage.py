"""Where designs run for real: our broker with a topic, a stream of records, a ZooKeeper, and everybody as a process.

with Stage(Path(directory), design=1, partitions=6) as stage:
    stage.add("c1")
    stage.add("c2")
    stage.settle()
    stage.end("c1", signal.SIGKILL)
    stage.settle()
    ends = stage.end_stream()
    ...
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coterie import Admin, Broker, Producer
from coterie.client.admin import LATEST, NewTopic, checked
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError
from coterie.history.design_types import Partition
from coterie.history.journal import done_by, lines_of
from coterie.history.zookeeper import ZooKeeper

__all__ = ["GROUP", "TOPIC", "Stage"]

TOPIC, GROUP = "t", "g"
BROKERS = 2
RATE = 200
"""Records a second."""
BROKER_NAME = "broker-"
PATIENCE_S, PAUSE_S = 60.0, 0.05
CALM_S = 0.3
"""Nothing has changed for so long: it is settled."""
SESSION_MS = 2_000
BROKER = {"group.initial.rebalance.delay.ms": 300, "group.min.session.timeout.ms": 1_000}
MODULES = {1: "coterie.history.member_process", 2: "coterie.history.member_process", 3: "coterie.history.group_process"}


class Stage:
    def __init__(
        self,
        home: Path,
        *,
        design: int,
        partitions: int,
        strategies: Sequence[str] = ("range",),
        zookeeper: ZooKeeper | None = None,
    ) -> None:
        """`strategies`: of the consumers, but under design 2 of the brokers, and there is one.

        `zookeeper`: one that runs, if there is; everything is then kept under a node of its own.
        """
        self.home = home
        self.design = design
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
            if self.design != 3:
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

    # --- who is there -------------------------------------------------------------------------------------------------

    def add(self, name: str, **more: Any) -> None:
        self._run(name, MODULES[self.design], {"name": name, **more})

    def add_broker(self, broker: str) -> None:
        """What it says to ZooKeeper. Under design 3 there is nobody to say it to."""
        if self.design != 3:
            groups = [GROUP] if self.design == 2 else []
            self._run(f"{BROKER_NAME}{broker}", "coterie.history.broker_process", {"broker": broker, "groups": groups})

    def _run(self, name: str, module: str, told: dict[str, Any]) -> None:
        everybody = {
            "design": self.design,
            "group": GROUP,
            "topics": {TOPIC: self.partitions},
            "bootstrap": self.broker.bootstrap_servers,
            "zookeeper": self._address,
            "session_timeout_ms": SESSION_MS,
            "backoff_ms": 300,
            "strategy": self.strategies[0],
            "strategies": self.strategies,
            "home": str(self.home),
        }
        with (self.home / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603  our own module
                [sys.executable, "-m", module, json.dumps({**everybody, **told})],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait(PATIENCE_S)

    def restart(self, name: str) -> None:
        """In order, with the strategies that are to be had now."""
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
        """No more records. Returns how many each partition got."""
        self._stops.set()
        self._stream.join()
        places = [TopicPartition(TOPIC, number) for number in range(self.partitions)]
        ends = checked(self.admin.list_offsets(dict.fromkeys(places, LATEST)))
        return {place.partition: found.offset for place, found in ends.items()}

    def processed(self) -> Counter[tuple[int, int]]:
        """Partition and offset of each record that was processed, and how often it was."""
        return Counter(record for done in done_by(self.home).values() for record in done)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def owners(self) -> dict[Partition, list[str]]:
        """Who reads what now, as each says itself: of those that are alive."""
        found: dict[Partition, list[str]] = {}
        for name, lines in lines_of(self.home).items():
            if name in self.processes and lines:
                for one in lines[-1].reads:
                    found.setdefault(one, []).append(name)
        return found

    @property
    def slots(self) -> list[str]:
        """What brokers say to ZooKeeper, as processes."""
        return [name for name in self.processes if name.startswith(BROKER_NAME)]

    @property
    def members(self) -> list[str]:
        return [name for name in self.processes if not name.startswith(BROKER_NAME)]

    def counts(self) -> Counter[str]:
        """Of all processes together: asked and told so far."""
        return sum((Counter(lines[-1].counts) for lines in lines_of(self.home).values() if lines), Counter())

    def is_shared_out(self) -> bool:
        """Every partition has one reader, and everybody who can have one reads something."""
        owners = self.owners()
        busy = {name for names in owners.values() for name in names}
        return (
            len(owners) == self.partitions
            and all(len(names) == 1 for names in owners.values())
            and len(busy) == min(len(self.members), self.partitions)
        )

    def has_all_but(self, name: str) -> bool:
        """The others read everything, whatever this one believes."""
        return len({one for one, names in self.owners().items() if names != [name]}) == self.partitions

    def settle(self) -> None:
        """Until it is so, and stays so for a while."""
        self.wait(lambda: self.is_shared_out() and self._is_calm(), "every partition to have one reader")

    def _is_calm(self) -> bool:
        before = self.owners()
        time.sleep(CALM_S)
        return before == self.owners()

    def wait_until_all_is_processed(self, ends: dict[int, int]) -> None:
        wanted = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
        self.wait(lambda: wanted <= self.processed().keys(), "all records to be processed")

    def wait(self, it_is_so: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + PATIENCE_S  # noqa: TID251  this is the real world
        while not it_is_so():
            for name, process in self.processes.items():
                if process.poll() is not None:
                    last = (self.home / f"{name}.log").read_text(errors="replace")[-1_500:]
                    raise CoterieError(f"{name} ended by itself, with {process.returncode}:\n{last}")
            if time.monotonic() > give_up:  # noqa: TID251
                raise CoterieError(f"waited {PATIENCE_S:.0f} s in vain for {what}; there is {self.owners()}")
            time.sleep(PAUSE_S)
