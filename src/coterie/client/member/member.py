"""The state of a member: identity, subscription, assignment, pending requests and timers; and its settings."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from re import Pattern
from typing import Any, Self

from coterie.assignors import Assignor, Topic, assignor
from coterie.assignors import Member as Subscriber
from coterie.client.member.effects import COORDINATOR_LANE, Effects, SendRequest, StartTimer
from coterie.client.member.events import (
    Answer,
    CloseAsked,
    CoordinatorAnswered,
    HeartbeatDue,
    ListenerAnswered,
    Offsets,
    PositionsAnswered,
    Subscribed,
    UnsubscribeAsked,
)
from coterie.client.member.states import IN_A_REBALANCE, ApiName, ErrorAction, MemberState, on_error
from coterie.client.network.backoff import backoff_ms
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError, ErrorCode
from coterie.protocol.messages import NO_GENERATION
from coterie.settings.consumer_settings import ConsumerSettings, heartbeat_problem

_DEFAULTS = ConsumerSettings()


def _default_assignors() -> Sequence[Assignor]:
    return [assignor(name) for name in _DEFAULTS.partition_assignment_strategy]


@dataclass(frozen=True, slots=True)
class MemberSettings:
    group_id: str
    assignors: Sequence[Assignor] = field(default_factory=_default_assignors)
    """partition.assignment.strategy, in order of preference. Cooperative only if every one of them is (KIP-429)."""
    group_instance_id: str | None = _DEFAULTS.group_instance_id
    group_remote_assignor: str | None = _DEFAULTS.group_remote_assignor
    """The assignor of the broker; only in the protocol of KIP-848."""
    client_id: str = _DEFAULTS.client_id
    client_rack: str | None = None
    session_timeout_ms: int = _DEFAULTS.session_timeout_ms
    heartbeat_interval_ms: int = _DEFAULTS.heartbeat_interval_ms
    max_poll_interval_ms: int = _DEFAULTS.max_poll_interval_ms
    """It is also the rebalance timeout that the coordinator gets."""
    request_timeout_ms: int = _DEFAULTS.request_timeout_ms
    retry_backoff_ms: int = _DEFAULTS.retry_backoff_ms
    retry_backoff_max_ms: int = _DEFAULTS.retry_backoff_max_ms
    enable_auto_commit: bool = _DEFAULTS.enable_auto_commit
    auto_commit_interval_ms: int = _DEFAULTS.auto_commit_interval_ms
    rng: float = 0.5
    """A random number between 0 and 1. Back-offs are up to 20 % shorter or longer by it, so that members spread out."""

    def __post_init__(self) -> None:
        names = [assignor.name for assignor in self.assignors]
        if not names:
            raise CoterieError("partition.assignment.strategy is empty: a member needs at least one assignor")
        if len(set(names)) != len(names):
            raise CoterieError(f"partition.assignment.strategy names an assignor twice: {', '.join(names)}")
        problem = heartbeat_problem(self.heartbeat_interval_ms, self.session_timeout_ms)
        if problem:
            raise CoterieError(problem)

    @classmethod
    def of(cls, settings: ConsumerSettings, group_id: str, assignors: Sequence[Assignor], rng: float) -> Self:
        """Return the settings of a consumer's membership."""
        return cls(
            group_id=group_id,
            assignors=assignors,
            group_instance_id=settings.group_instance_id,
            group_remote_assignor=settings.group_remote_assignor,
            client_id=settings.client_id,
            client_rack=settings.client_rack or None,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            request_timeout_ms=settings.request_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            retry_backoff_max_ms=settings.retry_backoff_max_ms,
            enable_auto_commit=settings.commits_automatically,
            auto_commit_interval_ms=settings.auto_commit_interval_ms,
            rng=rng,
        )

    @property
    def is_cooperative(self) -> bool:
        """True if all assignors are cooperative. The default list (range, cooperative-sticky) is not: range cannot."""
        return all(assignor.cooperative for assignor in self.assignors)


class RequestKind(StrEnum):
    COMMIT = "commit"
    COMMIT_POSITIONS = "commit of all positions"
    AUTO_COMMIT = "auto-commit"
    COMMIT_BEFORE_JOIN = "commit before the join"
    COMMIT_BEFORE_REVOCATION = "commit before the revocation"
    COMMIT_ON_CLOSE = "commit on close"
    COMMITTED = "question for committed offsets"


@dataclass(slots=True)
class PendingRequest:
    """A commit, or a request for committed offsets: its token, its deadline and its progress."""

    number: int
    kind: RequestKind
    token: Hashable
    until_ms: int | None
    """None: sent once. Else retriable errors are retried until then."""
    offsets: Offsets
    partitions: Collection[TopicPartition]
    generation_id: int
    """The generation of its member when it was asked, or the member epoch of the last attempt."""
    member_id: str
    owned: frozenset[TopicPartition] = frozenset()
    """The partitions of the commit that the member owned when it was asked."""
    failures: int = 0
    in_flight: bool = False
    sent_to: Any = None
    waits_until_ms: int | None = None
    """The end of the back-off; None if it does not wait."""
    times_missing: int = 0
    """The number of times in a row that new metadata did not have a partition that the coordinator does not know
    either."""

    @property
    def timer(self) -> str:
        return f"pending {self.number}"


@dataclass(slots=True, eq=False)
class MemberBase:
    """The state of a member in either protocol: identity, subscription, coordinator, pending requests.

    The methods that raise NotImplementedError are the questions that the shared rules ask, and that each protocol
    answers in its own way.
    """

    settings: MemberSettings
    state: StrEnum
    state_since_ms: int = 0

    # who it is
    member_id: str = ""
    generation_id: int = NO_GENERATION
    """The generation; the member epoch in the protocol of KIP-848."""
    lost_identity: tuple[str, int] | None = None
    """The member id and the generation that it had last, if it has lost them."""
    is_settled: bool = False
    """It has the assignment of its generation and no join is in flight: it may commit. Kafka's STABLE."""

    # what it reads
    subscribed: bool = False
    topics: frozenset[str] = frozenset()
    pattern: Pattern[str] | None = None
    assigned: frozenset[TopicPartition] = frozenset()
    given: frozenset[TopicPartition] = frozenset()
    """The assignment that is about to be taken."""

    # the rebalance
    waiting_for: Answer | None = None
    """The one answer that moves the rebalance on; any other is news of an older life."""
    failures: int = 0
    is_backing_off: bool = False
    stalled: bool = False
    """True if poll has raised an error: the member continues with the next poll, not before."""

    # poll and listener
    polling: bool = False
    poll_deadline_ms: int = 0
    poll_late_since_ms: int | None = None
    """The time at which max.poll.interval.ms was exceeded; None once poll is called again."""
    calling: ListenerAnswered | None = None
    failure: Exception | None = None
    """The reason why it was fenced."""

    # coordinator
    coordinator: Any = None
    finding: CoordinatorAnswered | None = None
    find_failures: int = 0
    is_finding_later: bool = False

    # heartbeat
    heartbeat_at_ms: int = 0
    heartbeat_in_flight: Answer | None = None
    heartbeat_failures: int = 0

    # the cluster
    metadata: Mapping[str, Topic] = field(default_factory=dict)
    group_topics: frozenset[str] = frozenset()
    """Topics that it watches beside its own: those of the whole group, if it leads."""
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
    next_subscription: Subscribed | None = None
    """The subscription that was made while the member was still unsubscribing."""

    @property
    def has_generation(self) -> bool:
        return self.generation_id != NO_GENERATION and self.member_id != ""

    @property
    def identity(self) -> tuple[str, int]:
        """The member id and the generation of the last generation that it was in, also if it has lost it since.

        Records that the user processes are of that generation. A transaction that commits their offsets without a
        generation would not be refused, though other members have the partitions by now (TO2).
        """
        if self.has_generation or self.lost_identity is None:
            return self.member_id, self.generation_id
        return self.lost_identity

    def keep_lost_identity(self) -> None:
        """The generation is about to be lost."""
        if self.has_generation:
            self.lost_identity = self.member_id, self.generation_id

    @property
    def is_closing(self) -> bool:
        return isinstance(self.ending, CloseAsked)

    @property
    def may_call(self) -> bool:
        """The user is here: a listener can be called."""
        return (self.polling or self.ending is not None) and self.calling is None

    def backoff_ms(self, failures: int) -> int:
        """Return how long to wait after `failures` failures before this one."""
        settings = self.settings
        return round(backoff_ms(failures + 1, settings.retry_backoff_ms, settings.retry_backoff_max_ms, settings.rng))

    # --- what the shared rules ask ------------------------------------------------------------------------------------

    @property
    def is_stable(self) -> bool:
        """It is a member, and has all that it is assigned."""
        raise NotImplementedError

    @property
    def needs_coordinator(self) -> bool:
        """True if a request waits for the coordinator."""
        raise NotImplementedError

    def coordinator_found(self, now_ms: int) -> Effects:
        raise NotImplementedError

    def coordinator_lost(self) -> None:
        raise NotImplementedError

    @property
    def is_rebalancing(self) -> bool:
        """The old generation is over and the new one is not there yet: nothing can be committed."""
        raise NotImplementedError

    @property
    def may_auto_commit(self) -> bool:
        """Return whether a subscribed member may auto-commit now. A rebalance that begins commits by itself."""
        raise NotImplementedError

    def may_still_commit(self, pending: PendingRequest) -> bool:
        """Return whether a commit that was requested earlier can be sent, or sent again, now."""
        raise NotImplementedError

    @property
    def asks_as(self) -> tuple[str | None, int]:
        """The member id and epoch that a question for committed offsets carries (KIP-848)."""
        raise NotImplementedError

    def on_error(self, api: ApiName, code: ErrorCode) -> ErrorAction:
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class MemberData(MemberBase):
    """A member of the classic protocol."""

    state: MemberState = MemberState.UNJOINED
    protocol_name: str | None = None
    joined_topics: frozenset[str] | None = None
    """The topics of its last JoinGroup."""
    last_owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The last assignment and its generation, for the user data of eager assignors."""
    last_generation_id: int = NO_GENERATION

    # the rebalance
    rejoin_reason: str | None = None
    """The reason for which it wants a rebalance (KIP-800); None if it does not."""
    is_prepared: bool = False
    """Commit and revocation before the join are done, however often the join is repeated (M10)."""
    is_revocation_announced: bool = False
    """The listener was called for this rebalance's revocation."""

    # heartbeat
    session_deadline_ms: int = 0
    heartbeat_request: SendRequest | None = None
    """The heartbeat of this generation, built once."""

    # leading
    subscribers: Sequence[Subscriber] = ()
    """All members of the generation, if this member leads; empty otherwise."""
    skips_assignment: bool = False
    snapshot: Mapping[str, Topic] | None = None
    """The metadata of the group's topics at the assignment; None if it does not lead."""
    is_stale: bool = False
    """The metadata has changed since the snapshot (M5)."""

    # the end
    leave_is_sent: bool = False
    leaving_lane: str = COORDINATOR_LANE

    @property
    def is_beating(self) -> bool:
        """Heartbeats pause from a join to its answer (M3)."""
        return self.has_generation and self.state is not MemberState.JOINING

    @property
    def reason_to_rejoin(self) -> str | None:
        """Return why it wants a rebalance, if it does. Two of the reasons are checked again each time."""
        if self.is_stale:
            return "cached metadata has changed"
        if self.joined_topics is not None and self.joined_topics is not self.topics:
            if self.joined_topics != self.topics:
                return "subscription has changed"
            self.joined_topics = self.topics
        return self.rejoin_reason

    def assignor(self, name: str | None) -> Assignor | None:
        return next((assignor for assignor in self.settings.assignors if assignor.name == name), None)

    # --- what the shared rules ask ------------------------------------------------------------------------------------

    @property
    def is_stable(self) -> bool:
        return self.state is MemberState.STABLE

    @property
    def needs_coordinator(self) -> bool:
        return (
            self.has_generation
            or bool(self.pending_requests)
            or self.state is MemberState.JOINING
            or (
                self.polling
                and self.subscribed
                and not self.stalled
                and self.state in _WAITING_TO_JOIN
                and self.reason_to_rejoin is not None
            )
        )

    def coordinator_found(self, now_ms: int) -> Effects:
        self.heartbeat_request = None
        return resume_heartbeats(self, now_ms) if self.is_beating else []

    def coordinator_lost(self) -> None:
        self.heartbeat_request = self.heartbeat_in_flight = None

    @property
    def is_rebalancing(self) -> bool:
        return self.state in IN_A_REBALANCE

    @property
    def may_auto_commit(self) -> bool:
        return self.state is MemberState.STABLE and self.reason_to_rejoin is None

    def may_still_commit(self, pending: PendingRequest) -> bool:
        """A commit belongs to the generation in which it was asked, and is not repeated in another."""
        return self.is_settled and (pending.generation_id, pending.member_id) == (self.generation_id, self.member_id)

    @property
    def asks_as(self) -> tuple[str | None, int]:
        return None, NO_GENERATION

    def on_error(self, api: ApiName, code: ErrorCode) -> ErrorAction:
        return on_error(api, code)


_WAITING_TO_JOIN = frozenset({MemberState.UNJOINED, MemberState.STABLE})


# --- timers -----------------------------------------------------------------------------------------------------------

HEARTBEAT = "heartbeat"
FIND_RETRY = "find"
JOIN_RETRY = "join"
PREPARE = "prepare"
AUTO_COMMIT = "auto-commit"
CLOSE = "close"
PENDING_REQUEST = "pending"

DUE = HeartbeatDue()


def start_heartbeats(member: MemberData, now_ms: int) -> Effects:
    """Start the heartbeat timer: with the answer to a join, before the sync (M3)."""
    member.session_deadline_ms = now_ms + member.settings.session_timeout_ms
    member.heartbeat_at_ms = now_ms + member.settings.heartbeat_interval_ms
    member.heartbeat_in_flight = None
    member.heartbeat_failures = 0
    return [StartTimer(HEARTBEAT, member.heartbeat_at_ms, DUE)]


def resume_heartbeats(member: MemberData, now_ms: int) -> Effects:
    """A coordinator was found again: its session has been running, so the next one goes out when it was due."""
    member.session_deadline_ms = now_ms + member.settings.session_timeout_ms
    member.heartbeat_at_ms = min(member.heartbeat_at_ms, now_ms + member.settings.heartbeat_interval_ms)
    return [StartTimer(HEARTBEAT, max(member.heartbeat_at_ms, now_ms), DUE)]
