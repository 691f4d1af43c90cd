"""The events that the record accumulator of a producer handles, and the effects that its driver performs.

An effect that takes time comes back as the event that its docstring names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from coterie.client.producer.partition_queue import Batch, ProducerIdAndEpoch
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, KafkaError

# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class SendBatches:
    """One Produce request, a batch for each partition at most; back as `Answered` or `Unanswered`."""

    node_id: int
    batches: tuple[Batch, ...]


@dataclass(slots=True)
class AskProducerId:
    """Back as `ProducerIdGiven` or `ProducerIdFailed`."""


@dataclass(slots=True)
class AskLeaders:
    """Get the leaders of these topics' partitions. Back as `LeadersFound` or `LeadersFailed`."""

    topics: tuple[str, ...]


@dataclass(slots=True)
class WakeAt:
    """Call again with `Woke` at this time, and no more at the time that was asked for before; None: at no time."""

    at_ms: int | None


@dataclass(slots=True)
class Settled:
    """The batch has its offsets or its error: call its callbacks."""

    batch: Batch


@dataclass(slots=True)
class RoomMade:
    """Callers that wait for room can go on."""


@dataclass(slots=True)
class FlushDone:
    token: int


@dataclass(slots=True)
class AskPartitions:
    """Add these partitions to the transaction, so that their batches can be sent. Back as `PartitionsAdded`."""

    partitions: tuple[TopicPartition, ...]


Effect = SendBatches | AskProducerId | AskLeaders | AskPartitions | WakeAt | Settled | RoomMade | FlushDone


# --- events -----------------------------------------------------------------------------------------------------------


class PartitionAnswer(NamedTuple):
    """The leader's answer for the batch of one partition."""

    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    append_time_ms: int = -1
    message: str | None = None
    record_errors: Mapping[int, str | None] = {}


@dataclass(slots=True)
class Woke:
    """A batch is full, its linger.ms is over, or the timer fired."""


@dataclass(slots=True)
class Answered:
    """A Produce response. With acks=0, which has none: the request was written, and every batch is accepted."""

    sent: SendBatches
    answers: Mapping[TopicPartition, PartitionAnswer]


@dataclass(slots=True)
class Unanswered:
    """Connection lost, or no answer in time: whether the broker has appended the batches is unknown."""

    sent: SendBatches
    error: KafkaError


@dataclass(slots=True)
class LeadersFound:
    """The leader of each partition of the requested topics; -1 for none."""

    leaders: Mapping[str, Mapping[int, int]]


@dataclass(slots=True)
class LeadersFailed:
    error: KafkaError


@dataclass(slots=True)
class ProducerIdGiven:
    identity: ProducerIdAndEpoch


@dataclass(slots=True)
class ProducerIdFailed:
    error: KafkaError


@dataclass(slots=True)
class FlushAsked:
    """Send all batches without lingering; ends as `FlushDone` with the same token."""

    token: int


@dataclass(slots=True)
class Closing:
    """The producer closes: no batch lingers any more."""


@dataclass(slots=True)
class GaveUp:
    """All batches that are not settled fail with this error."""

    error: KafkaError


@dataclass(slots=True)
class TransactionBegun:
    """`adds_partitions`: a batch is sent when its partition was added to the transaction."""

    adds_partitions: bool


@dataclass(slots=True)
class PartitionsAdded:
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class TransactionAborting:
    """Batches that are not in flight fail with this error, and none is sent again; ends as `FlushDone`."""

    token: int
    error: KafkaError


Event = (
    Woke
    | Answered
    | Unanswered
    | LeadersFound
    | LeadersFailed
    | ProducerIdGiven
    | ProducerIdFailed
    | FlushAsked
    | Closing
    | GaveUp
    | TransactionBegun
    | PartitionsAdded
    | TransactionAborting
)
