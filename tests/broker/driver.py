"""Drives a node without sockets: a clock one moves, a disk in memory, clients whose requests and answers are bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any
from uuid import UUID

from coterie.apis import (
    create_topics,
    delete_topics,
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    list_offsets,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
)
from coterie.broker.calls import Close, Connection, Do, Effect, Flush, Send
from coterie.broker.facts import ConnectionDropped, Trouble
from coterie.broker.node import Node
from coterie.broker.settings import Settings
from coterie.errors import ErrorCode
from coterie.facts import Fact
from coterie.log import Files, MemoryFiles
from coterie.messages import (
    CommitPartition,
    Heartbeat,
    JoinedGroup,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    Protocol,
    SyncedGroup,
    SyncGroup,
)
from coterie.wire.frames import read_response_header, request_frame
from logs import batch, values_in

__all__ = ["Client", "World"]

QUICK: Mapping[str, Any] = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3}


class World:
    """One node and its clients. `flushes` holds what the disk has been asked for; `auto` lets it do so at once."""

    def __init__(
        self,
        files: Files | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        sync: bool = True,
        auto: bool = True,
        now_ms: int = 1_000_000,
    ) -> None:
        self.files = MemoryFiles() if files is None else files
        self.auto = auto
        self.now_ms = now_ms
        self.facts: list[Fact] = []
        self.flushes: deque[Flush] = deque()
        self.chores: list[Do] = []
        self._ids = now_ms << 64
        self._clients: dict[Connection, Client] = {}
        self.node = Node(
            self.files, Settings.of({**QUICK, **(settings or {})}), now_ms, fresh_id=self._fresh_id, sync=sync
        )
        self.node.endpoint = ("broker.test", 9092)
        self.perform(self.node.start(now_ms))

    def _fresh_id(self) -> UUID:
        self._ids += 1
        return UUID(int=self._ids)

    def client(self) -> Client:
        client = Client(self)
        self._clients[client.connection] = client
        return client

    def perform(self, effects: Sequence[Effect]) -> None:
        """All of it, and what follows at once: requests that waited, timers that are due, the disk if it is quick."""
        self._carry_out(effects)
        while True:
            due_ms = self.node.next_ms()
            if self.node.ready:
                self._carry_out(self.node.go_on(self.now_ms))
            elif due_ms is not None and due_ms <= self.now_ms:
                self._carry_out(self.node.ring(self.now_ms))
            elif self.auto and self.flushes:
                self._carry_out(self.node.flush_ended(self.flushes.popleft().run(), self.now_ms))
            else:
                return

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if not effect.connection.is_closed:
                    data = effect.data if isinstance(effect.data, bytes) else b"".join(effect.data)
                    self._clients[effect.connection].received(data)
            elif isinstance(effect, Close):
                self._clients[effect.connection].closed = effect.why
                self.facts.append(ConnectionDropped(self.now_ms, "", effect.connection.host, effect.why))
                self.node.disconnected(effect.connection)
            elif isinstance(effect, Flush):
                self.flushes.append(effect)
            elif isinstance(effect, Do):
                self.chores.append(effect)
            else:
                self.facts.append(effect.fact)

    def flush(self) -> None:
        """The disk does what it was asked for first."""
        self.perform(self.node.flush_ended(self.flushes.popleft().run(), self.now_ms))

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.perform(self.node.ring(self.now_ms))

    def do_chores(self) -> None:
        chores, self.chores = self.chores, []
        for chore in chores:
            chore.work()

    def stop(self) -> None:
        self.perform(self.node.stop(self.now_ms))
        while self.flushes:
            self.flush()
        self.node.directory.close()

    @property
    def troubles(self) -> list[str]:
        return [fact.what for fact in self.facts if isinstance(fact, Trouble)]

    @property
    def drops(self) -> list[str]:
        return [fact.why for fact in self.facts if isinstance(fact, ConnectionDropped)]


class Client:
    """One connection. `ask` wants its answer now; `send` leaves it for `answer`, or for never."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connection = Connection("10.0.0.1")
        self.closed: str | None = None
        self._inbox: deque[bytes] = deque()
        self._asked: deque[tuple[int, ModuleType, int]] = deque()
        self._last = 0

    def send_frame(self, frame: bytes) -> None:
        """A frame without its size, whatever it says."""
        self.world.perform(self.world.node.received(self.connection, frame, self.world.now_ms))

    def frame_of(self, api: ModuleType, request: Any, version: int | None = None) -> bytes:
        row = api.API
        at = row.versions[-1] if version is None else version
        self._last += 1
        self._asked.append((self._last, api, at))
        body = api.write_request(request, at)
        return request_frame(row.key, at, self._last, "tester", body, flexible=at >= row.flexible)[4:]

    def send(self, api: ModuleType, request: Any, version: int | None = None) -> None:
        self.send_frame(self.frame_of(api, request, version))

    def received(self, data: bytes) -> None:
        assert int.from_bytes(data[:4], "big") == len(data) - 4, "a frame says how long it is"
        self._inbox.append(data[4:])

    @property
    def answers(self) -> int:
        """How many have come and were not looked at."""
        return len(self._inbox)

    def answer(self) -> Any:
        """The next one, which must be that of the oldest request (C6)."""
        correlation_id, api, version = self._asked.popleft()
        assert self._inbox, f"{api.API.name} is not answered"
        frame = self._inbox.popleft()
        found, at = read_response_header(frame, flexible=api.API.has_flexible_response_header(version))
        assert found == correlation_id
        return api.read_response(frame, at, version)

    def raw_answer(self) -> bytes:
        self._asked.popleft()
        return self._inbox.popleft()

    def forget(self) -> None:
        """A request that has no answer."""
        self._asked.popleft()

    def ask(self, api: ModuleType, request: Any, version: int | None = None) -> Any:
        self.send(api, request, version)
        return self.answer()

    # --- in one line --------------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1) -> UUID:
        asked = create_topics.NewTopic(name=name, num_partitions=partitions, replication_factor=1)
        (made,) = self.ask(create_topics, create_topics.Request(topics=[asked])).topics
        assert not made.error, made.message
        topic_id: UUID = made.topic_id
        return topic_id

    def delete(self, name: str) -> ErrorCode:
        asked = delete_topics.Request(topics=[delete_topics.Topic(name=name)])
        error: ErrorCode = self.ask(delete_topics, asked).responses[0].error
        return error

    def find_coordinator(self, group: str = "g") -> find_coordinator.Coordinator:
        found: find_coordinator.Coordinator = self.ask(
            find_coordinator, find_coordinator.Request(keys=[group])
        ).coordinators[0]
        return found

    def send_produce(self, topic: str, *values: bytes, partition: int = 0, **options: Any) -> None:
        self.send(produce, produce_request(topic, *values, partition=partition, **options), 9)

    def produce(self, topic: str, *values: bytes, partition: int = 0, **options: Any) -> produce.ProducedPartition:
        self.send_produce(topic, *values, partition=partition, **options)
        return self.produced()

    def produced(self) -> produce.ProducedPartition:
        answer: produce.ProducedPartition = self.answer().responses[0].partitions[0]
        return answer

    def send_fetch(self, topic: str, offset: int, *, partition: int = 0, **options: Any) -> None:
        self.send(fetch, fetch_request({topic: {partition: offset}}, **options), 12)

    def fetch(self, topic: str, offset: int, *, partition: int = 0, **options: Any) -> fetch.FetchedPartition:
        self.send_fetch(topic, offset, partition=partition, **options)
        return self.fetched()

    def fetched(self) -> fetch.FetchedPartition:
        answer: fetch.FetchedPartition = self.answer().responses[0].partitions[0]
        return answer

    def read_all(self, topic: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
        """Every record there is to see, with its offset."""
        (found,) = self.ask(list_offsets, list_request(topic, -2, partition)).topics[0].partitions
        at, records = found.offset, []
        while True:
            answer = self.fetch(topic, at, partition=partition, max_wait_ms=0)
            assert not answer.error
            got = [item for item in values_in(answer.records or b"") if item[0] >= at]
            if not got:
                return records
            records += got
            at = got[-1][0] + 1

    def send_commit(self, group: str, offsets: Mapping[tuple[str, int], int], **options: Any) -> None:
        self.send(offset_commit, commit_request(group, offsets, **options), options.pop("version", 8))

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int], **options: Any) -> list[ErrorCode]:
        self.send_commit(group, offsets, **options)
        return self.committed()

    def committed(self) -> list[ErrorCode]:
        return list(self.answer().errors)

    def offsets_of(self, group: str) -> dict[tuple[str, int], int]:
        (found,) = self.ask(offset_fetch, [OffsetFetch(None, group, None)], 8)
        assert not found.error
        return {(one.topic, one.partition): one.offset for one in found.partitions}

    def send_join(self, group: str, member_id: str = "", **options: Any) -> None:
        self.send(join_group, join_request(group, member_id, **options), options.pop("version", 9))

    def join(self, group: str, member_id: str = "", **options: Any) -> JoinedGroup:
        self.send_join(group, member_id, **options)
        answer: JoinedGroup = self.answer()
        return answer

    def enter(self, group: str, assignment: bytes = b"all", **options: Any) -> JoinedGroup:
        """Join an empty group as its only member, and sync."""
        joined = self.join(group, **options)
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            joined = self.join(group, joined.member_id, **options)
        assert not joined.error
        assert not self.sync(group, joined, {joined.member_id: assignment}).error
        return joined

    def send_sync(self, group: str, joined: JoinedGroup, assignments: Mapping[str, bytes] | None = None) -> None:
        request = SyncGroup(
            None,
            group,
            joined.member_id,
            None,
            joined.generation_id,
            list((assignments or {}).items()),
            "consumer",
            joined.protocol_name,
        )
        self.send(sync_group, request)

    def sync(self, group: str, joined: JoinedGroup, assignments: Mapping[str, bytes] | None = None) -> SyncedGroup:
        self.send_sync(group, joined, assignments)
        answer: SyncedGroup = self.answer()
        return answer

    def heartbeat(self, group: str, member_id: str, generation_id: int) -> ErrorCode:
        answer: ErrorCode = self.ask(heartbeat, Heartbeat(None, group, member_id, None, generation_id))
        return answer


# --- requests ---------------------------------------------------------------------------------------------------------


def produce_request(
    topic: str,
    *values: bytes,
    partition: int = 0,
    acks: int = -1,
    topic_id: UUID | None = None,
    records: bytes | bytearray | None = None,
    producer: tuple[int, int, int] | None = None,
    timestamps: Sequence[int] | None = None,
    transactional_id: str | None = None,
) -> produce.Request:
    content = batch(*values, producer=producer, timestamps=timestamps) if records is None else records
    part = produce.Partition(partition=partition, records=bytes(content))
    return produce.Request(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=30_000,
        topics=[produce.Topic(name=topic, topic_id=topic_id, partitions=[part])],
    )


def fetch_request(
    offsets: Mapping[str, Mapping[int, int]],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
    epoch: int = -1,
    ids: Mapping[str, UUID] | None = None,
) -> fetch.Request:
    return fetch.Request(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            fetch.Topic(
                topic=topic,
                topic_id=(ids or {}).get(topic),
                partitions=[
                    fetch.Partition(
                        partition=partition,
                        fetch_offset=offset,
                        max_bytes=partition_max_bytes,
                        current_leader_epoch=epoch,
                    )
                    for partition, offset in partitions.items()
                ],
            )
            for topic, partitions in offsets.items()
        ],
    )


def list_request(topic: str, timestamp: int, partition: int = 0, epoch: int = -1) -> list_offsets.Request:
    asked = list_offsets.Partition(partition=partition, timestamp=timestamp, current_leader_epoch=epoch)
    return list_offsets.Request(topics=[list_offsets.Topic(name=topic, partitions=[asked])])


def commit_request(
    group: str,
    offsets: Mapping[tuple[str, int], int],
    *,
    member: JoinedGroup | None = None,
    ids: Mapping[str, UUID] | None = None,
    version: int = 8,
) -> OffsetCommit:
    return OffsetCommit(
        None,
        group,
        member.member_id if member else "",
        None,
        member.generation_id if member else -1,
        [
            CommitPartition(topic, partition, offset, topic_id=(ids or {}).get(topic))
            for (topic, partition), offset in offsets.items()
        ],
    )


def join_request(
    group: str,
    member_id: str = "",
    *,
    instance_id: str | None = None,
    protocols: Mapping[str, bytes] | None = None,
    session_timeout_ms: int = 30_000,
    rebalance_timeout_ms: int = 60_000,
    version: int = 9,
) -> JoinGroup:
    offered = {"range": b"\0\1\0\0\0\0\xff\xff\xff\xff"} if protocols is None else protocols
    return JoinGroup(
        token=None,
        group_id=group,
        member_id=member_id,
        instance_id=instance_id,
        protocol_type="consumer",
        protocols=[Protocol(name, metadata) for name, metadata in offered.items()],
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        fresh_id="",
    )
