"""The effects that a group returns. An effect that takes time carries the event that it comes back as.

`Reply`, `Emit` and `ComputeTarget` go up; `Persist`, `Arm` and `Disarm` are for the shard. The events at the end of
this file are the ones that come back: a write that ended, a timer that rang. They carry what is needed to see that they
are stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.errors import ErrorCode
from coterie.facts import Emit
from coterie.protocol.messages import (
    CommitPartition,
    CommittedOffset,
    JoinGroup,
    LeftGroup,
    OffsetRecord,
    Protocol,
    Record,
    Token,
)
from coterie.structs import DataStruct

TimerKey = tuple[str, str, str]
"""Group, kind, member (or ""). Arming a key again replaces what it had."""


class Reply(DataStruct):
    token: Token
    answer: Any
    """One of the replies of `coterie.protocol.messages`, or an ErrorCode."""


class Arm(DataStruct):
    key: TimerKey
    at_ms: int
    then: Any
    """The event that comes back when the timer fires."""


class Disarm(DataStruct):
    key: TimerKey


class Persist(DataStruct):
    """Write these records, all or none; `then` comes back when they are durable, or with an error."""

    records: Sequence[Record]
    then: Written
    producer_id: int | None = None
    producer_epoch: int = -1


class ComputeTarget(DataStruct):
    """Have the target of a consumer group computed, away from the event loop; then hand `then` back."""

    then: Any
    """The question, and, when it comes back, the answer (`coordinator/consumer/target_assignment.py`)."""
    offsets: Mapping[str, Mapping[int, CommittedOffset]]
    """The committed offsets of the group, for assignors that use the lag."""


# --- timers that rang -------------------------------------------------------------------------------------------------


class SessionDue(DataStruct):
    """The timer of a member's session. Heartbeats only move the deadline, which is checked when the timer fires."""

    group_id: str
    member_id: str


class JoinPhaseDue(DataStruct):
    group_id: str
    generation_id: int
    waited_ms: int = 0
    rest_ms: int | None = None
    """The time by which the initial delay may still be extended (rule 5); None if it is not the initial delay."""


class SyncPhaseDue(DataStruct):
    group_id: str
    generation_id: int


class ExpiryDue(DataStruct):
    """The check for expired offsets is due (rule 23)."""

    group_id: str


class TransactionEnded(DataStruct):
    """The marker of a transaction is durable: its offsets count now, or never."""

    group_id: str
    producer_id: int
    committed: bool


# --- writes that ended ------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Written:
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    """The error of the write; NONE if it was written."""
    position: int = -1
    """The offset of the first record."""
    token: Token | None = None
    """The request that waits for it; None if there is none, or no longer."""


Effect = Reply | Emit | Arm | Disarm | Persist | ComputeTarget | Written
"""What a rule asks for. A `Written` by itself goes to the log as it is, and comes back (`consumer.CaughtUp`)."""
Effects = list[Effect]


@dataclass(slots=True, kw_only=True)
class CreationWritten(Written):
    """The first record of a new group is written."""


@dataclass(slots=True, kw_only=True)
class EmptyWritten(Written):
    """The record of a group without members is written. If a member left last, it is answered now."""

    answer: LeftGroup | None = None


@dataclass(slots=True, kw_only=True)
class AssignmentWritten(Written):
    generation_id: int
    assignments: Mapping[str, bytes]


@dataclass(slots=True, kw_only=True)
class StaticMemberWritten(Written):
    """The new id of a static member is written (rule 19). The old values are restored if the write failed."""

    request: JoinGroup
    generation_id: int
    member_id: str
    old_member_id: str
    old_leader_id: str
    old_protocols: Sequence[Protocol]
    old_session_timeout_ms: int
    old_rebalance_timeout_ms: int


@dataclass(slots=True, kw_only=True)
class OffsetsWritten(Written):
    member_id: str
    partitions: Sequence[CommitPartition]
    errors: Sequence[ErrorCode]
    records: Sequence[OffsetRecord]
    producer_id: int | None = None


@dataclass(slots=True, kw_only=True)
class TombstonesWritten(Written):
    """The tombstones of offsets are written: they were deleted by an admin or with their topic, or expired."""

    partitions: Sequence[tuple[str, int]]
    expired: bool = False
    answer: Any = None


@dataclass(slots=True, kw_only=True)
class DeletionWritten(Written):
    """The tombstones of the group and of all its offsets are written."""

    expired: Sequence[tuple[str, int]] | None = None


# A client that hears that it must look for the coordinator tries again; UNKNOWN_SERVER_ERROR is final.
_FOR_CLIENT: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def error_for_client(error: ErrorCode) -> ErrorCode:
    """Return the error code for a client whose record could not be written (rule 11)."""
    return _FOR_CLIENT.get(error, error)
