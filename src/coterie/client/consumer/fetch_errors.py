"""What a broker may answer to a fetch of a partition, and what a reader does about it: a table. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import STALE_METADATA, ErrorCode, KafkaError

__all__ = [
    "ON_ERROR",
    "CorruptRecordError",
    "FetchErrorAction",
    "LogTruncationError",
    "NoOffsetForPartitionError",
    "OffsetOutOfRangeError",
    "corrupt",
]


class FetchErrorAction(Enum):
    REFRESH = "ask who leads the partition, and try again"
    RETRY = "try again a little later"
    RESET = "the position is not in the log: reset it as auto.offset.reset says, or raise"
    RAISE_AND_RETRY = "tell the caller of poll, and try again a little later: rights may be given"
    RAISE = "tell the caller of poll, at every poll until it seeks elsewhere"


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
    ErrorCode.CORRUPT_MESSAGE: FetchErrorAction.RAISE,
}
"""Any other code is raised: one we do not expect must not be retried for ever in silence."""


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
