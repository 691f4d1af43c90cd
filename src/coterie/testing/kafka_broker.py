"""`KafkaBroker`: a broker for tests, with all that a test can wait for, see, move and break.

with KafkaBroker(topics={"orders": 3}) as broker:
    consumer = KafkaConsumer("orders", bootstrap_servers=broker.bootstrap_servers, group_id="billing")
    broker.group("billing").wait_stable(members=1)
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Self, TypeVar

from coterie.broker.broker import NOT_RUNNING, Broker, Flush, open_cluster
from coterie.broker.connection_limits import files_of_logs
from coterie.broker.io.server import Server
from coterie.errors import CoterieError, IllegalStateError
from coterie.facts import Fact
from coterie.protocol.apis import create_topics
from coterie.protocol.apis import produce as produce_api
from coterie.protocol.records import BatchRecord, Record, build_batch
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import dotted
from coterie.storage import DiskFiles, MemoryFiles
from coterie.testing.broker_faults import Faults
from coterie.testing.clock import BrokerClock, MovableClock
from coterie.testing.controlled_server import ControlledServer, Controls
from coterie.testing.disk import ControlledFiles
from coterie.testing.faults import Fault
from coterie.testing.groups import TIMEOUT_S, Group, snapshot_of
from coterie.testing.requests import Request, api_named
from coterie.testing.story import story_of
from coterie.testing.topics import Topic, records_of

T = TypeVar("T")
MOST_FACTS = 10_000
GRACE_S = 30.0
"""How much longer than its timeout a test waits for the broker's thread to say that the time is over."""

TEST_SETTINGS: Mapping[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 10,
    "group.consumer.min.session.timeout.ms": 10,
    "group.consumer.min.heartbeat.interval.ms": 10,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
    "offsets.topic.num.partitions": 4,
    "coterie.facts.enable": False,
}
"""The settings of a broker for tests, where they differ from those of any broker: it does not wait for members that
might still come, allows short sessions, and has few partitions of `__consumer_offsets`."""

Value = bytes | str | None


class KafkaBroker(Broker):
    """Run a broker for tests in this process, in a thread of its own, and control it.

    Example::

        with KafkaBroker(topics={"orders": 3}) as broker:
            consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing")
            broker.group("billing").wait_stable(members=1)

    `with` and `async with` start and stop it, as `start` and `stop` do. It is in memory unless it has a data directory.

    Args:
        settings: Settings of the broker under Kafka's names, besides those of `TEST_SETTINGS`; or all settings, as
            `BrokerSettings`.
        topics: Topics to create, and how many partitions each has.
        nodes: How many brokers clients see.
        data: A data directory.
        flush: When records are written to the disk: `sync` before they are acknowledged, `os` when the system does.
        tls: Whether clients must use TLS.
        users: Users and their passwords. With them, clients must log in.
        host: The address to listen at.
        port: The port to listen at; 0 is any that is free.
        on_fact: A function that is called with everything that happens to a group.

    Raises:
        SettingsError: A setting is unknown, or its value is not allowed.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | BrokerSettings | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        nodes: int = 1,
        data: str | os.PathLike[str] | None = None,
        flush: Flush | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        on_fact: Callable[[Fact], None] | None = None,
    ) -> None:
        if isinstance(settings, BrokerSettings):
            chosen: Mapping[str, Any] | BrokerSettings = settings
        else:
            chosen = {**TEST_SETTINGS, **{dotted(name): value for name, value in (settings or {}).items()}}
        super().__init__(
            data,
            chosen,
            host=host,
            port=port,
            flush=flush,
            nodes=nodes,
            tls=tls,
            users=users,
            on_fact=on_fact,
        )
        self._topics = dict(topics or {})
        self._controls = Controls()
        self._movable_clock = MovableClock()
        self._began_ms = 0
        self._last_story = ""
        self._happened: deque[Fact] = deque(maxlen=MOST_FACTS)
        self.disk = ControlledFiles(MemoryFiles())
        """The files of the broker, which faults make full and slow."""
        self._reserved: list[socket.socket] = []
        """The ports of a broker that has crashed, which nobody else is to take."""
        self._faults_in_force: list[Fault] = []
        self.rebalances_seen: dict[str, int] = {}
        """How many rebalances of each group `Group.wait_rebalance` has returned or passed over."""
        self.clock = BrokerClock(self)
        """The clock of the broker, which the test can move."""
        self.faults = Faults(self)
        """The faults that the test scripts."""

    @property
    def syncs(self) -> bool:
        """True if records are synced before they are acknowledged."""
        return self._flush == "sync"

    # --- inspecting ---------------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group:
        """Return a group, to look at and to wait for. It need not exist yet.

        Args:
            group_id: The id of the group.
        """
        return Group(self, group_id)

    def topic(self, name: str) -> Topic:
        """Return a topic, to look at and to wait for. It need not exist yet.

        Args:
            name: The name of the topic.
        """
        return Topic(self, name)

    @property
    def groups(self) -> list[Group]:
        """The groups that exist."""
        ids = self.run_on_broker(lambda server: sorted(group.group_id for group in server.groups()))
        return [Group(self, group_id) for group_id in ids]

    def requests(
        self,
        api: str | None = None,
        *,
        group: str | None = None,
        member: str | None = None,
        topic: str | None = None,
    ) -> list[Request]:
        """Return what clients have sent since the start of the broker, decoded, the earliest first.

        Of very many, the last 10 000 are kept.

        Args:
            api: The name of an API, such as `OffsetCommit`: its requests alone.
            group: The id of a group: the requests that name it.
            member: The client id, member id or group instance id of a member: its requests.
            topic: The name of a topic: the requests that name it.

        Returns:
            The requests.

        Raises:
            CoterieError: There is no such API.
        """
        name = None if api is None else api_named(api).name
        sent = self.run_on_broker(lambda server: list(server.controls.recorder.requests))
        return [
            one
            for one in sent
            if (name is None or one.api == name)
            and (group is None or group in one.groups)
            and (member is None or one.is_of(member))
            and (topic is None or topic in one.topics)
        ]

    @property
    def facts(self) -> list[Fact]:
        """The facts since the start of the broker, the earliest first; the last 10 000."""
        return self.run_on_broker(lambda _server: list(self._happened))

    def story(self, group_id: str | None = None) -> str:
        """Return as text what happened: who joined, who is late, what was committed, the last requests.

        Args:
            group_id: The id of a group; without it, all groups.

        Returns:
            The text, of several lines.
        """
        return self.run_on_broker(lambda _server: self.story_now(group_id))

    def story_now(self, group_id: str | None = None) -> str:
        """Do what `story` does, in the broker's thread."""
        server = self._controlled()
        known = sorted({one.group_id for one in server.groups()} | {one.group_id for one in self._happened} - {""})
        ids = [each for each in known if group_id is None or each == group_id]
        if group_id is not None and group_id not in ids:
            ids = [group_id]
        groups = [snapshot_of(server, each) for each in ids]
        requests = list(server.controls.recorder.requests)
        return story_of(groups, self._happened, requests, self._faults_in_force, self._began_ms)

    def last_story(self) -> str:
        """Return the story of a broker that may be stopped: then that of its last moment."""
        return self.story() if self._thread is not None else self._last_story

    def last_facts(self) -> list[Fact]:
        """Return the facts of a broker that may be stopped."""
        return self.facts if self._thread is not None else list(self._happened)

    # --- topics and records -------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, Any] | None = None) -> Topic:
        """Create a topic.

        Args:
            name: The name of the topic.
            partitions: How many partitions it gets.
            configs: Configs of the topic under Kafka's names.

        Returns:
            The topic.

        Raises:
            CoterieError: It cannot be created: it exists, or its name or a config is not allowed.
        """
        self.await_on_broker(lambda server: _create_topic(server, name, partitions, configs or {}))
        return Topic(self, name)

    def produce(
        self,
        topic: str,
        values: Iterable[Value | tuple[Value, Value]],
        *,
        partition: int = 0,
        headers: Mapping[str, bytes | None] | None = None,
        timestamp: int | None = None,
    ) -> list[Record]:
        """Write records to a partition, as one batch, and return when consumers can read them.

        Args:
            topic: The name of the topic, which has to exist.
            values: The value of each record, or its key and value.
            partition: The number of the partition.
            headers: The headers of all records.
            timestamp: The time of all records, in milliseconds since 1970; without it, the broker's time.

        Returns:
            The records as they are in the topic.

        Raises:
            CoterieError: There is no such partition, or the records cannot be written.
        """
        pairs = [_pair(value) for value in values]
        if not pairs:
            return []
        given = tuple((headers or {}).items())
        return self.await_on_broker(lambda server: _produce(server, topic, partition, pairs, given, timestamp))

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait(
        self,
        what: str,
        check: Callable[[ControlledServer], T | None],
        group_id: str | None = None,
        timeout: float = TIMEOUT_S,
    ) -> T:
        """Wait for a condition of your own.

        Args:
            what: What is waited for, for the message: `waited for {what}`.
            check: The condition. It is called in the broker's thread, with the server, after each event, until it
                returns something else than None. It must not change anything.
            group_id: The group that it is about, for the message.
            timeout: How many seconds to wait at most.

        Returns:
            What the condition returned.

        Raises:
            WaitTimeoutError: The condition did not hold in time.
        """
        return self._wait(what, check, group_id, timeout).result(timeout + GRACE_S)

    async def wait_async(
        self,
        what: str,
        check: Callable[[ControlledServer], T | None],
        group_id: str | None = None,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109
    ) -> T:
        """Do what `wait` does, in a test with asyncio."""
        return await asyncio.wrap_future(self._wait(what, check, group_id, timeout))

    def _wait(
        self, what: str, check: Callable[[ControlledServer], T | None], group_id: str | None, timeout: float
    ) -> Future[T]:
        future: Future[T] = Future()

        def why() -> str:
            return f"waited {timeout:g} s for {what}\n\n{self.story_now(group_id)}"

        def add() -> None:
            self._controls.waits.add(lambda: check(self._controlled()), timeout, why, future)

        self._running_loop().call_soon_threadsafe(add)
        return future

    # --- the broker's thread ------------------------------------------------------------------------------------------

    def run_on_broker(self, what: Callable[[ControlledServer], T]) -> T:
        """Call a function in the broker's thread, between two events, and return what it returns.

        Args:
            what: The function; it gets the server.

        Returns:
            What the function returns.

        Raises:
            IllegalStateError: The broker is stopped.
        """

        async def run(server: ControlledServer) -> T:
            return what(server)

        return self.await_on_broker(run)

    def await_on_broker(self, what: Callable[[ControlledServer], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the broker's thread, and return what it returns.

        Args:
            what: The coroutine function; it gets the server.

        Returns:
            What the coroutine returns.

        Raises:
            IllegalStateError: The broker is stopped.
        """
        try:
            return asyncio.run_coroutine_threadsafe(what(self._controlled()), self._running_loop()).result()
        except CancelledError:  # it was stopped meanwhile
            raise IllegalStateError(NOT_RUNNING) from None

    async def await_on_broker_async(self, what: Callable[[ControlledServer], Coroutine[Any, Any, T]]) -> T:
        """Do what `await_on_broker` does, in a test with asyncio."""
        future = asyncio.run_coroutine_threadsafe(what(self._controlled()), self._running_loop())
        return await asyncio.wrap_future(future)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._thread is None or self._loop is None:
            raise IllegalStateError(NOT_RUNNING)
        return self._loop

    def _controlled(self) -> ControlledServer:
        if self._thread is None or not isinstance(self._server, ControlledServer):
            raise IllegalStateError(NOT_RUNNING)
        return self._server

    # --- starting and stopping ----------------------------------------------------------------------------------------

    def start(self) -> Self:
        super().start()
        topics, self._topics = self._topics, {}
        try:
            for name, partitions in topics.items():
                self.create_topic(name, partitions)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        if self._thread is not None and self._loop is not None:
            for fault in list(self._faults_in_force):
                fault.abandon()
            self._last_story = self.story()
            gone = IllegalStateError("the broker was stopped while the test waited")
            self._loop.call_soon_threadsafe(self._controls.waits.give_up, gone)
        super().stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def restart(self) -> None:
        """Stop the broker in order, and start it again at the same address with what it had.

        Raises:
            IllegalStateError: It is stopped.
        """
        self._running_loop()
        self.stop()
        self.start()

    def go_down(self, *, lose_unsynced: bool) -> None:
        """Let the broker crash; see `Faults.crash`."""
        self._on_loop(self._go_down(self._controlled(), lose_unsynced=lose_unsynced))

    async def _go_down(self, server: ControlledServer, *, lose_unsynced: bool) -> None:
        self._server = None
        await server.crash()
        self._reserved = [_reserve(port.host, port.number) for port in server.ports]
        if lose_unsynced:
            self.disk.lose_unsynced()

    def come_up(self) -> None:
        """Start the broker again after a crash."""
        self._on_loop(self._come_up())

    async def _come_up(self) -> None:
        try:
            self._server = await self._start_server()
        finally:
            for reserved in self._reserved:
                reserved.close()
            self._reserved = []

    def _on_loop(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._running_loop()).result()

    async def _start_server(self) -> Server:
        clock = self._movable_clock
        if self._data is not None:
            allowed_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            self.disk = ControlledFiles(DiskFiles(self._data, files_of_logs(allowed_files)))
        server = ControlledServer(self._tell, clock, self._controls)
        await server.begin(
            lambda wall: open_cluster(
                self._data,
                self._settings,
                self._flush,
                self._nodes,
                wall,
                self._users,
                files=self.disk,
                now_ms=clock.now_ms(),
            ),
            self._listeners,
            self._settings,
            nodes=self._nodes,
            ports=self._ports,
        )
        if not self._began_ms:
            self._began_ms = server.wall_now_ms()
        return server

    def _tell(self, fact: Fact) -> None:
        self._happened.append(fact)
        super()._tell(fact)

    # --- faults -------------------------------------------------------------------------------------------------------

    def note_fault(self, fault: Fault) -> None:
        """A fault has begun."""
        self._faults_in_force.append(fault)

    def forget_fault(self, fault: Fault) -> None:
        """A fault has ended."""
        self._faults_in_force = [one for one in self._faults_in_force if one is not fault]

    def end_faults(self) -> None:
        """End all faults that are in force, as a fixture does at the end of a test.

        Raises:
            FaultNotFiredError: One of them never fired.
        """
        problems: list[AssertionError] = []
        for fault in reversed(self._faults_in_force):
            try:
                fault.end()
            except AssertionError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]


def _reserve(host: str, number: int) -> socket.socket:
    """Take a port without listening at it, so that it refuses connections."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((host, number))
    return reserved


def _pair(value: Value | tuple[Value, Value]) -> tuple[bytes | None, bytes | None]:
    key, content = value if isinstance(value, tuple) else (None, value)
    return _bytes(key), _bytes(content)


def _bytes(value: Value) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


async def _create_topic(server: ControlledServer, name: str, partitions: int, configs: Mapping[str, Any]) -> None:
    asked = create_topics.NewTopic(
        name=name,
        num_partitions=partitions,
        configs=[create_topics.Config(name=dotted(key), value=str(value)) for key, value in configs.items()],
    )
    request = create_topics.Request(topics=[asked])
    answer = await server.ask("CreateTopics", request)
    (created,) = answer.topics
    if created.error:
        raise CoterieError(f"topic {name!r} cannot be created: {created.error.name}: {created.message}")


async def _produce(
    server: ControlledServer,
    topic: str,
    partition: int,
    pairs: Sequence[tuple[bytes | None, bytes | None]],
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp: int | None,
) -> list[Record]:
    log = server.cluster.directory.logs.get((topic, partition))
    if log is None:
        known = server.cluster.directory.topics.get(topic)
        there = f"it has {known.partitions}" if known is not None else "there is no such topic; create_topic creates it"
        raise CoterieError(f"no partition {partition} of topic {topic!r}: {there}")
    at_ms = server.wall_now_ms() if timestamp is None else timestamp
    batch = build_batch([BatchRecord(key, value, at_ms, headers) for key, value in pairs])
    sent = produce_api.Topic(name=topic, partitions=[produce_api.Partition(partition=partition, records=bytes(batch))])
    request = produce_api.Request(acks=-1, timeout_ms=60_000, topics=[sent])
    leader = server.cluster.leadership.leader_of((topic, partition))
    answer = await server.ask("Produce", request, leader)
    (written,) = answer.responses[0].partitions
    if written.error:
        raise CoterieError(f"records of {topic}-{partition} cannot be written: {written.error.name}: {written.message}")
    return records_of(server, topic, partition, written.base_offset)[: len(pairs)]
