"""The state of a partition that a consumer reads, and its reset by `auto.offset.reset`. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import KafkaError
from coterie.protocol.apis import list_offsets
from coterie.protocol.apis.fetch import AbortedTransaction
from coterie.protocol.buffer import Buffer
from coterie.protocol.fetched import FetchedRecords, end_of
from coterie.settings.consumer_settings import duration_ms


class Reset(NamedTuple):
    """The position to start at without a committed offset, or with one that is out of range."""

    name: str
    back_ms: int | None = None
    """The duration of by_duration (KIP-1106)."""

    def timestamp(self, now_ms: int) -> int:
        """The timestamp for ListOffsets."""
        if self.back_ms is not None:
            return max(now_ms - self.back_ms, 0)
        return list_offsets.EARLIEST if self.name == "earliest" else list_offsets.LATEST


EARLIEST = Reset("earliest")
LATEST = Reset("latest")
NO_RESET = Reset("none")


def parse_reset(text: str) -> Reset:
    """Parse a value that the settings have accepted."""
    kind, _, duration = text.partition(":")
    return Reset(text, duration_ms(duration)) if kind == "by_duration" else Reset(kind)


class Chunk(FetchedRecords):
    """The answer to one fetch of one partition. Bytes wait here as the broker sent them until a poll reaches them."""

    __slots__ = ("end_offset",)

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        data: Buffer,
        aborted: Sequence[AbortedTransaction] | None = None,
        *,
        check_crcs: bool,
    ) -> None:
        """`aborted`: for those who read committed records, the transactions that were given up (KIP-98)."""
        given_up = None if aborted is None else [(one.first_offset, one.producer_id) for one in aborted]
        super().__init__(topic, partition, data, next_offset=offset, aborted=given_up, check_crcs=check_crcs)
        self.end_offset = end_of(self._data, offset)
        """The offset of the next fetch; NO_PROGRESS if these bytes have no complete batch."""

    @property
    def whole_size(self) -> int:
        """Bytes as the broker sent them."""
        return len(self._data)


NO_EPOCH = -1


class PartitionLeader(NamedTuple):
    """The leader of a partition, by the metadata."""

    node_id: int
    epoch: int = NO_EPOCH
    topic_id: UUID | None = None

    def is_of_another_topic(self, other: PartitionLeader) -> bool:
        """The topic was deleted and created again: offsets of the two have nothing in common."""
        return None not in (self.topic_id, other.topic_id) and self.topic_id != other.topic_id


class Need(Enum):
    """The step that is needed before records can be fetched."""

    NOTHING = "it stands somewhere"
    COMMITTED = "how far has the group come?"
    RESET = "where does auto.offset.reset lead to?"
    VALIDATION = "does the leader's log contain all that is before the position?"


class TopicPartitionState:
    """`position`: the next record to hand over. `done`: the same when the last poll began. `next_fetch`: behind all
    that is fetched. They differ by what waits to be taken, and by what was taken and is being processed. `epoch`: the
    leader epoch of the last record before the position. `leader`: the one that serves the position, or will when it has
    validated it (KIP-320).
    """

    __slots__ = (
        "asking",
        "chunks",
        "done",
        "epoch",
        "failure",
        "failure_passes",
        "high_watermark",
        "is_held",
        "is_paused",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "need",
        "next_fetch",
        "not_before_ms",
        "partition",
        "position",
        "replica",
        "replica_until_ms",
        "reset",
        "stale_epochs",
    )

    def __init__(self, partition: TopicPartition, need: Need) -> None:
        self.partition = partition
        self.need = need
        self.reset: Reset | None = None
        self.position: int | None = None
        self.epoch = NO_EPOCH
        self.leader: PartitionLeader | None = None
        self.stale_epochs = 0
        """The number of times that the metadata was older than the epoch of the position."""
        self.done: OffsetAndMetadata | None = None
        self.next_fetch = -1
        self.chunks: deque[Chunk] = deque()
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.is_paused = False
        self.is_held = False
        self.asking: object | None = None
        """The request for its position that is in flight."""
        self.not_before_ms = 0
        self.failure: KafkaError | None = None
        self.failure_passes = False
        self.replica: int | None = None
        self.replica_until_ms = 0

    def stand_at(self, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Set the position. With an epoch, the leader is asked first whether its log has it (KIP-320)."""
        self.need = Need.NOTHING if leader_epoch == NO_EPOCH else Need.VALIDATION
        self.position = self.next_fetch = offset
        self.epoch = leader_epoch
        self.done = OffsetAndMetadata(offset, leader_epoch=leader_epoch)

    def request_offset_reset(self, reset: Reset) -> None:
        """Reset the position: before the next fetch, ListOffsets looks up the offset that `reset` names."""
        self.need, self.reset = Need.RESET, reset

    @property
    def is_valid(self) -> bool:
        """True if it has a validated position."""
        return self.need is Need.NOTHING

    def leave(self) -> None:
        """Drop the position; answers in flight are ignored."""
        self.position = self.done = None
        self.next_fetch = -1
        self.asking = self.leader = None
        self.stale_epochs = 0

    def forget_fetched(self) -> None:
        self.chunks.clear()
        self.failure = None
        self.failure_passes = False
        self.not_before_ms = 0

    def wants(self, offset: int, leader: PartitionLeader) -> bool:
        """Return whether the answer to a fetch from `offset` at `leader` is still current."""
        return self.need is Need.NOTHING and self.next_fetch == offset and self.leader == leader

    def node_to_ask(self, leader: int, now_ms: int) -> int:
        """A nearer replica for a while, if the leader has named one (KIP-392)."""
        if self.replica is not None and self.replica_until_ms <= now_ms:
            self.replica = None
        return leader if self.replica is None else self.replica
