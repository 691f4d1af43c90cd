"""The events that the transaction manager of a producer handles, and the effects that its driver performs.

An effect that takes time comes back as the event that its docstring names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.client.producer.partition_queue import NO_PRODUCER, ProducerIdAndEpoch
from coterie.client.producer.transaction_states import TransactionApi
from coterie.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from coterie.errors import KafkaError

# --- requests to the cluster ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Ask for the coordinator of the transactional id, or of a group if `group_id` is given."""

    group_id: str | None = None
    api = TransactionApi.FIND_COORDINATOR


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """Ask for a producer id; with the present one, for its next epoch (KIP-360)."""

    present: ProducerIdAndEpoch = NO_PRODUCER
    api = TransactionApi.INIT_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class AddPartitions:
    partitions: tuple[TopicPartition, ...]
    api = TransactionApi.ADD_PARTITIONS


@dataclass(frozen=True, slots=True)
class AddOffsets:
    group_id: str
    api = TransactionApi.ADD_OFFSETS


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    token: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    group: GroupMetadata
    api = TransactionApi.TXN_OFFSET_COMMIT


@dataclass(frozen=True, slots=True)
class EndTxn:
    committed: bool
    api = TransactionApi.END_TXN


Request = FindCoordinator | InitProducerId | AddPartitions | AddOffsets | CommitOffsets | EndTxn


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ask:
    """Send the request to this node, or to any. Back as `Answered` or `Refused`; one at a time is under way."""

    request: Request
    node_id: int | None


@dataclass(slots=True)
class WakeAt:
    """Call again with `Woke` at this time."""

    at_ms: int


@dataclass(slots=True)
class BeginBatches:
    """Records come from now on. `adds_partitions`: a batch is sent when its partition was added (`TakePartitions`)."""

    adds_partitions: bool


@dataclass(slots=True)
class TakePartitions:
    """Batches of these partitions may be sent."""

    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class UseIdentity:
    """Batches carry this producer id and epoch from now on; their sequences begin at 0."""

    identity: ProducerIdAndEpoch


@dataclass(slots=True)
class FlushBatches:
    """Send all batches. Back as `Flushed` with the same number."""

    number: int


@dataclass(slots=True)
class DropBatches:
    """Fail all batches that are not under way, and do not send any again. Back as `Flushed` with the same number."""

    number: int
    error: KafkaError


@dataclass(slots=True)
class FailProducer:
    """All batches fail with this error, and so does everything that is sent later."""

    error: KafkaError


@dataclass(slots=True)
class CallEnded:
    """The call with this token has ended."""

    token: int
    error: KafkaError | None = None


Effect = (
    Ask | WakeAt | BeginBatches | TakePartitions | UseIdentity | FlushBatches | DropBatches | FailProducer | CallEnded
)


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class InitAsked:
    token: int


@dataclass(slots=True)
class BeginAsked:
    pass


@dataclass(slots=True)
class SendOffsetsAsked:
    token: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    group: GroupMetadata


@dataclass(slots=True)
class CommitAsked:
    token: int


@dataclass(slots=True)
class AbortAsked:
    token: int


@dataclass(slots=True)
class PartitionsWanted:
    """There are batches for partitions that were not added to the transaction."""

    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Answered:
    """The cluster has done what was asked."""

    request: Request
    node_id: int = -1
    """The coordinator that was looked for."""
    identity: ProducerIdAndEpoch = NO_PRODUCER
    transaction_version: int = 0
    """The finalized level of the feature, as the node that answered knows it."""


@dataclass(slots=True)
class Refused:
    """An error was answered, or there was no answer: then it is not known whether the broker did it."""

    request: Request
    error: KafkaError


@dataclass(slots=True)
class ProduceFailed:
    """Records of the transaction were not delivered. `was_sent`: the broker may have them."""

    error: KafkaError
    was_sent: bool


@dataclass(slots=True)
class Flushed:
    """All batches are delivered or have failed. `has_sent`: some were sent since the transaction began."""

    number: int
    has_sent: bool


@dataclass(slots=True)
class Woke:
    pass


Event = (
    InitAsked
    | BeginAsked
    | SendOffsetsAsked
    | CommitAsked
    | AbortAsked
    | PartitionsWanted
    | Answered
    | Refused
    | ProduceFailed
    | Flushed
    | Woke
)
