"""Brokers as the fetcher (`client/consumer/fetcher.py`) sees them: logs, leaders, answers in any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import UUID

from coterie.client.consumer.fetch_requests import (
    AskCommitted,
    AskEpochEnds,
    AskOffsets,
    Fetch,
    FetchEffect,
    Found,
    LogTruncated,
    RefreshLeaders,
)
from coterie.client.consumer.fetcher import Fetcher
from coterie.client.consumer.subscription_state import EARLIEST, LATEST, PartitionLeader, Reset
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import ConnectionLostError, ErrorCode
from coterie.protocol.apis import offset_for_leader_epoch as epoch_api
from coterie.protocol.apis.fetch import FetchedPartition, FetchedTopic, Request, Response
from coterie.protocol.batch import assign
from coterie.protocol.records import BatchRecord, Record, build_batch
from coterie.settings.consumer_settings import ConsumerSettings

__all__ = [
    "ALONE",
    "EPOCH",
    "FROM_START",
    "TOPIC_ID",
    "World",
    "batch_at",
    "fetch_settings",
    "offsets",
    "partition",
    "reading",
]

TOPIC_ID = UUID(int=7)
EPOCH = 3
"""The leader epoch of every log at first."""


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def batch_at(offset: int, count: int = 1, epoch: int = EPOCH) -> bytes:
    """Records whose values say where they are."""
    batch = build_batch([BatchRecord(None, b"%d" % (offset + index), 1000) for index in range(count)])
    assign(batch, 0, offset, epoch)
    return bytes(batch)


def offsets(records: list[Record]) -> list[tuple[int, int]]:
    assert all(int(one.value or b"") == one.offset for one in records)
    return [(one.partition, one.offset) for one in records]


def fetch_settings(reset: Reset, *, has_group: bool = True, **more: int) -> ConsumerSettings:
    given: dict[str, object] = {"auto.offset.reset": reset.name, **more}
    return ConsumerSettings.of({**given, "group.id": "g"} if has_group else given)


@dataclass
class World:
    """Partitions of topic `t`, each with records from `starts` to `ends`, `size` in a batch, led by `leaders`."""

    settings: ConsumerSettings = field(default_factory=lambda: fetch_settings(LATEST))
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    size: int = 3
    now_ms: int = 1_000
    epochs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Of each log, its leader epochs and where they begin; the last one is the leader's."""
    topic_id: UUID = TOPIC_ID
    known: dict[int, PartitionLeader] = field(default_factory=dict)
    """What the reader's metadata says of the leaders."""
    told: list[LogTruncated] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = Fetcher(self.settings)
        self.under_way: list[FetchEffect] = []
        self.error: Callable[[int, int], ErrorCode] = lambda _partition, _offset: ErrorCode.NONE

    def partition(self, number: int, end: int = 0, *, start: int = 0, leader: int = 1) -> TopicPartition:
        self.starts[number], self.ends[number], self.leaders[number] = start, end, leader
        self.epochs[number] = [(EPOCH, 0)]
        self.known[number] = self.leader(number)
        return partition(number)

    def leader_of(self, _topic: str, number: int) -> PartitionLeader | None:
        return self.known.get(number)

    def leader(self, number: int) -> PartitionLeader:
        """The leader that metadata would name now."""
        return PartitionLeader(self.leaders[number], self.epochs[number][-1][0], self.topic_id)

    def elect(self, number: int, node_id: int, end: int | None = None) -> None:
        """Another leader, whose log ends at `end`: an unclean election truncates the log."""
        end = self.ends[number] if end is None else end
        epoch = self.epochs[number][-1][0] + 1
        self.leaders[number], self.ends[number] = node_id, end
        self.epochs[number] = [*((one, at) for one, at in self.epochs[number] if at < end), (epoch, end)]

    def epoch_at(self, number: int, offset: int) -> int:
        return max(epoch for epoch, at in self.epochs[number] if at <= offset)

    def epoch_end(self, number: int, epoch: int) -> tuple[int, int]:
        """As a broker answers OffsetForLeaderEpoch."""
        epochs = self.epochs[number]
        before = [one for one, _ in epochs if one <= epoch]
        after = [at for one, at in epochs if one > epoch]
        if not after:
            return (before[-1], self.ends[number]) if epochs[-1][0] == epoch else (-1, -1)
        return before[-1] if before else epoch, after[0]

    def effect(self) -> list[FetchEffect]:
        """What the reader wants now."""
        new = self.reader.effects(self.leader_of, self.now_ms)
        self.under_way += new
        return new

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.reader.needs_data = True

    def run(self, rebalances: int = 8) -> None:
        """Ask and answer until nothing more is wanted (or there is no end to it)."""
        for _ in range(rebalances):
            self.effect()
            for one in list(self.under_way):
                self.answer(one)

    def answer(self, effect: FetchEffect) -> None:
        self.under_way.remove(effect)
        match effect:
            case Fetch():
                self.reader.fetched(effect, self.fetched(effect.node_id, effect.request), self.now_ms)
            case AskCommitted():
                self.reader.committed(effect, self.committed_offsets(), self.now_ms)
            case AskOffsets():
                found = {state.partition: self._listed(state.partition, at) for state, at in effect.states.items()}
                self.reader.offsets_found(effect, found, self.now_ms)
            case AskEpochEnds():
                self.reader.epoch_ends_found(effect, self.epoch_ends(effect.node_id, effect.request), self.now_ms)
            case RefreshLeaders():
                self.known = {number: self.leader(number) for number in self.leaders}
                self.reader.refreshed(self.now_ms)
            case LogTruncated():
                self.told.append(effect)

    def lose(self, effect: FetchEffect) -> None:
        """The connection breaks instead."""
        self.under_way.remove(effect)
        error = ConnectionLostError("gone")
        match effect:
            case Fetch():
                self.reader.fetch_failed(effect, error, self.now_ms)
            case AskCommitted():
                self.reader.committed(effect, error, self.now_ms)
            case AskOffsets():
                lost = {state.partition: Found(error=error) for state in effect.states}
                self.reader.offsets_found(effect, lost, self.now_ms)
            case AskEpochEnds():
                self.reader.epoch_ends_failed(effect, error, self.now_ms)
            case LogTruncated():
                self.told.append(effect)
            case RefreshLeaders():
                self.reader.refreshed(self.now_ms)

    def committed_offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {partition(number): OffsetAndMetadata(offset) for number, offset in self.committed.items()}

    def _listed(self, one: TopicPartition, timestamp: int) -> Found:
        number = one.partition
        return Found({-2: self.starts[number], -1: self.ends[number]}.get(timestamp, -1))

    def epoch_ends(self, node_id: int, request: epoch_api.Request) -> epoch_api.Response:
        topics = []
        for topic in request.topics:
            ends = []
            for one in topic.partitions:
                error = self._leader_error(node_id, one.partition, one.current_leader_epoch)
                epoch, end = (-1, -1) if error else self.epoch_end(one.partition, one.leader_epoch)
                ends.append(
                    epoch_api.EpochEnd(error=error, partition=one.partition, leader_epoch=epoch, end_offset=end)
                )
            topics.append(epoch_api.TopicEnds(topic=topic.topic, partitions=ends))
        return epoch_api.Response(topics=topics)

    def _leader_error(self, node_id: int, number: int, epoch: int) -> ErrorCode:
        current = self.epochs[number][-1][0]
        if self.leaders[number] != node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch != current:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE

    def fetched(self, node_id: int, request: Request) -> Response:
        topics = []
        for topic in request.topics:
            is_known = topic.topic_id == self.topic_id
            parts = [
                self.read(node_id, one.partition, one.fetch_offset, one.current_leader_epoch)
                if is_known
                else FetchedPartition(partition=one.partition, error=ErrorCode.UNKNOWN_TOPIC_ID)
                for one in topic.partitions
            ]
            topics.append(FetchedTopic(topic_id=topic.topic_id, partitions=parts))
        return Response(responses=topics)

    def read(self, node_id: int, number: int, offset: int, leader_epoch: int) -> FetchedPartition:
        error = self.error(number, offset) or self._leader_error(node_id, number, leader_epoch)
        if not error and not self.starts[number] <= offset <= self.ends[number]:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        if error:
            return FetchedPartition(partition=number, error=error)
        end = self.ends[number]
        first = offset // self.size * self.size  # a batch is sent whole
        batches = [
            batch_at(begin, until - begin, self.epoch_at(number, begin))
            for at in range(first, min(end, first + 2 * self.size), self.size)
            for begin, until in self._batches(number, at, min(at + self.size, end))
        ]
        return FetchedPartition(
            partition=number,
            high_watermark=end,
            last_stable_offset=end,
            records=b"".join(batches) if offset < end else b"",
        )

    def _batches(self, number: int, begin: int, end: int) -> list[tuple[int, int]]:
        """A batch has one epoch: those that begin in the middle divide it."""
        cuts = sorted({begin, end, *(at for _, at in self.epochs[number] if begin < at < end)})
        return list(pairwise(cuts))


FROM_START = fetch_settings(EARLIEST)
ALONE = fetch_settings(EARLIEST, has_group=False)


def reading(settings: ConsumerSettings = FROM_START, *, end: int = 10, size: int = 3) -> World:
    """One partition, `t-0`, at its beginning, with nothing fetched yet."""
    world = World(settings, size=size)
    world.reader.assign([world.partition(0, end)])
    world.reader.seek(partition(0), 0)
    return world
