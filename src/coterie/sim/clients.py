"""The processes of clients: the base of all of them, producers, the admin, simple consumers and zombies.

Each runs the shipped code on an event loop of its own.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from coterie.client.network.connection import BrokerConnection, OnAnswer
from coterie.client.network.network_client import NetworkClient
from coterie.client.network.runtime import Runtime
from coterie.client.producer.delivery import RecordMetadata
from coterie.client.producer.producer import AsyncProducer
from coterie.client.producer.record_accumulator import RecordAccumulator
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.apis import (
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    heartbeat,
    incremental_alter_configs,
    offset_commit,
    offset_fetch,
    sync_group,
)
from coterie.protocol.messages import (
    CommitPartition,
    DeleteGroup,
    Heartbeat,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    SyncGroup,
)
from coterie.settings.client_settings import Address, AdminSettings, ClientSettings
from coterie.sim.event_loop import VirtualEventLoop
from coterie.sim.network import VirtualWire
from coterie.sim.schedule import Host, HostClock
from coterie.structs import DataStruct

if TYPE_CHECKING:
    from coterie.sim.consumer import ConsumerProcess
    from coterie.sim.world import World


class Asked(DataStruct, frozen=True, gc=False):
    """A request that was sent."""

    module: ModuleType
    request: Any
    sent_ms: int
    """The world's time."""


class _Connection(BrokerConnection):
    """The shipped connection. It reports its answers to the world, and may use older versions than it supports."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        super().__init__(address, settings)
        self._client = cast("VirtualEventLoop", self._loop).client

    @property
    def waits_for(self) -> list[str]:
        """The names of the APIs whose answers are missing."""
        return [asked.api.name for asked in self._requests.sent]

    def version_of(self, api: ModuleType, at_most: int | None = None) -> int:
        if self._client.versions:
            newest = self._client.versions.get(api.API.name)
            if newest is not None:
                at_most = newest if at_most is None else min(newest, at_most)
        return self._versions.of(api, at_most)

    def feature(self, name: str) -> int:
        level = super().feature(name)
        return min(level, self._client.versions.get(name, level))

    async def send(self, api: ModuleType, request: Any, **how: Any) -> Any:
        asked = Asked(api, request, self._client.world.schedule.now_ms)
        answer = await super().send(api, request, **how)
        self._report(asked, answer)
        return answer

    def ask(self, api: ModuleType, request: Any, then: OnAnswer, **how: Any) -> None:
        asked = Asked(api, request, self._client.world.schedule.now_ms)

        def answered(answer: Any, error: Exception | None) -> None:
            if error is None:
                self._report(asked, answer)
            then(answer, error)

        super().ask(api, request, answered, **how)

    def _report(self, asked: Asked, answer: Any) -> None:
        client = self._client
        if client.is_alive:
            for hears in client.world.on_answered[asked.module.API.key]:
                hears(client, asked, answer)

    def _out_of_time(self, asked: Any, timeout_ms: float) -> None:
        self._client.world.timed_out(self._client, asked.api.name)
        super()._out_of_time(asked, timeout_ms)


class Client(Host, ABC):
    def __init__(self, world: World, name: str, clock: HostClock, versions: dict[str, int] | None = None) -> None:
        super().__init__(world, name, clock)
        self.versions = versions or {}
        """The newest version that it uses, by the name of the API or feature; of others the newest that there is."""
        self.is_alive = True
        self.group_id = ""
        self.tag = name.encode()
        self.loop = VirtualEventLoop(self)  # type: ignore[abstract]  # what clients do not use, asyncio refuses
        self._rng = world.rng.of(f"{name}/choices")
        self.runtime = Runtime(self.loop.time_ms, self.loop.time_ms, world.rng.of(f"{name}/jitter"), _Connection)
        self._tasks: dict[asyncio.Task[None], None] = {}

    def settings(self, **more: object) -> dict[str, object]:
        """The settings of a client: bootstrap.servers, client.id and others."""
        servers = [f"{self.world.machine.name}:{port}" for port in self.world.machine.ports]
        named = {name.replace("_", "."): value for name, value in more.items() if value is not None}
        return {"bootstrap.servers": ",".join(servers), "client.id": self.name, **named}

    def cluster(self) -> NetworkClient:
        """A network client for single requests. To be called in a turn of the loop."""
        return NetworkClient(AdminSettings.of(self.settings()), runtime=self.runtime)

    def begin(self) -> None:
        self.start(self.live())

    @abstractmethod
    async def live(self) -> None:
        """Do what the process does until it ends."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run(self._start, work)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.result()

    # --- what the network does ----------------------------------------------------------------------------------------

    def connected(self, wire: VirtualWire) -> None:
        if self.is_paused:
            self.misses(self.connected, wire)
        elif wire.is_open and wire.transport is not None:
            self.loop.run(wire.transport.connected)

    def hears(self, about: tuple[VirtualWire, bytes]) -> None:
        if self.is_paused:
            self.misses(self.hears, about)
            return
        wire, data = about
        if wire.is_open and wire.transport is not None:
            for hears in self.world.on_bytes:
                hears(self, data)
            self.loop.run(wire.transport.received, data)

    def lost(self, wire: VirtualWire) -> None:
        if self.is_paused:
            self.misses(self.lost, wire)
        elif wire.is_open and wire.transport is not None:
            self.loop.run(wire.transport.reset)

    def ends(self, *, loses_power: bool = False) -> None:
        """The process has ended. The system closes its connections, unless the host has lost its power."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.is_paused = False
        self.forget_missed()
        if loses_power:
            self.world.network.vanish(self)
        else:
            for wire in [wire for wire in self.world.network.wires if wire.client is self and wire.is_open]:
                self.world.network.hang_up(wire)
        self.loop.end()


PATIENCE_MS = (30_000, 120_000)
"""delivery.timeout.ms. A record that expires leaves a gap, and the next ones need new sequence numbers (KIP-360)."""
BURST = 10
"""The number of records that are sent at once, to many partitions: this flushes many logs together."""
AFTER_AN_ERROR_S = 0.2


class _ShippedProducer(AsyncProducer):
    """The shipped producer with the world's clock, random numbers and connections."""

    def __init__(self, process: ProducerProcess, settings: dict[str, object]) -> None:
        self._runtime = process.runtime
        super().__init__(settings)

    @property
    def accumulator(self) -> RecordAccumulator:
        return self._sender.accumulator


class ProducerProcess(Client):
    """A producer's process: the shipped `AsyncProducer`, and a user who sends numbered records at a rate.

    A record's value has the name of its producer and its number, so that invariants can check who reads it.
    """

    def __init__(self, world: World, name: str, clock: HostClock, topics: Sequence[str], every_ms: int) -> None:
        super().__init__(world, name, clock)
        self.topics = list(topics)
        self.every_ms = every_ms
        self.sent = 0
        self.is_sending = True
        patience_ms = world.rng.of(f"{name}/patience").choice(PATIENCE_MS)
        self._client = _ShippedProducer(
            self,
            self.settings(
                buffer_memory=1 << 22,
                delivery_timeout_ms=patience_ms,
                request_timeout_ms=patience_ms // 2,
                metadata_max_age_ms=60_000,
            ),
        )

    @property
    def accumulator(self) -> RecordAccumulator:
        return self._client.accumulator

    @property
    def is_done(self) -> bool:
        return not self.accumulator.unsettled

    def stop(self) -> None:
        self.is_sending = False

    async def live(self) -> None:
        while self.is_sending:
            for _ in range(self._rng.choice((1, 1, 1, BURST))):
                await self._send()
            await asyncio.sleep((1 + int(self._rng.expovariate(1 / self.every_ms))) / 1000)

    async def _send(self) -> None:
        value = b"%s %d" % (self.tag, self.sent)
        try:
            await self._client.send(
                self._rng.choice(self.topics), value, key=value, on_delivery=partial(self._delivered, value)
            )
        except KafkaError:  # no room, or the topic is not there yet
            await asyncio.sleep(AFTER_AN_ERROR_S)
        else:
            self.sent += 1

    def _delivered(self, value: bytes, where: RecordMetadata | None, _error: KafkaError | None) -> None:
        if where is not None and where.offset >= 0 and self.is_alive:
            self.world.acknowledged(TopicPartition(where.topic, where.partition), where.offset, value)


AGAIN_S = 0.5
DONE = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_CONFIG,
    }
)
_GROUP_RESOURCE = 32

_Request = tuple[ModuleType, Any, Callable[[Any], ErrorCode], str]


class AdminProcess(Client):
    """Creates and deletes topics and groups, and sets configs: one request after the other, each until it has a final
    answer.
    """

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.requests: deque[_Request] = deque()
        self.topics: dict[str, int] = {}
        """The wanted number of partitions of each topic."""
        self.topic_changes = 0
        """The number of times that a topic was created, deleted or got partitions."""
        self.session_ms: dict[str, list[int]] = {}
        """The session timeouts that a consumer group was given, by group."""
        self.deleted: set[str] = set()
        """The groups that it has sent DeleteGroups for."""
        self._cluster: NetworkClient | None = None

    def create_topic(self, name: str, partitions: int) -> None:
        self.topics[name] = partitions
        self.topic_changes += 1
        new = create_topics.NewTopic(name=name, num_partitions=partitions, replication_factor=1)
        request = create_topics.Request(topics=[new])
        self._enqueue(
            create_topics, request, lambda answer: answer.topics[0].error, f"creates {name} with {partitions}"
        )

    def grow_topic(self, name: str, partitions: int) -> None:
        if partitions > self.topics.get(name, partitions):
            self.topics[name] = partitions
            self.topic_changes += 1
            request = create_partitions.Request(topics=[create_partitions.Topic(name=name, count=partitions)])
            self._enqueue(
                create_partitions, request, lambda answer: answer.results[0].error, f"grows {name} to {partitions}"
            )

    def delete_topic(self, name: str) -> None:
        if self.topics.pop(name, None) is not None:
            self.topic_changes += 1
            request = delete_topics.Request(topics=[delete_topics.Topic(name=name)])
            self._enqueue(delete_topics, request, lambda answer: answer.responses[0].error, f"deletes {name}")

    def set_group_config(self, group_id: str, name: str, value: int) -> None:
        if name == "consumer.session.timeout.ms":
            self.session_ms.setdefault(group_id, []).append(value)
        config = incremental_alter_configs.Config(
            name=name, operation=incremental_alter_configs.AlterConfigOp.SET, value=str(value)
        )
        resource = incremental_alter_configs.Resource(
            resource_type=_GROUP_RESOURCE, resource_name=group_id, configs=[config]
        )
        request = incremental_alter_configs.Request(resources=[resource])
        says = f"sets {name}={value} of {group_id}"
        self._enqueue(incremental_alter_configs, request, lambda answer: answer.responses[0].error, says)

    def delete_group(self, group_id: str) -> None:
        self.deleted.add(group_id)
        self._enqueue(
            delete_groups, [DeleteGroup(None, group_id)], lambda answer: answer[0][1], f"deletes group {group_id}"
        )

    @property
    def is_deleting(self) -> str | None:
        """The group of a DeleteGroups that is not answered yet."""
        if self.requests and self.requests[0][0] is delete_groups:
            group_id: str = self.requests[0][1][0].group_id
            return group_id
        return None

    @property
    def is_done(self) -> bool:
        return not self.requests

    def _enqueue(self, module: ModuleType, request: Any, error_of: Callable[[Any], ErrorCode], says: str) -> None:
        self.requests.append((module, request, error_of, says))
        if len(self.requests) == 1:
            self.begin()

    async def live(self) -> None:
        self._cluster = self._cluster or self.cluster()
        while self.requests:
            module, request, error_of, says = self.requests[0]
            self.world.happened(self.name, says)
            try:
                group_id = self.is_deleting
                # a lookup of the coordinator also creates the topic in which groups are kept
                node_id = (await self._cluster.find_coordinator(group_id)).id if group_id is not None else None
                code = error_of(await self._cluster.send(node_id, module, request))
            except KafkaError as error:
                code = error.code or ErrorCode.UNKNOWN_SERVER_ERROR
            if code in DONE:
                self.requests.popleft()
            else:
                await asyncio.sleep(AGAIN_S)


class Committer(Client):
    """A simple consumer: it commits offsets for its own group without being a member, and fetches them again."""

    def __init__(
        self, world: World, name: str, clock: HostClock, group_id: str, topic: str, partitions: int, every_ms: int
    ) -> None:
        super().__init__(world, name, clock)
        self.group_id = group_id
        self._topic = topic
        self._partitions = partitions
        self._every_ms = every_ms
        self._next = 0
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """The offset of each partition, and when its commit was sent."""

    async def live(self) -> None:
        cluster = self.cluster()
        coordinator: int | None = None
        while True:
            try:
                if coordinator is None:
                    coordinator = (await cluster.find_coordinator(self.group_id)).id
                elif self._rng.random() < 0.3:
                    await self._look(cluster, coordinator)
                else:
                    await self._commit(cluster, coordinator)
            except KafkaError:
                coordinator = None
            await asyncio.sleep((1 + int(self._rng.expovariate(1 / self._every_ms))) / 1000)

    async def _commit(self, cluster: NetworkClient, coordinator: int) -> None:
        self._next += 1
        wanted = self._rng.sample(range(self._partitions), self._rng.randint(1, self._partitions))
        entries = [CommitPartition(self._topic, partition, self._next) for partition in sorted(wanted)]
        request = OffsetCommit(None, self.group_id, "", None, -1, entries)
        self.world.commit_sent(self, request)
        sent_ms = self.world.schedule.now_ms
        reply: OffsetsCommitted = await cluster.send(
            coordinator, offset_commit, request, at_most=offset_commit.API.last_by_name
        )
        for one, error in zip(entries, reply.errors, strict=True):
            if error is ErrorCode.NONE:
                self.acknowledged[one.partition] = (one.offset, sent_ms)
        if ErrorCode.NOT_COORDINATOR in reply.errors:
            raise KafkaError.of(ErrorCode.NOT_COORDINATOR, "committing")

    async def _look(self, cluster: NetworkClient, coordinator: int) -> None:
        (reply,) = await cluster.send(
            coordinator,
            offset_fetch,
            [OffsetFetch(None, self.group_id, None)],
            at_most=offset_fetch.API.last_by_name,
        )
        if reply.error:
            raise KafkaError.of(reply.error, "asking for what it committed")
        if self.group_id in self.world.admin.deleted:
            self.acknowledged.clear()  # then `CommitsAreKept` alone knows what must still be there
        found = {one.partition: one.offset for one in reply.partitions}
        kept_since_ms = self.world.schedule.now_ms - self.world.machine.kept_ms
        for partition, (offset, sent_ms) in self.acknowledged.items():
            if found.get(partition, -1) < offset and sent_ms > kept_since_ms:
                self.world.fails(
                    "commits are kept",
                    f"{self.name} asked for what it committed: {partition} is {found.get(partition)}, not {offset}",
                )


WITHOUT_PROTOCOL = 4


class Zombie(Client):
    """A process that was away while its group went on, such as a machine brought back from a snapshot.

    It speaks for a generation that is over: nothing that it asks for may be granted. In a consumer group its commits
    may be, for partitions that it got in its epoch or before (K19). So the copy of a process with transactions does not
    commit there: such a process commits by its transactions alone, and a granted commit would undo them.
    """

    def __init__(self, world: World, name: str, clock: HostClock, of: ConsumerProcess) -> None:
        """Copy the member id and the generation of `of`."""
        super().__init__(world, name, clock)
        self.group_id = of.group_id
        self._who = (of.member.member_id, of.habits.instance_id, of.member.generation_id)
        self._is_consumer_protocol = of.habits.is_consumer_protocol
        may_undo = self._is_consumer_protocol and of.habits.transactional_id is not None
        self._commits = [] if may_undo else sorted(of.member.assigned)

    def awakes(self, _about: object = None) -> None:
        if self._is_current():
            self.world.when_joined(self.group_id, self.awakes)
            return
        self.begin()

    def _is_current(self) -> bool:
        member_id, _, generation_id = self._who
        if self._is_consumer_protocol:
            consumer_group = self.world.consumer_group(self.group_id)
            member = consumer_group.members.get(member_id) if consumer_group is not None else None
            return member is not None and member.epoch == generation_id
        # A power cut took its generation, and the group has counted to it again: nobody could tell them apart.
        group = self.world.group(self.group_id)
        return group is not None and group.generation_id <= generation_id

    async def live(self) -> None:
        with suppress(KafkaError):  # whether it was granted is seen by those who watch
            await self._speak()
        self.world.forget(self)

    async def _speak(self) -> None:
        cluster = self.cluster()
        node_id = (await cluster.find_coordinator(self.group_id)).id
        entries = [CommitPartition(one.topic, one.partition, 0) for one in self._commits]
        if entries:
            commit = OffsetCommit(None, self.group_id, *self._who, entries)
            self.world.commit_sent(self, commit)
            await cluster.send(node_id, offset_commit, commit, at_most=offset_commit.API.last_by_name)
        if self._is_consumer_protocol:
            member_id, instance_id, epoch = self._who
            beat = consumer_group_heartbeat.Request(
                group_id=self.group_id, member_id=member_id, member_epoch=epoch, instance_id=instance_id
            )
            await cluster.send(node_id, consumer_group_heartbeat, beat)
            return
        await cluster.send(node_id, heartbeat, Heartbeat(None, self.group_id, *self._who))
        sync = SyncGroup(None, self.group_id, *self._who)
        await cluster.send(node_id, sync_group, sync, at_most=WITHOUT_PROTOCOL)
