"""What a member is: its identity, what it subscribes to and owns, what it waits for, and its timers."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from re import Pattern
from typing import Any

from coterie.assignors import Assignor, Topic
from coterie.assignors import Member as Subscriber
from coterie.client.member.effects import COORDINATOR_LANE, Effects, SendRequest, StartTimer
from coterie.client.member.events import (
    Answer,
    CloseAsked,
    CoordinatorAnswered,
    HeartbeatAnswered,
    HeartbeatDue,
    ListenerAnswered,
    Offsets,
    PositionsAnswered,
    Subscribed,
    UnsubscribeAsked,
)
from coterie.client.member.member_settings import MemberSettings
from coterie.client.member.states import MemberState
from coterie.client.network.backoff import backoff_ms
from coterie.client.types import TopicPartition
from coterie.protocol.messages import NO_GENERATION

__all__ = [
    "AUTO_COMMIT",
    "CLOSE",
    "FIND_RETRY",
    "HEARTBEAT",
    "JOIN_RETRY",
    "PENDING_REQUEST",
    "PREPARE",
    "Member",
    "PendingRequest",
    "RequestKind",
    "resume_heartbeats",
    "start_heartbeats",
]


class RequestKind(StrEnum):
    COMMIT = "commit"
    COMMIT_POSITIONS = "commit of all positions"
    AUTO_COMMIT = "auto-commit"
    COMMIT_BEFORE_JOIN = "commit before the join"
    COMMIT_ON_CLOSE = "commit on close"
    COMMITTED = "question for committed offsets"


@dataclass(slots=True)
class PendingRequest:
    """A commit, or a question for committed offsets: who asked, until when it is tried, and where it stands."""

    number: int
    kind: RequestKind
    token: Hashable
    until_ms: int | None
    """None: sent once. Else retriable errors are retried until then."""
    offsets: Offsets
    partitions: Collection[TopicPartition]
    generation_id: int
    """A commit belongs to the generation in which it was asked, and is not repeated in another."""
    member_id: str
    failures: int = 0
    in_flight: bool = False
    sent_to: Any = None
    waits_until_ms: int | None = None
    """Backing off."""
    times_missing: int = 0
    """How often in a row fresh metadata did not have a partition that the coordinator does not know either."""

    @property
    def timer(self) -> str:
        return f"pending {self.number}"


@dataclass(slots=True, eq=False)
class Member:
    settings: MemberSettings
    state: MemberState = MemberState.UNJOINED
    state_since_ms: int = 0

    # who it is
    member_id: str = ""
    generation_id: int = NO_GENERATION
    protocol_name: str | None = None
    is_settled: bool = False
    """It has the assignment of its generation and no join is on its way: it may commit. Kafka's STABLE."""

    # what it reads
    subscribed: bool = False
    topics: frozenset[str] = frozenset()
    pattern: Pattern[str] | None = None
    joined_topics: frozenset[str] | None = None
    """What it said in its last join."""
    assigned: frozenset[TopicPartition] = frozenset()
    last_owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """What the last rebalance gave it, and which: eager assignors ask after it has been given up."""
    last_generation_id: int = NO_GENERATION

    # the rebalance
    rejoin_reason: str | None = None
    """Not None: it wants a rebalance, for this reason (KIP-800)."""
    is_prepared: bool = False
    """Commit and revocation before the join are done, however often the join is repeated (M10)."""
    is_told: bool = False
    """The listener was told about this rebalance's revocation."""
    waiting_for: Answer | None = None
    """The one answer that moves the rebalance on; any other is news of an older life."""
    failures: int = 0
    is_backing_off: bool = False
    stalled: bool = False
    """The caller of poll was given an error: it goes on with the next poll, not before."""
    given: frozenset[TopicPartition] = frozenset()
    """The assignment that is about to be taken."""

    # poll and listener
    polling: bool = False
    poll_deadline_ms: int = 0
    poll_late_since_ms: int | None = None
    """When max.poll.interval.ms was exceeded; None once poll is called again."""
    calling: ListenerAnswered | None = None
    failure: Exception | None = None
    """Why it was fenced."""

    # coordinator
    coordinator: Any = None
    finding: CoordinatorAnswered | None = None
    find_failures: int = 0
    is_finding_later: bool = False

    # heartbeat
    heartbeat_at_ms: int = 0
    session_deadline_ms: int = 0
    heartbeat_in_flight: HeartbeatAnswered | None = None
    heartbeat_failures: int = 0
    beat: SendRequest | None = None
    """The heartbeat of this generation, built once."""

    # leading
    subscribers: Sequence[Subscriber] = ()
    """All members of the generation, if this member leads; empty otherwise."""
    skips_assignment: bool = False
    group_topics: frozenset[str] = frozenset()
    snapshot: Mapping[str, Topic] | None = None
    """What the leader knew about the group's topics when it assigned; None if it does not lead."""
    metadata: Mapping[str, Topic] = field(default_factory=dict)
    is_stale: bool = False
    """The metadata has changed since the snapshot (M5)."""
    watched: frozenset[str] | None = frozenset()

    # commits and questions for committed offsets
    pending_requests: dict[int, PendingRequest] = field(default_factory=dict)
    pending_requests_given: int = 0
    unsent: list[PendingRequest] = field(default_factory=list)
    """Pending requests that can be sent as soon as the coordinator is known."""
    newest_commit: dict[TopicPartition, int] = field(default_factory=dict)
    auto_commit_at_ms: int | None = None
    auto_asked: PositionsAnswered | None = None
    auto_committed: Offsets | None = None

    # the end
    ending: UnsubscribeAsked | CloseAsked | None = None
    ending_error: Exception | None = None
    goodbye_is_said: bool = False
    leaving_lane: str = COORDINATOR_LANE
    next_subscription: Subscribed | None = None
    """Subscribed to while it was still unsubscribing."""

    @property
    def has_generation(self) -> bool:
        return self.generation_id != NO_GENERATION and self.member_id != ""

    @property
    def is_beating(self) -> bool:
        """Heartbeats pause from a join to its answer (M3)."""
        return self.has_generation and self.state is not MemberState.JOINING

    @property
    def is_closing(self) -> bool:
        return isinstance(self.ending, CloseAsked)

    @property
    def may_call(self) -> bool:
        """The user is here: a listener can be called."""
        return (self.polling or self.ending is not None) and self.calling is None

    @property
    def reason_to_rejoin(self) -> str | None:
        """Why it wants a rebalance, if it does. Two of the reasons are looked at again each time, so none gets lost."""
        if self.is_stale:
            return "cached metadata has changed"
        if self.joined_topics is not None and self.joined_topics is not self.topics:
            if self.joined_topics != self.topics:
                return "subscription has changed"
            self.joined_topics = self.topics
        return self.rejoin_reason

    def assignor(self, name: str | None) -> Assignor | None:
        return next((assignor for assignor in self.settings.assignors if assignor.name == name), None)

    def backoff_ms(self, failures: int) -> int:
        """Return how long to wait after `failures` failures before this one."""
        settings = self.settings
        return round(backoff_ms(failures + 1, settings.retry_backoff_ms, settings.retry_backoff_max_ms, settings.rng))


# --- timers -----------------------------------------------------------------------------------------------------------

HEARTBEAT = "heartbeat"
FIND_RETRY = "find"
JOIN_RETRY = "join"
PREPARE = "prepare"
AUTO_COMMIT = "auto-commit"
CLOSE = "close"
PENDING_REQUEST = "pending"

DUE = HeartbeatDue()


def start_heartbeats(member: Member, now_ms: int) -> Effects:
    """Start the heartbeat timer: with the answer to a join, before the sync (M3)."""
    member.session_deadline_ms = now_ms + member.settings.session_timeout_ms
    member.heartbeat_at_ms = now_ms + member.settings.heartbeat_interval_ms
    member.heartbeat_in_flight = None
    member.heartbeat_failures = 0
    return [StartTimer(HEARTBEAT, member.heartbeat_at_ms, DUE)]


def resume_heartbeats(member: Member, now_ms: int) -> Effects:
    """A coordinator was found again: its session has been running, so the next one goes out when it was due."""
    member.session_deadline_ms = now_ms + member.settings.session_timeout_ms
    member.heartbeat_at_ms = min(member.heartbeat_at_ms, now_ms + member.settings.heartbeat_interval_ms)
    return [StartTimer(HEARTBEAT, max(member.heartbeat_at_ms, now_ms), DUE)]
