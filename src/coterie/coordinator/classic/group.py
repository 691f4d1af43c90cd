"""A classic group: its members, the leader, the protocols they support, and the committed offsets.

Bookkeeping only; the rules that use it are in the files named after the requests. A handler decides first and changes
second: everything here that changes the group is called after the decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from coterie.coordinator.classic.effects import (
    Arm,
    Disarm,
    Effects,
    Persist,
    Reply,
    SessionDue,
    TimerKey,
    Written,
)
from coterie.coordinator.classic.member_bytes import bytes_of_id, bytes_of_member, bytes_of_protocols
from coterie.coordinator.classic.states import (
    DEAD,
    EMPTY,
    ON_COMMIT,
    ON_DELETE_GROUP,
    ON_OFFSET_DELETE,
    ON_SIMPLE_COMMIT,
    ON_SIMPLE_TXN_COMMIT,
    ON_TXN_COMMIT,
    STABLE,
    ClassicGroupState,
    GroupAction,
    enter,
)
from coterie.coordinator.offsets.offsets_group import HeldBytes, OffsetsGroup
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.facts import Emit, MemberRejoined
from coterie.protocol.commit_rows import OffsetRows
from coterie.protocol.java_hash import MIN_CAPACITY, capacity_for, map_order, spread
from coterie.protocol.messages import (
    CONSUMER,
    CommittedOffset,
    GroupRecord,
    JoinedGroup,
    JoinedMember,
    JoinGroup,
    ListedGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetRecord,
    Protocol,
    Record,
    StoredGroup,
    StoredMember,
    Token,
)
from coterie.protocol.subscription import subscribed_topics
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings

NEVER = 1 << 62
_SESSION, _JOIN, _SYNC = "session", "join", "sync"


class ClassicGroupMember:
    """One member. A parked request is its token; a deadline is a field that heartbeats overwrite."""

    __slots__ = (
        "alarm_ms",
        "assignment",
        "awaits_sync",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "is_restored",
        "joined_at_ms",
        "member_id",
        "parked_join",
        "parked_sync",
        "protocols",
        "rebalance_timeout_ms",
        "rejoined",
        "restored_until_ms",
        "session_timeout_ms",
        "spread",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Sequence[Protocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.spread = spread(member_id)
        self.parked_join: Token | None = None
        self.parked_sync: Token | None = None
        self.joined_at_ms = 0
        self.is_new = False  # its first join is parked: rule 9's five minutes
        self.rejoined = False  # it has joined again in this join phase, and no fact says so yet
        self.awaits_sync = False  # owes a sync since the join phase ended (rule 12)
        self.is_restored = False  # read from the log and has not joined since: only its selected protocol is known (C4)
        self.restored_until_ms = 0  # the deadline it was given when it was read back
        self.deadline_ms = NEVER
        self.alarm_ms = NEVER  # when its timer rings; never later than its deadline, unless a request is parked

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the metadata of a protocol of the member; nothing if it is not one."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""


class Group(OffsetsGroup):
    __slots__ = (
        "_order",
        "_subscribed_topics",
        "_subscriptions",
        "buckets",
        "generation_id",
        "in_initial_delay",
        "leader_id",
        "members",
        "newcomers",
        "parked_joins",
        "pending",
        "protocol_name",
        "protocol_type",
        "rebalance_began_ms",
        "state",
        "state_timestamp_ms",
        "support",
        "writing_generation",
    )

    def __init__(
        self,
        group_id: str,
        settings: GroupCoordinatorSettings,
        wall: WallClock | None = None,
        held_in_all: HeldBytes | None = None,
    ) -> None:
        """`held_in_all` is what all groups of a process hold, this one included."""
        super().__init__(group_id, settings, wall, held_in_all)
        self.state: ClassicGroupState = DEAD
        self.state_timestamp_ms = -1
        self.in_initial_delay = False
        self.generation_id = 0
        self.protocol_type: str | None = None  # None and Empty: a simple group
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.buckets = MIN_CAPACITY  # of the HashMap that Kafka keeps its members in (rule 7)
        self.pending: dict[str, int] = {}  # ids given out, not yet joined -> when they lapse (rule 3)
        self.support: dict[str, int] = {}  # protocol name -> how many members can use it
        self.parked_joins = 0
        self.newcomers = False  # a new member came during this wait of the initial delay (rule 5)
        self.rebalance_began_ms = 0
        self.writing_generation = -1  # whose assignment is on its way to the log
        self._order: list[ClassicGroupMember] | None = None  # of `in_map_order`, until a member comes or goes
        self._subscriptions: set[bytes] | None = None  # of this generation, until they are read
        self._subscribed_topics: frozenset[str] | None = None  # None: not known

    # --- asking -------------------------------------------------------------------------------------------------------

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check instance id and member id, as every request of a member does first (section 2)."""
        if instance_id is not None:
            holder = self.static.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def in_map_order(self) -> list[ClassicGroupMember]:
        """Return the members in the order of Kafka's HashMap (rule 7)."""
        if self._order is None:
            mask = self.buckets - 1
            self._order = sorted(self.members.values(), key=lambda member: member.spread & mask)
        return self._order[:]

    def first_in_map_order(self, members: Iterable[ClassicGroupMember]) -> ClassicGroupMember | None:
        mask = self.buckets - 1
        return min(members, key=lambda member: member.spread & mask, default=None)

    def all_members_joined(self) -> bool:
        return self.parked_joins == len(self.members) and not self.pending

    def rebalance_timeout_ms(self) -> int:
        return max([member.rebalance_timeout_ms for member in self.members.values()], default=0)

    def supports(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Rule 2: return whether the type matches, and all current members support one of the protocol names."""
        if len(protocols) > 1 and len({protocol.name for protocol in protocols}) != len(protocols):
            return False  # Kafka would take a name given twice, and never complete the rebalance
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type == protocol_type:
            count = len(self.members)
            for protocol in protocols:
                if self.support.get(protocol.name, 0) == count:
                    return True
        return False

    def vote(self) -> str:
        """Rule 8: each member votes for its first protocol that all support; map order of the names breaks ties."""
        members = len(self.members)
        candidates = [name for name, count in self.support.items() if count == members]
        if len(candidates) == 1:
            return candidates[0]
        votes: dict[str, int] = {}
        for member in self.in_map_order():
            name = next(protocol.name for protocol in member.protocols if protocol.name in candidates)
            votes[name] = votes.get(name, 0) + 1
        most = max(votes.values())
        return next(name for name in map_order(list(votes)) if votes[name] == most)

    def note_subscriptions(self, members: Iterable[JoinedMember]) -> None:
        """Keep the subscriptions of this generation; they are read when a rule asks for them, which is seldom."""
        is_consumer = self.protocol_type == CONSUMER
        self._subscriptions = {member.metadata for member in members} if is_consumer else None
        self._subscribed_topics = None

    def joined_members(self) -> list[JoinedMember]:
        """Return the members as the join response of their leader lists them, in map order."""
        name = self.protocol_name
        return [
            JoinedMember(member.member_id, member.instance_id, member.metadata(name)) for member in self.in_map_order()
        ]

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that members subscribe to, or None if the bytes do not say (rules 20, 24)."""
        if self._subscriptions is not None:
            read = [subscribed_topics(metadata) for metadata in self._subscriptions]
            known = [topics for topics in read if topics is not None]
            self._subscribed_topics = frozenset().union(*known) if len(known) == len(read) else None
            self._subscriptions = None
        return self._subscribed_topics

    def subscribes_to(self, topic: str) -> bool:
        topics = self.subscribed_topics
        if topics is None:
            return self.protocol_type == CONSUMER  # unknown: then every topic counts (rule 24)
        return topic in topics

    def record(self, assignments: Mapping[str, bytes]) -> GroupRecord:
        """Return the record of the group (section 10), with only the selected protocol of each member."""
        return GroupRecord(
            self.group_id,
            StoredGroup(
                protocol_type=self.protocol_type or "",
                generation_id=self.generation_id,
                protocol_name=self.protocol_name,
                leader_id=self.leader_id,
                state_timestamp_ms=self.state_timestamp_ms,
                members=[
                    StoredMember(
                        member.member_id,
                        member.instance_id,
                        member.client_id,
                        member.client_host,
                        member.rebalance_timeout_ms,
                        member.session_timeout_ms,
                        member.metadata(self.protocol_name),
                        assignments.get(member.member_id, b""),
                    )
                    for member in self.in_map_order()
                ],
            ),
        )

    def write(self, assignments: Mapping[str, bytes], then: Written) -> Persist:
        """Return the write of the group's record; `written` has to be called when `then` comes back."""
        self.records_under_way += 1
        return Persist([self.record(assignments)], then)

    def written(self) -> None:
        self.records_under_way -= 1

    def apply(self, records: Sequence[Record], position: int, producer_id: int | None = None) -> None:
        """Apply records that are in the log from `position` on: offsets, assignments and tombstones.

        At load, `lifecycle.restore` sets the rest from the last group record. A group record of an older generation, or
        one that is durable after the next rebalance has begun, is ignored.
        """
        self.is_in_log = True
        if type(records) is OffsetRows:
            self.stored.apply_commit(records, position)
            return
        for at, record in enumerate(records, position):
            if isinstance(record, OffsetRecord):
                self.stored.apply(record, at, producer_id)
            elif not isinstance(record, GroupRecord):
                raise TypeError(f"a classic group has no records of type {type(record).__name__}")
            elif record.value is None:
                self.stored.clear()
            elif (
                record.value.generation_id == self.generation_id
                and self.state is not ClassicGroupState.PREPARING_REBALANCE
            ):
                members, more = self.members, 0
                for was in record.value.members:
                    member = members.get(was.member_id)
                    if member is not None:
                        more += len(was.assignment) - len(member.assignment)
                        member.assignment = was.assignment
                self._hold(more)

    def joined(self, member: ClassicGroupMember, *, members: bool, skip_assignment: bool = False) -> JoinedGroup:
        """The answer to a join in the current generation."""
        return JoinedGroup(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            self.joined_members() if members else (),
            skip_assignment,
        )

    # --- members ------------------------------------------------------------------------------------------------------

    def add(self, member: ClassicGroupMember) -> None:
        self.members[member.member_id] = member
        self._order = None
        self.buckets = capacity_for(len(self.members), self.buckets)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.pending.pop(member.member_id, None) is not None:
            self._hold(-bytes_of_id(member.member_id))
        self._hold(bytes_of_member(member))
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._count(member.protocols, +1)

    def remove(self, members: Sequence[ClassicGroupMember], now_ms: int) -> Effects:
        """Remove members: answer their parked joins, stop their timers, and replace a lost leader (rules 7, 9).

        A parked sync is not answered (rule 13).
        """
        effects: Effects = []
        for member in members:
            effects += self.report_rejoin(member, now_ms)
            effects += self.answer_join(member, JoinedGroup(ErrorCode.UNKNOWN_MEMBER_ID, ""))
            effects.append(Disarm(self.session_key(member.member_id)))
            del self.members[member.member_id]
            self._order = None
            self._hold(-bytes_of_member(member))
            if member.instance_id is not None:
                del self.static[member.instance_id]
            self._count(member.protocols, -1)
        if self.leader_id not in self.members:
            first = self.first_in_map_order(self.members.values())
            self.leader_id = first.member_id if first else None
        return effects

    def give_id(self, member_id: str, lapses_ms: int) -> None:
        """Give out a member id; the client has to join with it before `lapses_ms`."""
        self.pending[member_id] = lapses_ms
        self._hold(bytes_of_id(member_id))

    def forget_pending(self, member_id: str) -> Effects:
        del self.pending[member_id]
        self._hold(-bytes_of_id(member_id))
        return [Disarm(self.session_key(member_id))]

    def rename(self, old: ClassicGroupMember, member_id: str) -> ClassicGroupMember:
        """Give a static member a new id; assignment, leadership and timeouts stay (rule 18)."""
        del self.members[old.member_id]
        self._hold(len(member_id) - len(old.member_id))
        new = ClassicGroupMember(
            member_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.session_timeout_ms,
            old.rebalance_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members[member_id] = new
        self._order = None
        assert old.instance_id is not None
        self.static[old.instance_id] = member_id
        if self.leader_id == old.member_id:
            self.leader_id = member_id
        return new

    def update(self, member: ClassicGroupMember, request: JoinGroup) -> None:
        """Take protocols and timeouts from a member's new join."""
        self.change(member, request.protocols, request.session_timeout_ms, request.rebalance_timeout_ms)

    def change(
        self,
        member: ClassicGroupMember,
        protocols: Sequence[Protocol],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        before = member.protocols
        if before != protocols:
            self._hold(bytes_of_protocols(protocols) - bytes_of_protocols(before))
            if [protocol.name for protocol in before] != [protocol.name for protocol in protocols]:
                self._count(before, -1)
                self._count(protocols, +1)
        member.protocols = protocols
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def assign(self, member: ClassicGroupMember, assignment: bytes) -> None:
        self._hold(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def _count(self, protocols: Sequence[Protocol], step: int) -> None:
        for protocol in protocols:
            count = self.support.get(protocol.name, 0) + step
            if count:
                self.support[protocol.name] = count
            else:
                del self.support[protocol.name]

    # --- waiting ------------------------------------------------------------------------------------------------------

    def park_join(self, member: ClassicGroupMember, token: Token, now_ms: int) -> None:
        """Park a join. An earlier join of the same member is dropped and never answered (rule 10)."""
        if member.parked_join is None:
            self.parked_joins += 1
        member.parked_join = token
        member.joined_at_ms = now_ms

    def report_rejoin(self, member: ClassicGroupMember, now_ms: int) -> Effects:
        """Report a join that will not be among those of a completed join phase."""
        if not member.rejoined:
            return []
        member.rejoined = False
        metadata = member.metadata(self.protocol_name)
        waited_ms = now_ms - member.joined_at_ms
        return [Emit(MemberRejoined(now_ms, self.group_id, member.member_id, metadata, waited_ms))]

    def answer_join(self, member: ClassicGroupMember, answer: JoinedGroup) -> Effects:
        token = member.parked_join
        if token is None:
            return []
        member.parked_join = None
        self.parked_joins -= 1
        return [Reply(token, answer)]

    def session_key(self, member_id: str) -> TimerKey:
        return (self.group_id, _SESSION, member_id)

    def join_key(self) -> TimerKey:
        return (self.group_id, _JOIN, "")

    def sync_key(self) -> TimerKey:
        return (self.group_id, _SYNC, "")

    def expect_by(self, member: ClassicGroupMember, deadline_ms: int) -> Effects:
        """Set the deadline of the member's session. The timer is only moved if it would fire too late."""
        member.deadline_ms = deadline_ms
        if deadline_ms >= member.alarm_ms:
            return []
        return self.set_alarm(member, deadline_ms)

    def set_alarm(self, member: ClassicGroupMember, at_ms: int) -> Effects:
        member.alarm_ms = at_ms
        return [Arm(self.session_key(member.member_id), at_ms, SessionDue(self.group_id, member.member_id))]

    def timer_keys(self) -> Iterable[TimerKey]:
        yield from map(self.session_key, (*self.members, *self.pending))
        yield self.join_key()
        yield self.sync_key()

    def parked_tokens(self) -> Iterable[Token]:
        for member in self.members.values():
            if member.parked_join is not None:
                yield member.parked_join
            if member.parked_sync is not None:
                yield member.parked_sync

    # --- what the rules of offsets ask --------------------------------------------------------------------------------

    @property
    def is_dead(self) -> bool:
        return self.state is DEAD

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    def validate_offset_commit(self, request: OffsetCommit) -> ErrorCode:
        transactional = request.producer_id is not None
        nameless = request.generation_id < 0 and not request.member_id and request.instance_id is None
        if request.generation_id < 0 and (nameless or self.state in (EMPTY, DEAD)):  # whatever the ids
            table = ON_SIMPLE_TXN_COMMIT if transactional else ON_SIMPLE_COMMIT
        else:
            table = ON_TXN_COMMIT if transactional else ON_COMMIT
            if self.state is DEAD and not transactional and request.knows_group_id_not_found:
                return ErrorCode.GROUP_ID_NOT_FOUND
            if self.state is not DEAD:
                error = self.validate_member(request.member_id, request.instance_id)
                if error:
                    return error
                if request.generation_id != self.generation_id:
                    return ErrorCode.ILLEGAL_GENERATION
        what = table[self.state]
        return ErrorCode.NONE if isinstance(what, GroupAction) else what

    def commit_accepted(self, request: OffsetCommit, now_ms: int) -> Effects:
        """Restart the session: a commit does that, even if every partition fails (rule 14)."""
        member = self.members.get(request.member_id)
        if member is None or request.producer_id is not None:
            return []
        return self.expect_by(member, now_ms + member.session_timeout_ms)

    def validate_offset_fetch(self, _request: OffsetFetch) -> ErrorCode:
        return ErrorCode.NONE  # member and epoch are not looked at (K20)

    def validate_offset_delete(self, request: OffsetDelete) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        what = ON_OFFSET_DELETE[self.state]
        if what is GroupAction.TAKE_IF_CONSUMER and self.protocol_type != CONSUMER:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE if isinstance(what, GroupAction) else what

    def validate_delete(self) -> ErrorCode:
        what = ON_DELETE_GROUP[self.state]
        return ErrorCode.NONE if isinstance(what, GroupAction) else what

    @property
    def offsets_may_expire(self) -> bool:
        """Offsets of Empty groups may expire; of Stable consumers, those of topics they no longer read."""
        if self.state is EMPTY:
            return True
        return self.state is STABLE and self.protocol_type == CONSUMER and self.subscribed_topics is not None

    def base_timestamp_ms(self, offset: CommittedOffset) -> int:
        if self.state is EMPTY and self.protocol_type is not None and self.state_timestamp_ms >= 0:
            return self.state_timestamp_ms  # until the last member went
        return offset.commit_timestamp_ms

    def tombstones(self) -> list[Record]:
        return [GroupRecord(self.group_id, None)]

    def died(self, now_ms: int) -> Effects:
        effects: Effects = []
        for member_id in list(self.pending):
            effects += self.forget_pending(member_id)
        enter(self, DEAD, now_ms)
        return effects

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value, "classic")
