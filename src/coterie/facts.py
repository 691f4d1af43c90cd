"""Everything that can happen to a group, typed, with its time.

The group tells facts; the ledger folds them, logs print them, tests assert them. A fact says what happened, never what
should be done about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coterie.errors import ErrorCode

__all__ = [
    "AssignmentFailed",
    "AssignmentStored",
    "Cause",
    "ClockSet",
    "Fact",
    "GroupCreated",
    "GroupDied",
    "GroupEmptied",
    "GroupLoaded",
    "GroupUnloaded",
    "JoinPhaseCompleted",
    "JoinPhaseStuck",
    "MemberExpired",
    "MemberIdExpired",
    "MemberIdGiven",
    "MemberJoined",
    "MemberLeft",
    "MemberMissedJoin",
    "MemberMissedSync",
    "MemberRejoined",
    "MemberReplaced",
    "MemberTurnedAway",
    "Mistake",
    "OffsetsDeletedFact",
    "OffsetsExpired",
    "OffsetsStored",
    "RebalanceStarted",
    "RecordsSkipped",
    "WriteFailed",
]


class Cause(StrEnum):
    """What starts a rebalance (semantics 12). Every rebalance has exactly one."""

    NEW_MEMBER = "new member"
    MEMBER_LEFT = "member left"
    PENDING_MEMBER_LEFT = "pending member left"
    SESSION_EXPIRED = "session expired"
    SYNC_TIMEOUT = "sync timeout"
    PROTOCOLS_CHANGED = "protocols changed"
    LEADER_REJOINED = "leader rejoined"
    STATIC_MEMBER_REPLACED = "static member replaced"
    STATIC_MEMBER_CHANGED_VOTE = "static member changed the vote"
    WRITE_FAILED = "assignment could not be stored"
    COORDINATOR_MOVED = "coordinator moved"
    OVER_SIZE_AT_LOAD = "over group.max.size at load"


@dataclass(slots=True)
class Fact:
    at_ms: int
    group_id: str


@dataclass(slots=True)
class GroupCreated(Fact):
    """By a first join, or, `simple`, by a commit without membership."""

    simple: bool


@dataclass(slots=True)
class GroupLoaded(Fact):
    """Read back from the log, as C4 says."""

    state: str
    generation_id: int
    members: Sequence[str]
    offsets: int
    assignments: Mapping[str, bytes]


@dataclass(slots=True)
class GroupEmptied(Fact):
    generation_id: int


@dataclass(slots=True)
class GroupDied(Fact):
    """The group was deleted, on request or because its offsets expired, or it could not be written."""

    why: str


@dataclass(slots=True)
class GroupUnloaded(Fact):
    """The coordinator has shut down or another node has become the coordinator. The group is still in the log."""


@dataclass(slots=True)
class MemberIdGiven(Fact):
    """KIP-394: a newcomer has its id and has to come back with it."""

    member_id: str
    client_id: str
    client_host: str


@dataclass(slots=True)
class MemberIdExpired(Fact):
    member_id: str


@dataclass(slots=True)
class MemberJoined(Fact):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


@dataclass(slots=True)
class MemberRejoined(Fact):
    """A member that was already there has its join parked; `metadata` tells what it still owns."""

    member_id: str
    metadata: bytes


@dataclass(slots=True)
class MemberReplaced(Fact):
    """A static member came back under a new id; the old one is fenced."""

    member_id: str
    old_member_id: str
    instance_id: str


@dataclass(slots=True)
class MemberLeft(Fact):
    member_id: str
    instance_id: str | None
    reason: str | None


@dataclass(slots=True)
class MemberExpired(Fact):
    """No word for a session timeout, or, `never_heard`, none since the group was loaded."""

    member_id: str
    session_timeout_ms: int
    never_heard: bool


@dataclass(slots=True)
class MemberMissedJoin(Fact):
    """Did not rejoin within the rebalance timeout."""

    member_id: str


@dataclass(slots=True)
class MemberMissedSync(Fact):
    """Did not ask for its assignment within the rebalance timeout (KAFKA-12890)."""

    member_id: str


@dataclass(slots=True)
class MemberTurnedAway(Fact):
    """The group is full (`group.max.size`), or its members have more metadata than they may (`why`)."""

    member_id: str
    why: str = ""


@dataclass(slots=True)
class RebalanceStarted(Fact):
    cause: Cause
    member_id: str
    """The member behind it; empty where there is none."""
    reason: str | None
    """The client's own words, if it gave any."""
    generation_id: int
    """The generation that ends."""
    waits_for: Sequence[str]


@dataclass(slots=True)
class JoinPhaseStuck(Fact):
    """Only static members are left and none rejoined: the phase waits once more (rule 6)."""

    generation_id: int


@dataclass(slots=True)
class JoinPhaseCompleted(Fact):
    generation_id: int
    protocol_name: str
    leader_id: str
    joined_after_ms: Mapping[str, int]
    """How long after the start each member's join came in. A static member kept without a join is absent."""


@dataclass(slots=True)
class AssignmentStored(Fact):
    generation_id: int
    assignments: Mapping[str, bytes]


@dataclass(slots=True)
class AssignmentFailed(Fact):
    generation_id: int
    error: ErrorCode


@dataclass(slots=True)
class WriteFailed(Fact):
    """A record could not be written; what was waiting for it was answered with the mapped error."""

    what: str
    error: ErrorCode


@dataclass(slots=True)
class OffsetsStored(Fact):
    member_id: str
    offsets: Sequence[tuple[str, int, int]]
    """Topic, partition, offset."""
    transactional: bool


@dataclass(slots=True)
class OffsetsExpired(Fact):
    partitions: Sequence[tuple[str, int]]


@dataclass(slots=True)
class OffsetsDeletedFact(Fact):
    partitions: Sequence[tuple[str, int]]


@dataclass(slots=True)
class Mistake(Fact):
    """Something is wrong with us: an event that no rule of ours should have failed at. Please report it."""

    doing: str
    trace: str


@dataclass(slots=True)
class ClockSet(Fact):
    """The wall clock was set, or the machine slept: times from here on are this much later; `group_id` is empty.

    What began before and has not ended is measured by adding `by_ms` to when it began.
    """

    by_ms: int


@dataclass(slots=True)
class RecordsSkipped(Fact):
    """Records of unknown types in the log, counted by type; `group_id` is empty."""

    counts: Mapping[int, int]
