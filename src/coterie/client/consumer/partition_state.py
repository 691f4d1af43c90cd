"""One partition as its reader sees it: where it stands, what is fetched and not yet taken, what hinders it. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from coterie.client.consumer.offset_resets import Reset
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import KafkaError
from coterie.protocol.apis.fetch import AbortedTransaction
from coterie.protocol.buffer import Buffer
from coterie.protocol.fetched import FetchedRecords, end_of
from coterie.protocol.records import Record

__all__ = ["NO_EPOCH", "Chunk", "Need", "PartitionLeader", "PartitionState"]


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
        """Where the next fetch begins; NO_PROGRESS if these bytes lead nowhere, which taking them will tell."""

    def take_ready(self) -> Record | None:
        """The next record, if it is unpacked already and not the last of its batch; else `take` must look further."""
        if self._taken + 1 >= len(self._pending):
            return None
        record = self._pending[self._taken]
        self._taken += 1
        self.next_offset = record.offset + 1
        return record

    @property
    def whole_size(self) -> int:
        """Bytes as the broker sent them."""
        return len(self._data)

    @property
    def size(self) -> int:
        """Bytes that are still to be unpacked."""
        return len(self._data) - self._at


NO_EPOCH = -1


class PartitionLeader(NamedTuple):
    """Who serves a partition, as far as the metadata knows."""

    node_id: int
    epoch: int = NO_EPOCH
    topic_id: UUID | None = None

    def is_of_another_topic(self, other: PartitionLeader) -> bool:
        """The topic was deleted and created again: offsets of the two have nothing in common."""
        return None not in (self.topic_id, other.topic_id) and self.topic_id != other.topic_id


class Need(Enum):
    """What is missing before records can be fetched."""

    NOTHING = "it stands somewhere"
    COMMITTED = "how far has the group come?"
    RESET = "where does auto.offset.reset lead to?"
    VALIDATION = "does the leader's log contain all that is before the position?"


class PartitionState:
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
        "last_stable",
        "leader",
        "log_start",
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
        """How often the metadata was older than the epoch of the position."""
        self.done: OffsetAndMetadata | None = None
        self.next_fetch = -1
        self.chunks: deque[Chunk] = deque()
        self.high_watermark = self.last_stable = self.log_start = -1
        self.is_paused = False
        self.is_held = False
        self.asking: object | None = None
        """The effect that will tell where it stands, while it is under way."""
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

    @property
    def is_valid(self) -> bool:
        """It stands somewhere, and its leader does not have to be asked about that any more."""
        return self.need is Need.NOTHING

    def leave(self) -> None:
        """It stands nowhere now, and an answer that is under way is of no use."""
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
        """Whether the answer to a fetch from `offset`, asked while `leader` led, is still of use."""
        return self.need is Need.NOTHING and self.next_fetch == offset and self.leader == leader

    def node_to_ask(self, leader: int, now_ms: int) -> int:
        """A nearer replica for a while, if the leader has named one (KIP-392)."""
        if self.replica is not None and self.replica_until_ms <= now_ms:
            self.replica = None
        return leader if self.replica is None else self.replica
