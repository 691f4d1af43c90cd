"""Requests, replies and records of the group protocol, without versions.

An API file reshapes what arrives on the wire into these and back, so that a rule sees one form, whatever the age of
the client. Where an old version behaves differently, the difference is a field here: `needs_member_id`, not a version.

Requests and replies are not frozen: a frozen one costs four times as much to build, and they are on the hot path.
They are not changed after they are built.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.api import NOT_ASKED
from coterie.protocol.consumer_group_records import ConsumerGroupRecord
from coterie.structs import DataStruct

Token = Hashable
"""The address of a reply. Only the broker's node knows which connection and version it means."""

NO_GENERATION = -1
CONSUMER = "consumer"
"""The protocol type of consumers; Connect and others use their own, and their bytes are not looked into."""
MAX_REASON = 255
"""Characters a client says of why it joins or leaves (KIP-800)."""


# --- requests -------------------------------------------------------------------------------------------------------


class Protocol(DataStruct):
    """An assignor of a member, with its subscription."""

    name: str
    metadata: bytes


class JoinGroup(DataStruct):
    token: Token
    group_id: str
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: Sequence[Protocol]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    fresh_id: str
    """A new UUID, in case the member needs an id: the caller makes it, since rules have no randomness."""
    client_id: str = ""
    client_host: str = ""
    reason: str | None = None
    needs_member_id: bool = True
    """Version 4 and later (KIP-394): a dynamic newcomer is given its id first and has to come back with it."""
    can_skip_assignment: bool = True
    """Version 9 and later (KIP-814): a static leader that returns gets the answer that it leads and need not assign."""


class SyncGroup(DataStruct):
    token: Token
    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: int
    assignments: Sequence[tuple[str, bytes]] = ()
    protocol_type: str | None = None
    protocol_name: str | None = None
    needs_protocol: bool = False
    """Version 5 and later: protocol type and name must be given."""


class Heartbeat(DataStruct):
    token: Token
    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: int


class ConsumerGroupHeartbeat(DataStruct):
    """A member of a KIP-848 group reports its state. A field that is None, or -1, is unchanged."""

    token: Token
    group_id: str
    member_id: str
    member_epoch: int
    """The member epoch; 0: it joins; -1: it leaves; -2: a static member leaves for a while."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: Sequence[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Mapping[UUID, Sequence[int]] | None = None
    fresh_id: str = ""
    """The id of a member that has none. The caller makes it, since rules have no randomness."""
    client_id: str = ""
    client_host: str = ""
    needs_member_id: bool = True
    """Version 1 and later: the client makes its own id."""
    may_describe: Callable[[str], bool] | None = None
    """Says of a topic whether the client may know of it; None: it may know of all."""


class LeavingMember(DataStruct):
    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeaveGroup(DataStruct):
    token: Token
    group_id: str
    members: Sequence[LeavingMember]


class CommitPartition(DataStruct):
    """One partition of a commit. The broker, which knows the topics, sets `error` beforehand (rule 21)."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    topic_id: UUID | None = None
    error: ErrorCode = ErrorCode.NONE


class OffsetCommit(DataStruct):
    """OffsetCommit, and TxnOffsetCommit if `producer_id` is given: that one is invisible until its marker (rule 22)."""

    token: Token
    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: int
    partitions: Sequence[CommitPartition]
    retention_ms: int | None = None
    producer_id: int | None = None
    producer_epoch: int = -1
    knows_group_id_not_found: bool = True
    """OffsetCommit version 9 and later; before, a missing group is ILLEGAL_GENERATION."""


class OffsetFetch(DataStruct):
    token: Token
    group_id: str
    topics: Sequence[tuple[str, Sequence[int]]] | None
    """None: everything the group has committed."""
    require_stable: bool = False
    topic_ids: Sequence[UUID | None] | None = None
    """Version 10: the ids of `topics`, in their order; the broker fills in the names (rule 22)."""
    member_id: str | None = None
    member_epoch: int = -1
    """Version 9 and later: looked at by consumer groups alone (K20)."""


class OffsetDelete(DataStruct):
    token: Token
    group_id: str
    topics: Sequence[tuple[str, Sequence[int]]]


class DeleteGroup(DataStruct):
    token: Token
    group_id: str


class DescribeGroup(DataStruct):
    token: Token
    group_id: str
    asks_rights: bool = False
    """True if the client asked for the authorized operations of all groups in the request."""


class DescribeConsumerGroup(DataStruct):
    token: Token
    group_id: str


class ListGroups(DataStruct):
    token: Token
    states: Sequence[str] = ()
    types: Sequence[str] = ()


class TransactionMarker(DataStruct):
    """The end of a transaction, for one partition of `__consumer_offsets`."""

    token: Token
    producer_id: int
    producer_epoch: int
    committed: bool
    partition: int = 0
    coordinator_epoch: int = 0
    is_strict: bool = False
    """The marker must have a higher epoch than the producer's last batch, unless nothing is open (KIP-890)."""


class TopicsDeleted(DataStruct):
    """Topics were deleted; so are the offsets committed for them (rule 23)."""

    topics: frozenset[str]


# --- replies --------------------------------------------------------------------------------------------------------
# Heartbeat, DeleteGroup and TransactionMarker are answered by an ErrorCode alone.


class JoinedMember(DataStruct):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinedGroup(DataStruct):
    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


class SyncedGroup(DataStruct):
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class ConsumerGroupHeartbeatAnswer(DataStruct):
    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[UUID, Sequence[int]] | None = None
    """None: the member keeps what it has."""


class LeftMember(DataStruct):
    member_id: str
    instance_id: str | None
    error: ErrorCode


class LeftGroup(DataStruct):
    error: ErrorCode
    members: Sequence[LeftMember] = ()


class OffsetsCommitted(DataStruct):
    """One error per partition, in the order of the request."""

    partitions: Sequence[CommitPartition]
    errors: Sequence[ErrorCode]


class FetchedOffset(DataStruct):
    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: UUID | None = None


class OffsetsFetched(DataStruct):
    group_id: str
    error: ErrorCode
    partitions: Sequence[FetchedOffset] = ()


class DeletedPartition(DataStruct):
    topic: str
    partition: int
    error: ErrorCode


class OffsetsDeleted(DataStruct):
    error: ErrorCode
    partitions: Sequence[DeletedPartition] = ()


class DescribedMember(DataStruct):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(DataStruct):
    """`exists` is False for an unknown group: `Dead` to old clients, GROUP_ID_NOT_FOUND from version 6 on."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: Sequence[DescribedMember] = ()
    error: ErrorCode = ErrorCode.NONE
    exists: bool = True
    authorized_operations: int = NOT_ASKED
    """The operations that the client is authorized for, as bits, if it asked."""


class DescribedConsumerMember(DataStruct):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: Sequence[str]
    pattern: str
    assignment: Mapping[UUID, Sequence[int]]
    """Partitions that are assigned, or still to be revoked."""
    target: Mapping[UUID, Sequence[int]]
    is_classic: bool = False


class DescribedConsumerGroup(DataStruct):
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Sequence[DescribedConsumerMember] = ()


class ListedGroup(DataStruct):
    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


class GroupsListed(DataStruct):
    error: ErrorCode
    groups: Sequence[ListedGroup] = ()


# --- records of __consumer_offsets (semantics 10) ---------------------------------------------------------------------


@dataclass(slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None
    """Set only if the commit has its own retention (OffsetCommit 2-4)."""
    topic_id: UUID | None = None
    position: int = field(default=-1, compare=False)
    """Its offset in the log, which is not part of the record. The later of two commits counts (rule 22)."""


class OffsetRecord(DataStruct):
    """An offset of a group; None is a tombstone."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


class StoredMember(DataStruct):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(DataStruct):
    protocol_type: str
    generation_id: int
    protocol_name: str | None = None
    leader_id: str | None = None
    state_timestamp_ms: int = -1
    members: Sequence[StoredMember] = ()


class GroupRecord(DataStruct):
    """A GroupMetadataValue of `__consumer_offsets` and its key; None is a tombstone."""

    group_id: str
    value: StoredGroup | None


Record = OffsetRecord | GroupRecord | ConsumerGroupRecord
