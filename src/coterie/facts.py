"""Facts: the events of groups.

A fact is a typed value that says what has happened to a group and when: a member joined, a rebalance started, an
assignment was stored. The coordinator emits facts. The broker stores them in `__coterie_facts`, the ledger folds them
into rebalances, `coterie serve` logs them, and tests assert them. A fact never asks for anything to be done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from coterie.errors import ErrorCode
from coterie.structs import DataStruct

__all__ = [
    "AssignmentFailed",
    "AssignmentStored",
    "AssignorFailed",
    "Cause",
    "ClientReported",
    "ClockSet",
    "Fact",
    "GroupCreated",
    "GroupDied",
    "GroupDowngraded",
    "GroupEmptied",
    "GroupLoaded",
    "GroupUnloaded",
    "GroupUpgraded",
    "InstanceIdFenced",
    "JoinPhaseCompleted",
    "JoinPhaseStuck",
    "MemberAssigned",
    "MemberExpired",
    "MemberIdExpired",
    "MemberIdGiven",
    "MemberJoined",
    "MemberLeft",
    "MemberMissedJoin",
    "MemberMissedRevocation",
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
    "TargetAssignmentComputed",
    "WriteFailed",
]


CLASSIC, CONSUMER = "classic", "consumer"
"""Types of groups."""


class Cause(StrEnum):
    """The cause of a rebalance (semantics 12). Every rebalance has exactly one."""

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
    SUBSCRIPTION_CHANGED = "subscription changed"
    REGEX_RESOLVED = "regular expression resolved"
    TOPICS_CHANGED = "topics changed"
    REVOCATION_TIMEOUT = "partitions not revoked in time"


class Fact(DataStruct):
    """An event of a group."""

    at_ms: int
    group_id: str


class Emit(DataStruct):
    """The effect of a coordinator or a member that has a fact."""

    fact: Fact


class GroupCreated(Fact):
    """A group was created by its first join or, if `simple`, by a commit without membership."""

    simple: bool


class GroupLoaded(Fact):
    """A group was loaded from the log of its coordinator (rule C4).

    A rebalance of a classic group ends with its coordinator. A consumer group goes on to reconcile.
    """

    state: str
    generation_id: int
    """The generation, or group epoch."""
    members: Sequence[str]
    offsets: int
    assignments: Mapping[str, bytes]
    group_type: str = CLASSIC
    """classic or consumer (KIP-848)."""


class GroupEmptied(Fact):
    """The last member is gone; the group and its offsets stay."""

    generation_id: int


class GroupDied(Fact):
    """The group was deleted, on request or because its offsets expired, or it could not be written."""

    why: str


class GroupUnloaded(Fact):
    """The coordinator has shut down or another node has become the coordinator. The group is still in the log."""


class GroupUpgraded(Fact):
    """A classic group has become a consumer group (KIP-848), since a consumer member joined it (K24)."""

    member_id: str
    """The consumer member; empty if it is not known."""
    generation_id: int
    """The last generation."""
    group_epoch: int
    """The group epoch before the join: the last generation or, if the group was empty, that of a new group."""
    members: Sequence[str]
    """The members that it had. They stay, and go on with the classic protocol."""


class GroupDowngraded(Fact):
    """A consumer group (KIP-848) has become a classic group: only classic members are left, or it was empty (K26)."""

    member_id: str
    """The consumer member that has gone, or the classic member that joined in its place; empty if it is not known."""
    group_epoch: int
    """The last group epoch."""
    generation_id: int
    """The generation that it begins with: the last group epoch or, if the group was empty, 0."""
    members: Sequence[str]
    """The members that are left."""


class MemberIdGiven(Fact):
    """A new member got its member id and must join again with it (KIP-394)."""

    member_id: str
    client_id: str
    client_host: str


class MemberIdExpired(Fact):
    """A new member did not join with the member id it got."""

    member_id: str


class MemberJoined(Fact):
    """A new member has joined."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class MemberRejoined(Fact):
    """An existing member has joined again; `metadata` has what it still owns.

    It is emitted only for a join that `JoinPhaseCompleted` will not list: the member joins once more or is gone before
    the others have joined, or the coordinator stops. Release 0.1.0 emitted one for every join.
    """

    member_id: str
    metadata: bytes


class MemberReplaced(Fact):
    """A static member came back with a new member id; the old one is fenced."""

    member_id: str
    old_member_id: str
    instance_id: str


class InstanceIdFenced(Fact):
    """A request was refused because another member has the same group.instance.id.

    It is emitted once for each refused member and each member that has the instance id, however often the request is
    repeated. A member that was killed and started again is refused as well, as long as the broker waits for the session
    of the killed one (KIP-848); only if both live they are two processes with one instance id.
    """

    member_id: str
    """The refused member; empty if it has no member id yet."""
    instance_id: str
    holder_id: str
    """The member that has the instance id."""
    request: str
    """The request that was refused: Heartbeat, JoinGroup, OffsetCommit."""
    error: ErrorCode
    """FENCED_INSTANCE_ID, or UNRELEASED_INSTANCE_ID for a member that joins a consumer group (KIP-848)."""
    was_waiting: bool = False
    """Whether the request waited for its answer when the holder took the place: then its sender may be gone."""


class MemberLeft(Fact):
    """A member has left with LeaveGroup, or was removed by an admin."""

    member_id: str
    instance_id: str | None
    reason: str | None


class MemberExpired(Fact):
    """A member sent nothing for its session timeout or, if `never_heard`, nothing since the group was loaded."""

    member_id: str
    session_timeout_ms: int
    never_heard: bool


class MemberMissedJoin(Fact):
    """A member did not rejoin within the rebalance timeout."""

    member_id: str


class MemberMissedSync(Fact):
    """A member did not send SyncGroup within the rebalance timeout (KAFKA-12890)."""

    member_id: str


class MemberMissedRevocation(Fact):
    """A member of a consumer group (KIP-848) did not give up partitions within its rebalance timeout (K12)."""

    member_id: str


class MemberTurnedAway(Fact):
    """A member was refused: the group is full (`group.max.size`), or its metadata is too large (`why`)."""

    member_id: str
    why: str = ""


class RebalanceStarted(Fact):
    """A rebalance has started."""

    cause: Cause
    member_id: str
    """The member that caused it; empty if there is none."""
    reason: str | None
    """The reason that the client sent, if any."""
    generation_id: int
    """The generation, or group epoch, that ends."""
    waits_for: Sequence[str]
    """The members that must rejoin or, in a consumer group, reach the next epoch; empty if it was rebalancing."""
    group_type: str = CLASSIC
    """classic or consumer (KIP-848)."""


class JoinPhaseStuck(Fact):
    """The join phase waits once more: only static members are left, and none rejoined (rule 6)."""

    generation_id: int


class JoinPhaseCompleted(Fact):
    """All members have joined, or the rebalance timeout is over; a new generation begins."""

    generation_id: int
    protocol_name: str
    leader_id: str
    joined_after_ms: Mapping[str, int]
    """The time after the start at which each member joined. A static member that was kept is not listed."""
    took_ms: int = 0
    """The time from the start to this."""
    rejoined: Sequence[tuple[bytes, list[str]]] = ()
    """The members that are not new, by their metadata, which has what they still owned when they joined."""


class AssignmentStored(Fact):
    """The assignment of a generation is durable, or all members have reached an epoch: the group is Stable."""

    generation_id: int
    assignments: Mapping[str, bytes]


class TargetAssignmentComputed(Fact):
    """The coordinator has computed the target assignment of a consumer group (KIP-848) for a group epoch."""

    assignment_epoch: int
    assignor: str


class MemberAssigned(Fact):
    """A member of a consumer group (KIP-848) has another current assignment, epoch or state."""

    member_id: str
    member_epoch: int
    """-2 for a static member that has left for a while."""
    state: str
    """Stable, UnrevokedPartitions or UnreleasedPartitions."""
    assigned: Mapping[str, list[int]]
    """The partitions that it may read, by topic."""
    pending_revocation: Mapping[str, list[int]]
    """The partitions that it must give up and has not yet: it owns them until then."""


class AssignmentFailed(Fact):
    """The assignment of a generation could not be written."""

    generation_id: int
    error: ErrorCode


class AssignorFailed(Fact):
    """The broker's assignor has not computed a target assignment for a consumer group, which keeps its last one."""

    generation_id: int
    """The group epoch. The assignor is asked again when there is another one."""
    assignor: str
    why: str


class WriteFailed(Fact):
    """A record could not be written; requests that waited for it got an error."""

    what: str
    error: ErrorCode


class OffsetsStored(Fact):
    """Offsets were committed."""

    member_id: str
    offsets: Sequence[tuple[str, int, int]]
    """The topic, partition and offset of each commit."""
    transactional: bool


class OffsetsExpired(Fact):
    """Committed offsets were deleted after their retention time."""

    partitions: Sequence[tuple[str, int]]


class OffsetsDeletedFact(Fact):
    """Committed offsets were deleted on request."""

    partitions: Sequence[tuple[str, int]]


class ClientReported(Fact):
    """A consumer has said in its metrics that it has rebalanced since its last push (KIP-714).

    The numbers are the client's own. Counts and totals are of the time since its last push; averages and maxima are of
    the last time that the client looks at. None is a number that it did not send.
    """

    member_id: str
    """Empty if the client did not say it."""
    instance_id: str | None
    """group.instance.id."""
    client_id: str
    client_instance_id: str
    """The id of the client instance, which the broker gave it."""
    client_host: str
    rebalances: int | None = None
    """How many rebalances. Librdkafka does not count them."""
    rebalance_latency_avg_ms: int | None = None
    rebalance_latency_max_ms: int | None = None
    rebalance_latency_total_ms: int | None = None
    commit_latency_avg_ms: int | None = None
    commit_latency_max_ms: int | None = None
    assigned_partitions: int | None = None
    poll_idle_ratio: float | None = None
    """The part of the time, from 0 to 1, that the application spent in poll()."""


class Mistake(Fact):
    """A bug in Coterie: a rule failed at an event. Please report it."""

    doing: str
    trace: str


class ClockSet(Fact):
    """The wall clock was set, or the machine slept; later times are `by_ms` later. `group_id` is empty.

    Add `by_ms` to the start of whatever has not ended yet to measure it.
    """

    by_ms: int


class RecordsSkipped(Fact):
    """The log has records of unknown types, counted by type. `group_id` is empty."""

    counts: Mapping[int, int]
