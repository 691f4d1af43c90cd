"""A consumer group: its epochs, its members, their current assignments and the target assignment (section 1).

`apply_record` is the one place where a record changes the group. A rule applies a record when it asks for its write, so
that the next request sees it; the request is answered when the record is durable. If the write fails, `abandon` makes
the group again from the records that are durable (`durable`) and those still on their way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any
from uuid import UUID

from coterie.coordinator.classic.effects import Arm, Effects, Reply, TimerKey, Written
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.member_bytes import OVERHEAD
from coterie.coordinator.classic.states import ClassicGroupState
from coterie.coordinator.consumer.states import GroupState, MemberState
from coterie.coordinator.consumer.topic_image import NoTopics, TopicsImage
from coterie.coordinator.offsets.offsets_group import HeldBytes, OffsetsGroup
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.facts import Fact
from coterie.protocol.commit_rows import OffsetRows
from coterie.protocol.consumer_group_records import (
    CURRENT,
    EPOCH,
    MEMBER,
    PARTITION_METADATA,
    REGEX,
    TARGET,
    TARGET_EPOCH,
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    CurrentAssignment,
    MemberMetadata,
    ResolvedPattern,
    TargetAssignment,
    TargetEpoch,
    TopicPartitions,
    Value,
)
from coterie.protocol.messages import (
    CONSUMER,
    CommittedOffset,
    ListedGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetRecord,
    Record,
    Token,
)
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings
from coterie.structs import DataStruct, field, replace

NEVER = 1 << 62
JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
NEW_GROUP_EPOCH = 1
"""The epochs of a group that has no records of them (K1)."""
WHILE_COMPUTING_MS = 500
"""The heartbeat interval of a member while the target assignment is computed."""
_PARTITION_BYTES = 64
_SESSION, _REVOCATION, _REGEX, _TARGET, _JOIN, _SYNC = "session", "revocation", "regex", "target", "join", "sync"

Target = Mapping[UUID, Sequence[int]]
Assigned = Mapping[UUID, Mapping[int, int]]
"""Topic to partition to the assignment epoch at which the member got it."""
_NOTHING: Mapping[int, int] = {}


class RevocationDue(DataStruct):
    """A member has had its rebalance timeout to give up partitions (K12)."""

    group_id: str
    member_id: str
    member_epoch: int


class ConsumerSessionDue(DataStruct):
    """The timer of a member's session. Heartbeats only move the deadline, which is checked when the timer fires."""

    group_id: str
    member_id: str


class RejoinDue(DataStruct):
    """The rebalance timeout of a classic member that was told to rejoin is over (K25)."""

    group_id: str
    member_id: str


class SyncDue(DataStruct):
    """A classic member has joined, and has had its rebalance timeout to sync (K25)."""

    group_id: str
    member_id: str


class Upgrade(DataStruct):
    """The classic group whose place a consumer group takes (K24). It returns if that cannot be written."""

    classic: Group
    state: ClassicGroupState
    records: Sequence[Record] = ()


@dataclass(slots=True, kw_only=True)
class ConsumerGroupWritten(Written):
    """Records of a consumer group, and the answers that wait for them."""

    records: Sequence[Record] = ()
    replies: list[tuple[Token, object, object]] = dataclass_field(default_factory=list)
    """Token, answer, and the request: its kind says how an error is answered."""
    facts: list[Fact] = dataclass_field(default_factory=list)


class ConsumerGroupMember(DataStruct):
    member_id: str
    metadata: MemberMetadata
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=dict)
    pending_revocation: Assigned = field(default_factory=dict)

    @property
    def is_away(self) -> bool:
        """Return whether it is a static member that has left for a while."""
        return self.epoch == STATIC_LEAVE_EPOCH

    @property
    def is_classic(self) -> bool:
        """Return whether it uses the classic protocol inside of the group (section 8)."""
        return self.metadata.classic_session_timeout_ms is not None


class Session(DataStruct):
    deadline_ms: int = NEVER
    alarm_ms: int = NEVER
    restored_until_ms: int = 0
    """The deadline that it was given when the group was loaded."""
    join_by_ms: int = NEVER
    """The time by which a classic member that was told to rejoin must have joined."""
    sync_by_ms: int = NEVER
    """The time by which a classic member that has joined must sync."""


class KnownMembers(DataStruct):
    """The members as assignors see them, kept while no topic changes (`target_assignment.py`)."""

    version: int | None = None
    """The version of the topic image that they were made with."""
    members: dict[str, Any] = field(default_factory=dict)


class ConsumerGroup(OffsetsGroup):
    __slots__ = (
        "_reconciled",
        "_subscribed",
        "_topic_members",
        "assigned_ms",
        "assignment_epoch",
        "classic_members",
        "classic_protocols",
        "computing",
        "configs",
        "durable",
        "failed_epoch",
        "group_epoch",
        "holders",
        "image",
        "image_version",
        "is_deleted",
        "is_rebalancing",
        "known_members",
        "last_written",
        "members",
        "metadata_hash",
        "pattern_members",
        "regex_version",
        "resolved",
        "resolving",
        "sessions",
        "targets",
        "tried_ms",
        "unwritten",
        "upgrade",
    )

    def __init__(
        self,
        group_id: str,
        settings: GroupCoordinatorSettings,
        wall: WallClock | None = None,
        held_in_all: HeldBytes | None = None,
        image: TopicsImage | None = None,
        configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`configs` are those of all groups, by their names (K29)."""
        super().__init__(group_id, settings, wall, held_in_all)
        self.image: TopicsImage = NoTopics() if image is None else image
        self.configs: Mapping[str, Mapping[str, str]] = {} if configs is None else configs
        self.durable: dict[tuple[int, str], Value] = {}  # the last value of each key
        self.unwritten: list[ConsumerGroupWritten] = []  # in order
        self.sessions: dict[str, Session] = {}
        self.is_deleted = False
        self.image_version: int | None = None  # of the image that the metadata hash was compared with last
        self.resolving = False  # the regular expressions are about to be resolved
        self.regex_version: int | None = None  # of the image that they were matched with last
        self.is_rebalancing = False  # the fact that the rebalance has ended was not emitted yet
        self.upgrade: Upgrade | None = None  # until it is durable
        self.known_members = KnownMembers()
        self._clear()

    def _clear(self) -> None:
        self.group_epoch = self.assignment_epoch = NEW_GROUP_EPOCH
        self.metadata_hash = 0
        self.assigned_ms = 0  # when the target was computed, by the wall clock; 0: never
        self.members: dict[str, ConsumerGroupMember] = {}
        self.static = {}
        self.targets: dict[str, Target] = {}
        self.resolved: dict[str, ResolvedPattern] = {}
        self.pattern_members: dict[str, int] = {}  # regular expression -> how many members subscribe to it
        self.classic_members = 0
        self.classic_protocols: dict[str, int] = {}  # name -> how many classic members can use it
        self.holders: dict[UUID, dict[int, str]] = {}  # who has a partition assigned, or has still to give it up
        self.last_written: dict[str, Sequence[TopicPartitions]] = {}
        """The assignment of each member as it was last written. The next record often has the same, and a new epoch."""
        self._subscribed: frozenset[str] | None = None
        self._topic_members: dict[str, int] = {}  # topic -> how many members name it
        self._reconciled = 0  # how many members are
        self.computing: object | None = None  # the computation of a target that is under way (`target_assignment.py`)
        self.tried_ms = 0  # when the last one began, by the wall clock; 0: never
        self.failed_epoch = 0  # the group epoch for which the assignor has failed; 0: none

    # --- asking -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        if self.is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        return GroupState.STABLE if self.all_reconciled() else GroupState.RECONCILING

    def all_reconciled(self) -> bool:
        return self._reconciled == len(self.members)

    def is_reconciled(self, member: ConsumerGroupMember) -> bool:
        return member.state is MemberState.STABLE and member.epoch == self.assignment_epoch

    @property
    def is_dead(self) -> bool:
        return self.is_deleted or not (
            self.members or self.durable or self.unwritten or self.is_in_log or self.unwritten_commits
        )

    @property
    def is_empty(self) -> bool:
        return not self.members and not self.is_dead

    def topics_of(self, member: ConsumerGroupMember) -> Iterable[str]:
        """Return the topics that a member subscribes to, whether they exist or not."""
        names, pattern = member.metadata.topics, member.metadata.pattern
        resolved = self.resolved.get(pattern) if pattern else None
        return names if resolved is None else {*names, *resolved.topics}

    def subscribed_topics(self) -> frozenset[str]:
        if self._subscribed is None:
            resolved = [self.resolved[each].topics for each in self.pattern_members if each in self.resolved]
            self._subscribed = frozenset(self._topic_members).union(*resolved)
        return self._subscribed

    def holder(self, topic_id: UUID, partition: int) -> str | None:
        held = self.holders.get(topic_id)
        return None if held is None else held.get(partition)

    def config(self, name: str, default: int) -> int:
        """Return a config that the group may have of its own (K29)."""
        own = self.configs.get(self.group_id)
        return default if own is None or name not in own else int(own[name])

    @property
    def session_timeout_ms(self) -> int:
        return self.config("consumer.session.timeout.ms", self.settings.group_consumer_session_timeout_ms)

    def session_timeout_of(self, member: ConsumerGroupMember | None) -> int:
        """Return how long a member may be silent: a classic member says so itself (K25)."""
        own = None if member is None else member.metadata.classic_session_timeout_ms
        return self.session_timeout_ms if own is None else own

    @property
    def heartbeat_interval_ms(self) -> int:
        """A member that is answered while the target is being computed shall not wait long for it."""
        own = self.config("consumer.heartbeat.interval.ms", self.settings.group_consumer_heartbeat_interval_ms)
        return own if self.computing is None else min(own, WHILE_COMPUTING_MS)

    @property
    def assignment_interval_ms(self) -> int:
        return self.config("consumer.assignment.interval.ms", self.settings.group_consumer_assignment_interval_ms)

    # --- records ------------------------------------------------------------------------------------------------------

    def apply_record(self, record: ConsumerGroupRecord) -> None:
        """Change the group as a record says, live and when it is loaded."""
        value, about = record.value, record.about
        if record.type == MEMBER:
            self._apply_member(about, value)
        elif record.type == CURRENT:
            self._apply_current(about, value)
        elif record.type == TARGET:
            self._apply_target(about, value)
        elif isinstance(value, ConsumerGroupEpoch):
            self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(value, TargetEpoch):
            self.assignment_epoch, self.assigned_ms = value.assignment_epoch, value.assigned_ms
            self._reconciled = sum(map(self.is_reconciled, self.members.values()))
        elif record.type == REGEX:
            self._subscribed = None
            if isinstance(value, ResolvedPattern):
                self.resolved[about] = value
            else:
                self.resolved.pop(about, None)

    def _apply_member(self, member_id: str, value: Value | None) -> None:
        self._subscribed = None
        member = self.members.get(member_id)
        if member is not None:
            self._hold(-_bytes_of(member))
            self._count_subscription(member.metadata, -1)
            self._count_classic(member.metadata, -1)
            if self.static.get(member.metadata.instance_id or "") == member_id:
                del self.static[member.metadata.instance_id or ""]
        if not isinstance(value, MemberMetadata):
            if member is not None:
                self._reconciled -= self.is_reconciled(member)
                del self.members[member_id]
                self.last_written.pop(member_id, None)
            return
        value = replace(
            value,
            topics=tuple(value.topics),
            pattern=value.pattern or "",
            classic_protocols=tuple(value.classic_protocols),
        )
        if member is None:
            member = self.members[member_id] = ConsumerGroupMember(member_id, value)
            self._reconciled += self.is_reconciled(member)
        member.metadata = value
        self._hold(_bytes_of(member))
        self._count_subscription(value, +1)
        self._count_classic(value, +1)
        if value.instance_id is not None:
            self.static[value.instance_id] = member_id

    def _count_subscription(self, metadata: MemberMetadata, step: int) -> None:
        for name in metadata.topics:
            _count(self._topic_members, name, step)
        if metadata.pattern:
            _count(self.pattern_members, metadata.pattern, step)

    def _count_classic(self, metadata: MemberMetadata, step: int) -> None:
        if metadata.classic_session_timeout_ms is not None:
            self.classic_members += step
            for protocol in metadata.classic_protocols:
                self.classic_protocols[protocol.name] = self.classic_protocols.get(protocol.name, 0) + step

    def _apply_current(self, member_id: str, value: Value | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            return  # what is left of a member that is gone
        last_written = self.last_written.pop(member_id, None)
        if not isinstance(value, CurrentAssignment):
            self._release(member)
            member.assigned, member.pending_revocation = {}, {}
            return
        self._reconciled -= self.is_reconciled(member)
        member.epoch, member.previous_epoch = value.member_epoch, value.previous_member_epoch
        member.state = MemberState(value.state)
        self._reconciled += self.is_reconciled(member)
        if value.assigned is last_written and not value.pending_revocation and not member.pending_revocation:
            return  # it keeps what it has
        assigned, pending_revocation = _by_topic(value.assigned), _by_topic(value.pending_revocation)
        if assigned != member.assigned or pending_revocation != member.pending_revocation:
            self._release(member)
        member.assigned, member.pending_revocation = assigned, pending_revocation
        for topic_id, partitions in _both(assigned, pending_revocation):
            held = self.holders.setdefault(topic_id, {})
            for partition in partitions:
                if partition not in held:
                    self._hold(_PARTITION_BYTES)
                held[partition] = member_id

    def _release(self, member: ConsumerGroupMember) -> None:
        """Forget that the member has partitions; another one may have taken some of them."""
        for topic_id, partitions in _both(member.assigned, member.pending_revocation):
            held = self.holders.get(topic_id, {})
            for partition in partitions:
                if held.get(partition) == member.member_id:
                    del held[partition]
                    self._hold(-_PARTITION_BYTES)
            if not held:
                self.holders.pop(topic_id, None)

    def _apply_target(self, member_id: str, value: Value | None) -> None:
        if isinstance(value, TargetAssignment):
            self.targets[member_id] = value.partitions
        else:
            self.targets.pop(member_id, None)

    def apply(self, records: Sequence[Record], position: int, producer_id: int | None = None) -> None:
        """Note that records are durable. Those of the group itself were applied when they were written."""
        self.is_in_log = True
        if type(records) is OffsetRows:
            self.stored.apply_commit(records, position)
            return
        for at, record in enumerate(records, position):
            if isinstance(record, OffsetRecord):
                self.stored.apply(record, at, producer_id)
            elif isinstance(record, ConsumerGroupRecord):
                self.note_durable(record)

    def note_durable(self, record: ConsumerGroupRecord) -> None:
        key = (record.type, record.about)
        if record.value is None:
            self.durable.pop(key, None)
        else:
            self.durable[key] = record.value

    def rebuild(self) -> None:
        """Make the group from its durable records and those on their way to the log."""
        self.let_go()
        self._clear()
        self.image_version = self.regex_version = None  # what was compared with them may not be in the log
        if self.is_deleted:
            return  # it was unloaded, or another group has its place
        for (kind, about), value in sorted(self.durable.items(), key=lambda entry: entry[0][0]):  # members first
            self.apply_record(ConsumerGroupRecord(kind, self.group_id, about, value))
        for written in self.unwritten:
            for record in written.records:
                if isinstance(record, ConsumerGroupRecord):
                    self.apply_record(record)

    def abandon(self, written: ConsumerGroupWritten) -> list[ConsumerGroupWritten]:
        """Take back what could not be written; return the writes that were asked for after it, and fail with it."""
        positions = [at for at, other in enumerate(self.unwritten) if other is written]
        if not positions:
            return []
        later = self.unwritten[positions[0] + 1 :]
        del self.unwritten[positions[0] :]
        self.rebuild()
        return later

    def tombstones(self, also: Sequence[Record] = ()) -> list[Record]:
        """Return the records that end the group; `also` are records of it that are to be written before them."""
        kinds = (CURRENT, TARGET, MEMBER, TARGET_EPOCH, REGEX, PARTITION_METADATA, EPOCH)
        found = {*self.durable, (EPOCH, "")}
        for record in (*(record for written in self.unwritten for record in written.records), *also):
            if isinstance(record, ConsumerGroupRecord):
                (found.discard if record.value is None else found.add)((record.type, record.about))
        keys = sorted(found, key=lambda key: (kinds.index(key[0]), key[1]))
        return [ConsumerGroupRecord(kind, self.group_id, about, None) for kind, about in keys]

    # --- timers -------------------------------------------------------------------------------------------------------

    def session_key(self, member_id: str) -> TimerKey:
        return (self.group_id, _SESSION, member_id)

    def revocation_key(self, member_id: str) -> TimerKey:
        return (self.group_id, _REVOCATION, member_id)

    def join_key(self, member_id: str) -> TimerKey:
        return (self.group_id, _JOIN, member_id)

    def sync_key(self, member_id: str) -> TimerKey:
        return (self.group_id, _SYNC, member_id)

    def regex_key(self) -> TimerKey:
        return (self.group_id, _REGEX, "")

    def target_key(self) -> TimerKey:
        return (self.group_id, _TARGET, "")

    def timer_keys(self) -> Iterator[TimerKey]:
        for member_id in self.sessions:
            yield self.session_key(member_id)
            yield self.revocation_key(member_id)
            yield self.join_key(member_id)
            yield self.sync_key(member_id)
        yield self.regex_key()
        yield self.target_key()

    def session(self, member_id: str) -> Session:
        session = self.sessions.get(member_id)
        if session is None:
            session = self.sessions[member_id] = Session()
        return session

    def expect(self, member_id: str, now_ms: int) -> Effects:
        """Restart the session of a member. The timer is only moved if it would fire too late."""
        session = self.session(member_id)
        session.deadline_ms = now_ms + self.session_timeout_of(self.members.get(member_id))
        if session.deadline_ms >= session.alarm_ms:
            return []
        return self.set_alarm(member_id, session)

    def set_alarm(self, member_id: str, session: Session) -> Effects:
        session.alarm_ms = session.deadline_ms
        then = ConsumerSessionDue(self.group_id, member_id)
        return [Arm(self.session_key(member_id), session.alarm_ms, then)]

    # --- answers ------------------------------------------------------------------------------------------------------

    def parked_tokens(self) -> Iterator[Token]:
        for written in self.unwritten:
            for token, _, _ in written.replies:
                yield token

    def reply(self, token: Token, answer: object, request: object) -> Effects:
        """Answer a request that needs no record: at once, or when the state that it saw is durable."""
        if self.unwritten:
            self.unwritten[-1].replies.append((token, answer, request))
            return []
        return [Reply(token, answer)]

    # --- what the rules of offsets ask --------------------------------------------------------------------------------

    def validate_offset_commit(self, request: OffsetCommit) -> ErrorCode:
        """Check in Kafka's order (K19). The instance id is not looked at."""
        transactional = request.producer_id is not None
        nameless = request.generation_id < 0 and not request.member_id and request.instance_id is None
        if (request.generation_id < 0 and not self.members) or (transactional and nameless):
            return ErrorCode.NONE
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not member.is_classic and not transactional and not request.knows_group_id_not_found:
            return ErrorCode.UNSUPPORTED_VERSION
        if request.generation_id == member.epoch:
            return ErrorCode.NONE
        is_older = member.is_classic or transactional  # these do not know STALE_MEMBER_EPOCH (TO3)
        stale = ErrorCode.ILLEGAL_GENERATION if is_older else ErrorCode.STALE_MEMBER_EPOCH
        if request.generation_id > member.epoch:
            return stale
        topics = self.image.topics
        for partition in request.partitions:
            if partition.error:
                continue
            topic_id = partition.topic_id
            if topic_id is None and partition.topic in topics:
                topic_id = topics[partition.topic].id
            since = None if topic_id is None else _since(member, topic_id, partition.partition)
            if since is None or since > request.generation_id:
                return stale
        return ErrorCode.NONE

    def commit_accepted(self, _request: OffsetCommit, _now_ms: int) -> Effects:
        return []  # a commit does not touch the session (K10)

    def validate_offset_fetch(self, request: OffsetFetch) -> ErrorCode:
        if request.member_id is None and request.member_epoch < 0:
            return ErrorCode.NONE
        if request.member_id is None:
            return ErrorCode.UNKNOWN_SERVER_ERROR  # as Kafka, which trips over it
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.member_epoch != member.epoch:
            return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    def validate_offset_delete(self, request: OffsetDelete) -> ErrorCode:
        return ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID

    def validate_delete(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics()

    @property
    def offsets_may_expire(self) -> bool:
        return True  # in every state, those of topics that nobody subscribes to (K21)

    def base_timestamp_ms(self, offset: CommittedOffset) -> int:
        return offset.commit_timestamp_ms

    def died(self, _now_ms: int) -> Effects:
        self.is_deleted = True
        self.let_go()
        return []

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, CONSUMER, self.state.value, "consumer")


def _count(counts: dict[str, int], name: str, step: int) -> None:
    count = counts.get(name, 0) + step
    if count:
        counts[name] = count
    else:
        del counts[name]


def _since(member: ConsumerGroupMember, topic_id: UUID, partition: int) -> int | None:
    """Return the assignment epoch at which the member got a partition that it has, or has still to give up."""
    for some in (member.assigned, member.pending_revocation):
        found = some.get(topic_id, _NOTHING).get(partition)
        if found is not None:
            return found
    return None


def _both(first: Assigned, second: Assigned) -> Iterator[tuple[UUID, Mapping[int, int]]]:
    yield from first.items()
    yield from second.items()


def _by_topic(topics: Sequence[TopicPartitions]) -> dict[UUID, dict[int, int]]:
    """Partitions without epochs were written by Kafka 4.2 or older: they count as given at epoch 0."""
    return {
        topic.topic_id: dict(zip(topic.partitions, topic.epochs or [0] * len(topic.partitions), strict=False))
        for topic in topics
    }


def _bytes_of(member: ConsumerGroupMember) -> int:
    metadata = member.metadata
    names = (
        member.member_id,
        metadata.instance_id or "",
        metadata.rack_id or "",
        metadata.client_id,
        metadata.client_host,
        metadata.pattern or "",
        *metadata.topics,
        *(protocol.name for protocol in metadata.classic_protocols),
    )
    return OVERHEAD + sum(map(len, names)) + sum(len(protocol.metadata) for protocol in metadata.classic_protocols)
