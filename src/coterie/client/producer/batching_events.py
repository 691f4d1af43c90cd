"""What happens to the producer's machine (`batching.py`), and what it wants done.

An effect that takes time comes back as the event named beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from coterie.client.producer.partition_queue import Batch, Identity
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, KafkaError

__all__ = [
    "Answered",
    "AskLeaders",
    "AskProducerId",
    "Closing",
    "Effect",
    "Event",
    "FlushAsked",
    "FlushDone",
    "GaveUp",
    "LeadersFailed",
    "LeadersFound",
    "PartitionAnswer",
    "ProducerIdFailed",
    "ProducerIdGiven",
    "RoomMade",
    "SendBatches",
    "Settled",
    "Unanswered",
    "WakeAt",
    "Woke",
]


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
    """Who leads the partitions of these topics now? Back as `LeadersFound` or `LeadersFailed`."""

    topics: tuple[str, ...]


@dataclass(slots=True)
class WakeAt:
    """Call again with `Woke` at this time, and no more at the time that was asked for before; None: at no time."""

    at_ms: int | None


@dataclass(slots=True)
class Settled:
    """The batch has its offsets or its error; tell whoever waits."""

    batch: Batch


@dataclass(slots=True)
class RoomMade:
    """Whoever was refused for want of room may try again."""


@dataclass(slots=True)
class FlushDone:
    token: int


Effect = SendBatches | AskProducerId | AskLeaders | WakeAt | Settled | RoomMade | FlushDone


# --- events -----------------------------------------------------------------------------------------------------------


class PartitionAnswer(NamedTuple):
    """What the leader said of one partition's batch."""

    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    append_time_ms: int = -1
    message: str | None = None
    record_errors: Mapping[int, str | None] = {}


@dataclass(slots=True)
class Woke:
    """A batch became full, its time to linger is over, or the alarm rang."""


@dataclass(slots=True)
class Answered:
    """With acks=0 there is no answer; that it was written is one then, with every batch taken."""

    sent: SendBatches
    answers: Mapping[TopicPartition, PartitionAnswer]


@dataclass(slots=True)
class Unanswered:
    """Connection lost, or no answer in time: whether the broker took the batches is unknown."""

    sent: SendBatches
    error: KafkaError


@dataclass(slots=True)
class LeadersFound:
    """Of each topic that was asked for: the leader of each partition, -1 for none."""

    leaders: Mapping[str, Mapping[int, int]]


@dataclass(slots=True)
class LeadersFailed:
    error: KafkaError


@dataclass(slots=True)
class ProducerIdGiven:
    identity: Identity


@dataclass(slots=True)
class ProducerIdFailed:
    error: KafkaError


@dataclass(slots=True)
class FlushAsked:
    """Everything there is now is to be sent without lingering; ends as `FlushDone` with the same token."""

    token: int


@dataclass(slots=True)
class Closing:
    """Nothing more will come; what is there need not linger."""


@dataclass(slots=True)
class GaveUp:
    """What is not settled now fails with this error."""

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
)
