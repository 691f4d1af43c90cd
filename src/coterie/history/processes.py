"""The processes that `coterie compare-designs --real` starts, and the files in which each records its progress.

    python -m coterie.history.processes member '{"design": 1, "name": "c1", "topics": {"t": 6}, ...}'

`member` is a consumer of design 1 or 2, `broker` registers a broker in ZooKeeper (under design 2 it coordinates groups
too), and `kafka-member` is Coterie's own consumer. SIGTERM ends each of them cleanly. An assignor is one of Kafka's by
name, or `module:Class`.

`NAME.done` has the partition and offset of every record that the process has processed; a record is written there
before it is committed. `NAME.reads` has one line of JSON for each change of what the process reads.
"""

from __future__ import annotations

import json
import signal
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from coterie import Consumer
from coterie.assignors import Assignor, Topic, assignor
from coterie.client.types import TopicPartition
from coterie.errors import CommitFailedError, KafkaError, RebalanceInProgressError
from coterie.history.design_types import (
    CommitDue,
    Connect,
    DisconnectMember,
    Partition,
    SendMessage,
    StartReading,
    Stopped,
    StopReading,
)
from coterie.history.drivers import CoordinatorConnection, MachineDriver, MachineLoop, MemberListener, now_ms
from coterie.history.server_side_coordinator import RegisteredBroker
from coterie.history.server_side_member import ServerSideMember
from coterie.history.zookeeper_watchers import WatchingConsumer, WatchingSettings

COMMIT_MS = 500
"""Members of all designs commit at this interval, so that the records processed twice can be compared."""
POLL_S = 0.02
MEMBER_RUN_MS, BROKER_RUN_MS = 5, 50


# --- the files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProgressEntry:
    """The partitions that a process reads from a moment on, and its counts of requests and notifications then."""

    at_ms: int
    reads: frozenset[Partition]
    counts: Mapping[str, int]


class ProgressLog:
    def __init__(self, home: Path, name: str) -> None:
        self._done = (home / f"{name}.done").open("a", buffering=1)
        self._reads = (home / f"{name}.reads").open("a", buffering=1)
        self._last: frozenset[Partition] | None = None

    def processed(self, records: Collection[tuple[int, int]]) -> None:
        """Write the partition and offset of each record in one write: a killed process leaves whole lines."""
        self._done.write("".join(f"{partition} {offset}\n" for partition, offset in records))

    def reads(self, reads: frozenset[Partition], counts: Mapping[str, int], *, always: bool = False) -> None:
        """Write an entry if `reads` has changed, or `always`."""
        if reads == self._last and not always:
            return
        self._last = reads
        self._reads.write(json.dumps({"at_ms": now_ms(), "reads": sorted(reads), "counts": dict(counts)}) + "\n")

    def close(self) -> None:
        self._done.close()
        self._reads.close()


def progress_of(home: Path) -> dict[str, list[ProgressEntry]]:
    """Return the entries of all processes by name."""
    return {path.stem: list(_entries(path)) for path in sorted(home.glob("*.reads"))}


def _entries(path: Path) -> Iterator[ProgressEntry]:
    for text in path.read_text().splitlines():
        found = json.loads(text)
        reads = frozenset((topic, number) for topic, number in found["reads"])
        yield ProgressEntry(found["at_ms"], reads, found["counts"])


def processed_by(home: Path) -> dict[str, list[tuple[int, int]]]:
    """Return the partition and offset of all processed records by process name."""
    found = {}
    for path in sorted(home.glob("*.done")):
        rows = (line.split() for line in path.read_text().splitlines())
        found[path.stem] = [(int(partition), int(offset)) for partition, offset in rows]
    return found


# --- the processes ----------------------------------------------------------------------------------------------------


class DesignProcess(ABC):
    """A process that works in short steps until SIGTERM, then closes. `options` is its argument, parsed."""

    def __init__(self, options: dict[str, Any], name: str) -> None:
        self._options = options
        self._log = ProgressLog(Path(options["home"]), name)
        self._is_over = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_is_over", True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; the parent ends this one

    def run(self) -> None:
        self._start()
        commit_ms = now_ms() + COMMIT_MS
        while not self._is_over:
            self._step()
            if now_ms() >= commit_ms:
                commit_ms = now_ms() + COMMIT_MS
                self._commit()
        self._commit()
        self._close()
        self._log.close()

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _step(self) -> None: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...

    def _driver_of(self, loop: MachineLoop, machine: Any, performs: Mapping[type, Any]) -> MachineDriver:
        address, timeout_ms = self._options["zookeeper"], self._options["session_timeout_ms"]
        return MachineDriver(loop, machine, address, session_timeout_ms=timeout_ms, performs=performs)

    def _consumer_of(self, settings: Mapping[str, Any]) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._options["bootstrap"],
                "client.id": self._options["name"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.max.wait.ms": 100,
                **settings,
            }
        )

    def _poll(self, consumer: Consumer) -> dict[Partition, int]:
        """Process the next records. Returns the position behind them by partition."""
        records = consumer.poll(POLL_S)
        if records:
            self._log.processed([(record.partition, record.offset) for record in records])
        return {(record.topic, record.partition): record.offset + 1 for record in records}


class ServerSideBrokerProcess(DesignProcess):
    """A broker's registration in ZooKeeper. Under design 2 it coordinates groups with the assignor it was given."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options, f"broker-{options['broker']}")
        self._loop = MachineLoop()
        self._listener = MemberListener()
        address, strategy = self._listener.address, load_assignor(options["strategy"])
        machine = RegisteredBroker(options["broker"], address, options["groups"], _topics(options), strategy)
        performs = {SendMessage: self._listener.send, DisconnectMember: self._listener.disconnect}
        self._driver = self._driver_of(self._loop, machine, performs)
        self._counted: Counter[str] = Counter()

    def _start(self) -> None:
        self._listener.serve(self._driver.post)
        self._driver.zookeeper.connect()

    def _step(self) -> None:
        self._loop.run(BROKER_RUN_MS)
        counts = self._driver.zookeeper.counts + Counter(messages=self._listener.sent)
        if counts != self._counted:
            self._counted = counts
            self._log.reads(frozenset(), counts, always=True)

    def _commit(self) -> None:
        """Do nothing: only members commit."""

    def _close(self) -> None:
        self._driver.zookeeper.close()
        self._listener.close()


class ZooKeeperMemberProcess(DesignProcess):
    """A consumer of design 1 or 2 that reads a topic of Coterie's broker."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options, options["name"])
        self._consumer = self._consumer_of({})
        self._machine = self._new_machine()
        self._loop = MachineLoop()
        self._connection = CoordinatorConnection(self._post)
        performs = {
            StartReading: self._start_reading,
            StopReading: self._stop_reading,
            Connect: self._connection.connect,
            SendMessage: self._connection.send,
        }
        self._driver = self._driver_of(self._loop, self._machine, performs)
        self._positions: dict[Partition, int] = {}
        """The position of each partition it reads: everything before it is processed."""

    def _new_machine(self) -> Any:
        options, topics = self._options, _topics(self._options)
        if options["design"] == 2:
            return ServerSideMember(options["group"], options["name"], list(topics))
        settings = WatchingSettings(rebalance_backoff_ms=options["backoff_ms"])
        strategy = load_assignor(options["strategy"])
        return WatchingConsumer(options["group"], options["name"], list(topics), topics, strategy, settings)

    def _start(self) -> None:
        self._driver.zookeeper.connect()

    def _step(self) -> None:
        self._loop.run(0 if self._positions else MEMBER_RUN_MS)
        if self._positions:
            self._positions |= self._poll(self._consumer)
        self._log.reads(self._machine.reads, self._counts())

    def _post(self, event: Any) -> None:
        self._driver.post(event)

    def _commit(self) -> None:
        self._driver.post(CommitDue(dict(self._positions)))

    def _close(self) -> None:
        self._loop.run(MEMBER_RUN_MS)
        self._consumer.close()
        self._driver.zookeeper.close()
        self._connection.close()
        self._log.reads(frozenset(), self._counts(), always=True)

    def _counts(self) -> Counter[str]:
        more = {
            name: getattr(self._machine, name) for name in ("attempts", "conflicts") if hasattr(self._machine, name)
        }
        return self._driver.zookeeper.counts + Counter(more) + Counter(messages=self._connection.sent)

    def _start_reading(self, effect: StartReading) -> None:
        self._positions = dict(effect.offsets)
        self._consumer.assign([TopicPartition(*one) for one in effect.offsets])
        for one, offset in effect.offsets.items():
            self._consumer.seek(TopicPartition(*one), offset)

    def _stop_reading(self, _effect: StopReading) -> None:
        """Stop reading. No record is processed in the meantime: the thread that reads is the one that runs this."""
        positions, self._positions = self._positions, {}
        self._consumer.assign([])
        self._driver.post(Stopped(positions))


class KafkaMemberProcess(DesignProcess):
    """A member under designs 3 and 4: Coterie's consumer."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options, options["name"])
        self._reads: set[Partition] = set()
        self._positions: dict[Partition, int] = {}
        settings: dict[str, Any] = (
            {"group.protocol": "consumer", "group.remote.assignor": options["strategies"][0]}
            if options["design"] == 4
            else {
                "partition.assignment.strategy": [load_assignor(name) for name in options["strategies"]],
                "session.timeout.ms": options["session_timeout_ms"],
                "heartbeat.interval.ms": options["heartbeat_interval_ms"],
            }
        )
        self._consumer = self._consumer_of({"group.id": options["group"], **settings})

    def _start(self) -> None:
        topics = list(self._options["topics"])
        self._consumer.subscribe(
            topics, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._stop_reading
        )

    def _step(self) -> None:
        self._positions |= self._poll(self._consumer)

    def _commit(self) -> None:
        try:
            self._consumer.commit({TopicPartition(*one): offset for one, offset in self._positions.items()})
        except CommitFailedError:
            self._positions.clear()  # the member is out of the group: another one reads its partitions
        except RebalanceInProgressError:
            return  # what it still owns after the rebalance is committed then
        except KafkaError as error:
            if not error.retriable:
                raise

    def _close(self) -> None:
        self._consumer.close()
        self._log.reads(frozenset(), {}, always=True)

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self._reads |= {(one.topic, one.partition) for one in partitions}
        self._log.reads(frozenset(self._reads), {})

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._stop_reading(partitions)

    def _stop_reading(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._positions.pop((one.topic, one.partition), None)
            self._reads.discard((one.topic, one.partition))
        self._log.reads(frozenset(self._reads), {})


def _topics(options: Mapping[str, Any]) -> dict[str, Topic]:
    return {name: Topic(partitions) for name, partitions in options["topics"].items()}


def load_assignor(name: str) -> Assignor:
    """Return one of Coterie's assignors by its name, or a new `module:Class`."""
    module, colon, kind = name.partition(":")
    if not colon:
        return assignor(name)
    made: Assignor = getattr(import_module(module), kind)()
    return made


KINDS: Mapping[str, type[Any]] = {
    "member": ZooKeeperMemberProcess,
    "broker": ServerSideBrokerProcess,
    "kafka-member": KafkaMemberProcess,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](json.loads(sys.argv[2])).run()
