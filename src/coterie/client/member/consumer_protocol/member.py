"""The state of a member of a KIP-848 group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from coterie.client.member.consumer_protocol.states import (
    ACKNOWLEDGING,
    IN_THE_GROUP,
    JOINING,
    PREPARE_LEAVING,
    RECONCILING,
    STABLE,
    ConsumerMemberState,
    on_error,
)
from coterie.client.member.effects import Effects
from coterie.client.member.events import CloseAsked, TopicIdsAnswered
from coterie.client.member.member import MemberBase, PendingRequest
from coterie.client.member.states import ApiName, ErrorAction
from coterie.errors import ErrorCode
from coterie.protocol.messages import NO_GENERATION

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member leaves for a while: its partitions stay its own until its session ends."""

RESOLVE_RETRY = "resolve"

TopicIdPartitions = Mapping[UUID, frozenset[int]]


@dataclass(slots=True)
class SentFields:
    """The values that the coordinator was last sent. None: the next heartbeat sends the value, or sends it again."""

    topics: frozenset[str] | None = None
    remote_pattern: str | None = None
    owned: TopicIdPartitions | None = None
    knows_settings: bool = False
    """Rebalance timeout, assignor and rack, which never change."""


@dataclass(slots=True)
class Reconciliation:
    """The target that is being taken: its number, and the part of it whose topics are known."""

    number: int
    partitions: TopicIdPartitions
    is_taken: bool = False
    """True if nothing is left to revoke, and the listener is called for the new partitions."""


@dataclass(slots=True, eq=False)
class ConsumerMemberData(MemberBase):
    """A member of a KIP-848 group. `generation_id` is the member epoch, and `is_settled` that it has one."""

    state: ConsumerMemberState = ConsumerMemberState.UNSUBSCRIBED
    remote_pattern: str | None = None
    """The pattern that the broker matches, in RE2."""

    # heartbeat
    heartbeat_interval_ms: int = 0
    """The interval that the coordinator returned; 0 before its first answer."""
    heartbeat_sent_ms: int = 0
    looks_at_ms: int = 0
    """The time at which the heartbeat timer fires."""
    wants_heartbeat: bool = False
    """One is due, or its state has to be reported at once."""
    sent: SentFields = field(default_factory=SentFields)
    may_be_member: bool = False
    """A join was sent, and nothing says that the coordinator does not have this member."""
    releases_instance: bool = False
    """Its own earlier join holds the instance id: it is released before the next join."""

    # the assignment
    target: TopicIdPartitions = field(default_factory=dict)
    target_number: int = 0
    """The number of the target since the join; 0: there is none yet."""
    is_target_confirmed: bool = False
    """The coordinator has answered since the member last reported what it owns."""
    owned: TopicIdPartitions = field(default_factory=dict)
    """The partitions that it reports, by topic id. `assigned` has them by name, without those just revoked."""
    reconciled_number: int = 0
    """The target that `owned` comes from."""
    reconciling: Reconciliation | None = None
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    resolving: TopicIdsAnswered | None = None
    is_resolving_later: bool = False
    unknown_reported: int = 0
    """The number of the last target whose unknown topics were reported."""

    @property
    def is_beating(self) -> bool:
        return self.state in IN_THE_GROUP or (self.state is PREPARE_LEAVING and self.has_generation)

    @property
    def interval_ms(self) -> int:
        return self.heartbeat_interval_ms or self.settings.heartbeat_interval_ms

    @property
    def is_static(self) -> bool:
        return self.settings.group_instance_id is not None

    @property
    def leave_epoch(self) -> int:
        """A static member stays in the group, unless close says that it leaves (KIP-1092)."""
        leaves_for_good = isinstance(self.ending, CloseAsked) and self.ending.leave is True
        return STATIC_LEAVE_EPOCH if self.is_static and not leaves_for_good else LEAVE_EPOCH

    @property
    def resolved(self) -> TopicIdPartitions:
        """The part of the target whose topics have a name."""
        return {topic_id: numbers for topic_id, numbers in self.target.items() if topic_id in self.topic_names}

    @property
    def unresolved(self) -> frozenset[UUID]:
        return frozenset(topic_id for topic_id in self.target if topic_id not in self.topic_names)

    @property
    def is_reconciled(self) -> bool:
        return self.reconciled_number == self.target_number and self.owned == self.target

    # --- what the shared rules ask ------------------------------------------------------------------------------------

    @property
    def is_stable(self) -> bool:
        return self.state is STABLE

    @property
    def needs_coordinator(self) -> bool:
        return self.has_generation or bool(self.pending_requests) or (self.state is JOINING and not self.stalled)

    def coordinator_found(self, _now_ms: int) -> Effects:
        """The coordinator has changed: send a heartbeat to the new one at once."""
        self.wants_heartbeat = self.is_beating
        return []

    def coordinator_lost(self) -> None:
        self.heartbeat_in_flight = None
        self.sent = SentFields()

    @property
    def is_rebalancing(self) -> bool:
        """Members keep their partitions while they reconcile, and may commit."""
        return False

    @property
    def may_auto_commit(self) -> bool:
        """A reconciliation that revokes commits by itself."""
        return self.state in {STABLE, ACKNOWLEDGING} or (self.state is RECONCILING and self.reconciling is None)

    def may_still_commit(self, pending: PendingRequest) -> bool:
        """Return whether a commit may be sent with the current epoch: only while it owns the partitions."""
        if not self.has_generation or not pending.owned <= self.assigned:
            return False
        pending.generation_id = self.generation_id
        return True

    @property
    def asks_as(self) -> tuple[str | None, int]:
        return (self.member_id, self.generation_id) if self.has_generation else (None, NO_GENERATION)

    def on_error(self, api: ApiName, code: ErrorCode) -> ErrorAction:
        return on_error(api, code)
