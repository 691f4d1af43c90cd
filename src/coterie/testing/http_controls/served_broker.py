"""The broker of `coterie serve --test-controls`, and what its operations work on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.broker.broker import Flush
from coterie.broker.io.server import Listener
from coterie.errors import CoterieError
from coterie.facts import Fact
from coterie.protocol.records import Record
from coterie.settings.broker_settings import BrokerSettings
from coterie.testing.broker_faults import Faults
from coterie.testing.clock import BrokerClock
from coterie.testing.faults import Fault
from coterie.testing.groups import GroupSnapshot, Member
from coterie.testing.kafka_broker import KafkaBroker
from coterie.testing.requests import Request


class NoSuchFaultError(CoterieError):
    """No fault has this number."""


class ServedBroker(KafkaBroker):
    """A broker for tests with the listeners of `coterie serve`."""

    def __init__(
        self,
        settings: BrokerSettings,
        listeners: Sequence[Listener],
        *,
        data: Any = None,
        flush: Flush | None = None,
        nodes: int = 1,
        on_fact: Callable[[Fact], None] | None = None,
    ) -> None:
        super().__init__(settings, data=data, flush=flush, nodes=nodes, on_fact=on_fact)
        self._listeners = list(listeners)

    @property
    def has_data_directory(self) -> bool:
        """Whether what it has is kept in a directory."""
        return self._data is not None

    def take_ports_of(self, other: ServedBroker) -> None:
        """Listen where another broker did."""
        self._ports = other._ports


# --- what is written as JSON ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class About:
    """The broker, and where it is."""

    bootstrap_servers: str
    version: str


@dataclass(frozen=True, slots=True)
class ClockState:
    """The clock of the broker."""

    now_ms: int
    is_frozen: bool


@dataclass(frozen=True, slots=True)
class ServedGroupState:
    """A group at one moment; Dead if there is no such group."""

    group_id: str
    state: str
    generation: int
    protocol: str
    members: tuple[Member, ...]
    assignment: dict[str, list[str]]
    committed: dict[str, int]

    @classmethod
    def of(cls, now: GroupSnapshot) -> ServedGroupState:
        return cls(
            now.group_id,
            now.state,
            now.generation,
            now.protocol,
            now.members,
            now.assignment,
            dict(now.committed),
        )


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic; it has no partitions if it does not exist."""

    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record."""

    key: str
    value: bytes | None = None


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to write. Without a value it is a tombstone."""

    value: bytes | None = None
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class RecordState:
    """A record of a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp: int

    @classmethod
    def of(cls, record: Record) -> RecordState:
        headers = [Header(name, value) for name, value in record.headers]
        return cls(record.topic, record.partition, record.offset, record.key, record.value, headers, record.timestamp)


@dataclass(frozen=True, slots=True)
class RequestState:
    """A request that a client sent, decoded, and the first error of the answer: NONE if all went well."""

    api: str
    version: int
    client_id: str
    host: str
    at_ms: int
    node: int
    state: str
    groups: list[str]
    members: list[str]
    instance: str | None
    generation: int | None
    topics: list[str]
    error: str
    fault: str
    body: Any

    @classmethod
    def of(cls, one: Request) -> RequestState:
        return cls(
            one.api,
            one.version,
            one.client_id,
            one.host,
            one.at_ms,
            one.node,
            one.state,
            one.groups,
            one.members,
            one.instance,
            one.generation,
            one.topics,
            one.error,
            one.fault,
            one.body,
        )


@dataclass(frozen=True, slots=True)
class FaultState:
    """A fault, and how often it has fired. `hits` are the requests, or the files of the disk, that it has hit."""

    number: int
    what: str
    is_in_force: bool
    count: int
    hits: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, number: int, fault: Fault) -> FaultState:
        hits = [RequestState.of(one) if isinstance(one, Request) else one for one in getattr(fault, "hits", ())]
        return cls(number, fault.what, fault.is_in_force, fault.count, hits)


# --- what operations work on ------------------------------------------------------------------------------------------


class TestControls:
    """A broker that is started again with fresh state when a test asks, and the faults that tests have begun.

    Each operation is called in a thread of its own.
    """

    __test__ = False  # not for pytest

    def __init__(self, make: Callable[[], ServedBroker]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._faults: dict[int, Fault] = {}
        self._last_number = 0
        self._broker = make()

    @property
    def broker(self) -> KafkaBroker:
        """The broker that runs now."""
        return self._broker

    def start(self) -> None:
        """Start the broker."""
        self.broker.start()

    def stop(self) -> None:
        """Stop the broker."""
        with self._lock:
            self.broker.stop()

    @property
    def clock(self) -> BrokerClock:
        return self.broker.clock

    @property
    def faults(self) -> Faults:
        return self.broker.faults

    def about(self) -> About:
        """Return where the broker is."""
        from coterie import __version__

        return About(self.broker.bootstrap_servers, __version__)

    def reset(self) -> About:
        """Start the broker again at the same address, with nothing in it: no topics, groups, faults or records.

        Connections are closed, the clock is the system's, and waits that are under way fail.

        Returns:
            Where the broker is.

        Raises:
            CoterieError: The broker has a data directory, which is not deleted.
        """
        with self._lock:
            if self._broker.has_data_directory:
                raise CoterieError("this broker keeps its data in a directory: start it without --data to reset it")
            self._broker.stop()
            fresh = self._make()
            fresh.take_ports_of(self._broker)
            self._faults = {}
            self._broker = fresh.start()
        return self.about()

    def produce(
        self,
        name: str,
        records: list[NewRecord],
        partition: int = 0,
        headers: dict[str, bytes | None] | None = None,
        timestamp: int | None = None,
    ) -> list[Record]:
        """Write records to a partition, as one batch, and return when consumers can read them.

        Args:
            name: The name of the topic, which has to exist.
            records: The key and value of each record.
            partition: The number of the partition.
            headers: The headers of all records.
            timestamp: The time of all records, in milliseconds since 1970; without it, the broker's time.

        Returns:
            The records as they are in the topic.

        Raises:
            CoterieError: There is no such partition, or the records cannot be written.
        """
        pairs = [(one.key, one.value) for one in records]
        return self.broker.produce(name, pairs, partition=partition, headers=headers, timestamp=timestamp)

    def clock_state(self) -> ClockState:
        """Return the broker's time, in milliseconds since 1970, and whether it stands still."""
        return ClockState(self.clock.now_ms, self.clock.is_frozen)

    # --- faults -------------------------------------------------------------------------------------------------------

    def begin_fault(self, fault: Fault) -> FaultState:
        """Put a fault in force, and give it a number."""
        fault.begin()
        with self._lock:
            self._last_number += 1
            number = self._last_number
            self._faults[number] = fault
        return FaultState.of(number, fault)

    def fault(self, number: int) -> Fault:
        """Return a fault.

        Args:
            number: The number of the fault, from the answer when it began.

        Raises:
            NoSuchFaultError: There is none with this number since the last reset.
        """
        with self._lock:
            found = self._faults.get(number)
        if found is None:
            known = ", ".join(map(str, self._faults)) or "none"
            raise NoSuchFaultError(f"no fault {number} since the last reset; there are: {known}")
        return found

    def fault_state(self, number: int) -> FaultState:
        """Return a fault, also one that has ended, and what it has hit.

        Args:
            number: The number of the fault, from the answer when it began.

        Raises:
            NoSuchFaultError: There is none with this number since the last reset.
        """
        return FaultState.of(number, self.fault(number))

    def fault_states(self) -> list[FaultState]:
        """Return all faults since the last reset, also those that have ended, and what they have hit."""
        with self._lock:
            known = dict(self._faults)
        return [FaultState.of(number, fault) for number, fault in known.items()]

    def end_fault(self, number: int) -> FaultState:
        """End a fault.

        Args:
            number: The number of the fault, from the answer when it began.

        Returns:
            The fault, and what it has hit.

        Raises:
            FaultNotFiredError: It never fired. It has ended all the same.
            NoSuchFaultError: There is none with this number since the last reset.
        """
        fault = self.fault(number)
        fault.end()
        return FaultState.of(number, fault)

    def abandon_fault(self, number: int) -> FaultState:
        """End a fault, whether it fired or not.

        Args:
            number: The number of the fault, from the answer when it began.

        Returns:
            The fault, and what it has hit.

        Raises:
            NoSuchFaultError: There is none with this number since the last reset.
        """
        fault = self.fault(number)
        fault.abandon()
        return FaultState.of(number, fault)

    def end_faults(self) -> list[FaultState]:
        """End all faults that are in force, as at the end of a test.

        Returns:
            All faults since the last reset.

        Raises:
            FaultNotFiredError: One of them never fired. All have ended all the same.
        """
        self.broker.end_faults()
        return self.fault_states()
