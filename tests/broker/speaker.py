"""What a client says, in one line each; how the bytes travel is left to whoever derives from `Speaker`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, cast
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.apis import (
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
from coterie.protocol.apis.fetch import FetchedPartition
from coterie.protocol.apis.produce import ProducedPartition
from coterie.protocol.batch import batches
from coterie.protocol.frames import read_response_header, request_frame
from coterie.protocol.messages import (
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
from logs import batch, values_in

__all__ = [
    "Speaker",
    "commit_request",
    "fetch_request",
    "join_request",
    "list_request",
    "produce_request",
]


class Speaker(ABC):
    """One connection. `ask` wants its answer now; `send` leaves it for `answer`, or for never."""

    def __init__(self) -> None:
        self._asked: deque[tuple[int, ModuleType, int]] = deque()
        self._last = 0

    @abstractmethod
    def send_frame(self, frame: bytes) -> None:
        """A frame without its size, whatever it says."""

    @abstractmethod
    def next_frame(self) -> bytes:
        """The next frame that comes, without its size."""

    def frame_of(self, api: ModuleType, request: Any, version: int | None = None) -> bytes:
        row = api.API
        at = row.versions[-1] if version is None else version
        self._last += 1
        self._asked.append((self._last, api, at))
        body = api.write_request(request, at)
        return request_frame(row.key, at, self._last, "tester", body, flexible=at >= row.flexible)[4:]

    def send(self, api: ModuleType, request: Any, version: int | None = None) -> None:
        self.send_frame(self.frame_of(api, request, version))

    def answer(self) -> Any:
        """The next one, which must be that of the oldest request (C6)."""
        correlation_id, api, version = self._asked[0]
        frame = self.next_frame()
        self._asked.popleft()
        found, at = read_response_header(frame, flexible=api.API.has_flexible_response_header(version))
        assert found == correlation_id
        return api.read_response(frame, at, version)

    def forget(self) -> None:
        """The last request has no answer."""
        self._asked.pop()

    def ask(self, api: ModuleType, request: Any, version: int | None = None) -> Any:
        self.send(api, request, version)
        return self.answer()

    # --- in one line --------------------------------------------------------------------------------------------------

    def send_create(self, name: str, partitions: int = 1) -> None:
        asked = create_topics.NewTopic(name=name, num_partitions=partitions, replication_factor=1)
        self.send(create_topics, create_topics.Request(topics=[asked]))

    def created(self) -> create_topics.CreatedTopic:
        (made,) = self.answer().topics
        return cast("create_topics.CreatedTopic", made)

    def create(self, name: str, partitions: int = 1) -> UUID:
        self.send_create(name, partitions)
        made = self.created()
        assert not made.error and made.topic_id is not None, made.message
        return made.topic_id

    def send_delete(self, name: str) -> None:
        self.send(delete_topics, delete_topics.Request(topics=[delete_topics.Topic(name=name)]))

    def deleted(self) -> ErrorCode:
        error: ErrorCode = self.answer().responses[0].error
        return error

    def delete(self, name: str) -> ErrorCode:
        self.send_delete(name)
        return self.deleted()

    def send_find_coordinator(self, group: str = "g") -> None:
        request = find_coordinator.Request(key_type=find_coordinator.GROUP, keys=[group])
        self.send(find_coordinator, request)

    def found_coordinator(self) -> find_coordinator.Coordinator:
        (found,) = self.answer().coordinators
        return cast("find_coordinator.Coordinator", found)

    def find_coordinator(self, group: str = "g") -> find_coordinator.Coordinator:
        self.send_find_coordinator(group)
        return self.found_coordinator()

    def send_produce(self, topic: str, *values: bytes, partition: int = 0, **options: Any) -> None:
        self.send(produce, produce_request(topic, *values, partition=partition, **options), 9)

    def produce(self, topic: str, *values: bytes, partition: int = 0, **options: Any) -> ProducedPartition:
        self.send_produce(topic, *values, partition=partition, **options)
        return self.produced()

    def produced(self) -> ProducedPartition:
        answer: ProducedPartition = self.answer().responses[0].partitions[0]
        return answer

    def send_fetch(self, topic: str, offset: int, *, partition: int = 0, **options: Any) -> None:
        self.send(fetch, fetch_request({topic: {partition: offset}}, **options), 12)

    def fetch(self, topic: str, offset: int, *, partition: int = 0, **options: Any) -> FetchedPartition:
        self.send_fetch(topic, offset, partition=partition, **options)
        return self.fetched()

    def fetched(self) -> FetchedPartition:
        answer: FetchedPartition = self.answer().responses[0].partitions[0]
        return answer

    def read_all(self, topic: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
        """Every record there is to see, with its offset."""
        (found,) = self.ask(list_offsets, list_request(topic, -2, partition)).topics[0].partitions
        at: int = found.offset
        records: list[tuple[int, bytes | None]] = []
        while True:
            answer = self.fetch(topic, at, partition=partition, max_wait_ms=0)
            assert not answer.error
            data = answer.records or b""
            if not data:
                return records
            records += [item for item in values_in(data) if item[0] >= at]
            at = [header.next_offset for _, header in batches(data)][-1]  # its records may all be compacted away

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
    timeout_ms: int = 30_000,
) -> produce.Request:
    content = batch(*values, producer=producer, timestamps=timestamps) if records is None else records
    part = produce.Partition(partition=partition, records=bytes(content))
    return produce.Request(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
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
