"""Brokers as a reader without I/O sees them: logs, leaders, answers in any order. For tests of `client/fetching.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from coterie.apis.fetch import FetchedPartition, FetchedTopic, Response
from coterie.client.fetch_wishes import (
    AskCommitted,
    AskOffsets,
    Fetch,
    FetchSettings,
    Found,
    Leader,
    RefreshMetadata,
    Wish,
)
from coterie.client.fetching import Fetcher
from coterie.client.words import OffsetAndMetadata, TopicPartition
from coterie.errors import ConnectionLostError, ErrorCode
from coterie.wire.batch import assign
from coterie.wire.records import BatchRecord, Record, build_batch

__all__ = ["TOPIC_ID", "World", "batch_at", "offsets", "partition"]

TOPIC_ID = UUID(int=7)


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def batch_at(offset: int, count: int = 1) -> bytes:
    """Records whose values say where they are."""
    batch = build_batch([BatchRecord(None, b"%d" % (offset + index), 1000) for index in range(count)])
    assign(batch, 0, offset, 3)
    return bytes(batch)


def offsets(records: list[Record]) -> list[tuple[int, int]]:
    assert all(int(one.value or b"") == one.offset for one in records)
    return [(one.partition, one.offset) for one in records]


@dataclass
class World:
    """Partitions of topic `t`, each with records from `starts` to `ends`, `size` in a batch, led by `leaders`."""

    settings: FetchSettings = field(default_factory=FetchSettings)
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    size: int = 3
    now_ms: int = 1_000
    known: dict[int, int] = field(default_factory=dict)
    """What the reader's metadata says of the leaders."""

    def __post_init__(self) -> None:
        self.reader = Fetcher(self.settings)
        self.under_way: list[Wish] = []
        self.error: Callable[[int, int], ErrorCode] = lambda _partition, _offset: ErrorCode.NONE

    def partition(self, number: int, end: int = 0, *, start: int = 0, leader: int = 1) -> TopicPartition:
        self.starts[number], self.ends[number], self.leaders[number] = start, end, leader
        self.known[number] = leader
        return partition(number)

    def leader_of(self, _topic: str, number: int) -> Leader | None:
        return Leader(self.known[number], 0, TOPIC_ID) if number in self.known else None

    def wish(self) -> list[Wish]:
        """What the reader wants now."""
        new = self.reader.wishes(self.leader_of, self.now_ms)
        self.under_way += new
        return new

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.reader.is_hungry = True

    def run(self, rounds: int = 8) -> None:
        """Ask and answer until nothing more is wanted (or there is no end to it)."""
        for _ in range(rounds):
            self.wish()
            for one in list(self.under_way):
                self.answer(one)

    def answer(self, wish: Wish) -> None:
        self.under_way.remove(wish)
        match wish:
            case Fetch():
                self._answer_fetch(wish)
            case AskCommitted():
                self.reader.committed(wish, self.committed_offsets(), self.now_ms)
            case AskOffsets():
                found = {place.partition: self._listed(place.partition, at) for place, at in wish.places.items()}
                self.reader.offsets_found(wish, found, self.now_ms)
            case RefreshMetadata():
                self.known = dict(self.leaders)
                self.reader.refreshed(self.now_ms)

    def lose(self, wish: Wish) -> None:
        """The connection breaks instead."""
        self.under_way.remove(wish)
        error = ConnectionLostError("gone")
        match wish:
            case Fetch():
                self.reader.fetch_failed(wish, error, self.now_ms)
            case AskCommitted():
                self.reader.committed(wish, error, self.now_ms)
            case AskOffsets():
                lost = {place.partition: Found(error=error) for place in wish.places}
                self.reader.offsets_found(wish, lost, self.now_ms)
            case RefreshMetadata():
                self.reader.refreshed(self.now_ms)

    def committed_offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {partition(number): OffsetAndMetadata(offset) for number, offset in self.committed.items()}

    def _listed(self, one: TopicPartition, timestamp: int) -> Found:
        number = one.partition
        return Found({-2: self.starts[number], -1: self.ends[number]}.get(timestamp, -1))

    def _answer_fetch(self, wish: Fetch) -> None:
        topics = []
        for topic in wish.request.topics:
            assert topic.topic_id == TOPIC_ID
            parts = [self.read(wish.node_id, one.partition, one.fetch_offset) for one in topic.partitions]
            topics.append(FetchedTopic(topic_id=topic.topic_id, partitions=parts))
        self.reader.fetched(wish, Response(responses=topics), self.now_ms)

    def read(self, node_id: int, number: int, offset: int) -> FetchedPartition:
        error = self.error(number, offset)
        if not error and self.leaders[number] != node_id:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not error and not self.starts[number] <= offset <= self.ends[number]:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        if error:
            return FetchedPartition(partition=number, error=error)
        end = self.ends[number]
        first = offset // self.size * self.size  # a batch is sent whole
        batches = [
            batch_at(at, min(self.size, end - at)) for at in range(first, min(end, first + 2 * self.size), self.size)
        ]
        return FetchedPartition(
            partition=number,
            high_watermark=end,
            last_stable_offset=end,
            records=b"".join(batches) if offset < end else b"",
        )
