"""The effects of a fetcher, which are requests, and its reaction to each error of a partition. No I/O.

The answer to every effect comes back to `fetcher.Fetcher` in one call, which its docstring names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from coterie.client.consumer.subscription_state import PartitionLeader, TopicPartitionState
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import STALE_METADATA, ErrorCode, KafkaError
from coterie.protocol.api import READ_COMMITTED, READ_UNCOMMITTED
from coterie.protocol.apis import fetch, list_offsets
from coterie.protocol.apis import offset_for_leader_epoch as epoch_api
from coterie.settings.consumer_settings import ConsumerSettings
from coterie.structs import DataStruct


class FetchErrorAction(Enum):
    """The reaction to the error of one partition in a Fetch or ListOffsets response."""

    REFRESH = "ask who leads the partition, and try again"
    RETRY = "try again a little later"
    RESET = "the position is not in the log: reset it as auto.offset.reset says, or raise"
    RAISE_AND_RETRY = "raise to the caller of poll, and try again later: rights may be granted, a log be repaired"
    RAISE = "raise to the caller of poll, at every poll until it seeks elsewhere"


ON_ERROR: dict[ErrorCode, FetchErrorAction] = {
    **dict.fromkeys(STALE_METADATA, FetchErrorAction.REFRESH),
    ErrorCode.OFFSET_NOT_AVAILABLE: FetchErrorAction.REFRESH,  # a new leader that does not know it yet (KIP-207)
    ErrorCode.BROKER_NOT_AVAILABLE: FetchErrorAction.REFRESH,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: FetchErrorAction.RETRY,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: FetchErrorAction.RETRY,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: FetchErrorAction.REFRESH,
    ErrorCode.REQUEST_TIMED_OUT: FetchErrorAction.RETRY,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: FetchErrorAction.RETRY,
    ErrorCode.UNKNOWN_SERVER_ERROR: FetchErrorAction.RETRY,
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: FetchErrorAction.RETRY,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: FetchErrorAction.RETRY,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: FetchErrorAction.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: FetchErrorAction.RETRY,
    ErrorCode.NOT_COORDINATOR: FetchErrorAction.RETRY,
    ErrorCode.OFFSET_OUT_OF_RANGE: FetchErrorAction.RESET,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: FetchErrorAction.RAISE_AND_RETRY,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: FetchErrorAction.RAISE_AND_RETRY,
    ErrorCode.CORRUPT_MESSAGE: FetchErrorAction.RAISE_AND_RETRY,
}
"""Any other code is raised: an unexpected error must not be retried for ever."""


class OffsetOutOfRangeError(KafkaError):
    """The position is not in the log, and auto.offset.reset is none."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class LogTruncationError(OffsetOutOfRangeError):
    """Records before the position are not in the log any more, and auto.offset.reset is none (KIP-320).

    `positions` are the positions by partition; `divergent_offsets` are, where they are known, the offsets (and their
    leader epochs) up to which the log still has what was read: seek there to go on.
    """

    def __init__(
        self,
        message: str,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
        divergent_offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        super().__init__(message)
        self.positions = positions
        self.divergent_offsets = divergent_offsets


class NoOffsetForPartitionError(KafkaError):
    """The group has committed nothing for a partition, and auto.offset.reset is none."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptRecordError(KafkaError):
    """Records that cannot be read. `partition` and `offset` say where; seek behind them to go on without them."""

    code = ErrorCode.CORRUPT_MESSAGE
    retriable = False

    def __init__(self, message: str, partition: TopicPartition, offset: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


def corrupt(partition: TopicPartition, offset: int, why: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"the records of {partition} from offset {offset} on cannot be read: {why}. Nothing behind them is read "
        f"either, until you seek: consumer.seek(({partition.topic!r}, {partition.partition}), {offset + 1}) goes on "
        "without the first of them",
        partition,
        offset,
    )


WITHOUT_SESSION = -1

LeaderOf = Callable[[str, int], PartitionLeader | None]


class Found(NamedTuple):
    """An answer of ListOffsets: the offset, -1 if there is none, or what went wrong."""

    offset: int = -1
    leader_epoch: int = -1
    error: KafkaError | None = None
    timestamp: int = -1


# --- what is to be asked ----------------------------------------------------------------------------------------------


class Fetch(DataStruct, eq=False):
    """Comes back as `fetched` or `fetch_failed`."""

    node_id: int
    request: fetch.Request
    states: Mapping[tuple[str, int], tuple[TopicPartitionState, int, PartitionLeader]]
    """The state of each partition, the offset that was asked for, and the leader at that time."""
    names: Mapping[UUID, str]


class AskCommitted(DataStruct, eq=False):
    """Comes back as `committed`."""

    states: Sequence[TopicPartitionState]


class AskOffsets(DataStruct, eq=False):
    """ListOffsets with these timestamps; comes back as `offsets_found`."""

    states: Mapping[TopicPartitionState, int]


class AskEpochEnds(DataStruct, eq=False):
    """OffsetForLeaderEpoch (KIP-320); comes back as `epoch_ends_found` or `epoch_ends_failed`."""

    node_id: int
    request: epoch_api.Request
    states: Sequence[TopicPartitionState]


class LogTruncated(DataStruct, eq=False):
    """An effect: log that the log no longer has the records before `position`."""

    partition: TopicPartition
    position: OffsetAndMetadata
    why: str
    goes_on: str

    def __str__(self) -> str:
        at = f"{self.position.offset} (leader epoch {self.position.leader_epoch})"
        return f"{self.partition}: {self.why}; the position was {at}, {self.goes_on}"


class RefreshLeaders(DataStruct, eq=False):
    """Comes back as `refreshed`."""

    topics: Sequence[str]


FetchEffect = Fetch | AskCommitted | AskOffsets | AskEpochEnds | RefreshLeaders | LogTruncated


def fetch_from(
    node_id: int, readers: Iterable[tuple[TopicPartitionState, PartitionLeader]], settings: ConsumerSettings
) -> Fetch:
    """Build one fetch for all partitions of a node."""
    topics: dict[str, fetch.Topic] = {}
    states: dict[tuple[str, int], tuple[TopicPartitionState, int, PartitionLeader]] = {}
    names: dict[UUID, str] = {}
    for state, leader in readers:
        name, partition = state.partition
        if name not in topics:
            topics[name] = fetch.Topic(topic=name, topic_id=leader.topic_id, partitions=[])
            if leader.topic_id is not None:
                names[leader.topic_id] = name
        offset = state.next_fetch
        wanted = fetch.Partition(
            partition=partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=offset,
            max_bytes=settings.max_partition_fetch_bytes,
        )
        asked = topics[name].partitions
        assert isinstance(asked, list)
        asked.append(wanted)
        states[name, partition] = state, offset, leader
    request = fetch.Request(
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        isolation_level=READ_COMMITTED if settings.reads_committed else READ_UNCOMMITTED,
        session_epoch=WITHOUT_SESSION,
        topics=list(topics.values()),
        rack_id=settings.client_rack,
    )
    return Fetch(node_id, request, states, names)


def epoch_ends_from(node_id: int, readers: Iterable[tuple[TopicPartitionState, PartitionLeader]]) -> AskEpochEnds:
    """Build one request for all positions to validate at a node."""
    topics: dict[str, list[epoch_api.Partition]] = {}
    states: list[TopicPartitionState] = []
    for state, leader in readers:
        asked = epoch_api.Partition(
            partition=state.partition.partition, current_leader_epoch=leader.epoch, leader_epoch=state.epoch
        )
        topics.setdefault(state.partition.topic, []).append(asked)
        states.append(state)
    named = [epoch_api.Topic(topic=name, partitions=partitions) for name, partitions in topics.items()]
    return AskEpochEnds(node_id, epoch_api.Request(topics=named), states)


# --- ListOffsets for many partitions ----------------------------------------------------------------------------------


def list_offsets_requests(
    wanted: Mapping[TopicPartition, int], leader_of: LeaderOf, *, read_committed: bool, timeout_ms: int
) -> tuple[dict[int, list_offsets.Request], list[TopicPartition]]:
    """Return a request for each leader, and the partitions whose leader is not known."""
    by_node: dict[int, dict[str, list[list_offsets.Partition]]] = {}
    unknown: list[TopicPartition] = []
    for one, timestamp in wanted.items():
        leader = leader_of(*one)
        if leader is None:
            unknown.append(one)
            continue
        asked = list_offsets.Partition(partition=one.partition, current_leader_epoch=leader.epoch, timestamp=timestamp)
        by_node.setdefault(leader.node_id, {}).setdefault(one.topic, []).append(asked)
    return {
        node_id: list_offsets.Request(
            isolation_level=READ_COMMITTED if read_committed else READ_UNCOMMITTED,
            topics=[list_offsets.Topic(name=name, partitions=partitions) for name, partitions in topics.items()],
            timeout_ms=timeout_ms,
        )
        for node_id, topics in by_node.items()
    }, unknown


def list_offsets_answers(response: list_offsets.Response) -> Iterator[tuple[TopicPartition, Found]]:
    for topic in response.topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition)
            error = KafkaError.of(one.error, f"looking for an offset of {partition}") if one.error else None
            yield partition, Found(one.offset, one.leader_epoch, error, one.timestamp)
