"""The hot path: heartbeats that say nothing new, of members that need not do anything.

Most often nothing has changed (`quick_heartbeat`). After a rebalance each member hears of the new epoch once, and
nearly all keep what they have (`_catch_up`). The rule in `heartbeat.py` would do the same; a property test holds the
two equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.coordinator.classic.effects import Effects, Reply
from coterie.coordinator.consumer.group import ConsumerGroup, ConsumerGroupMember, ConsumerGroupWritten
from coterie.coordinator.consumer.group_change import assigned_fact, by_id, rebalance_ended
from coterie.coordinator.consumer.regex_refresh import last_resolved_ms, needs_refresh
from coterie.coordinator.consumer.states import MemberState
from coterie.errors import ErrorCode
from coterie.protocol.consumer_group_records import (
    CURRENT,
    ConsumerGroupRecord,
    CurrentAssignment,
    write_consumer_group_record,
)
from coterie.protocol.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatAnswer, Record


def says_nothing_new(request: ConsumerGroupHeartbeat) -> bool:
    """Return whether a heartbeat only says that the member is there: all else is unchanged (K7)."""
    return request.owned is None and _says_at_most_what_it_owns(request)


def _says_at_most_what_it_owns(request: ConsumerGroupHeartbeat) -> bool:
    said = (request.rack_id, request.topics, request.pattern, request.assignor)
    return said == _UNCHANGED and request.rebalance_timeout_ms == -1 and request.member_epoch > 0


_UNCHANGED = (None,) * 4
_STABLE = int(MemberState.STABLE)
_FEW = 4
"""Topics that are looked for one by one."""


def quick_heartbeat(group: ConsumerGroup, request: ConsumerGroupHeartbeat, now_ms: int) -> int | None:
    """Restart the member's session, and return the heartbeat interval for the answer.

    `request` says nothing new. None: there is more to do than that, and nothing of it is done yet.
    """
    member, epoch = group.members.get(request.member_id), request.member_epoch
    if (
        member is None
        or epoch != member.epoch
        or epoch != group.assignment_epoch
        or epoch != group.group_epoch
        or member.state is not MemberState.STABLE
        or group.unwritten
        or group.image_version != group.image.version
    ):
        return None
    if not _is_known(group, member, request):
        return None
    if group.pattern_members and not group.resolving and needs_refresh(group, last_resolved_ms(group), now_ms):
        return None
    session = group.sessions.get(request.member_id)
    deadline_ms = now_ms + group.session_timeout_ms
    if session is None or deadline_ms < session.alarm_ms:
        return None
    session.deadline_ms = deadline_ms
    return group.heartbeat_interval_ms


def _is_known(group: ConsumerGroup, member: ConsumerGroupMember, request: ConsumerGroupHeartbeat) -> bool:
    """Return whether a member of the consumer protocol is whom the group knows, by client and instance."""
    metadata = member.metadata
    return (
        request.client_id == metadata.client_id
        and request.client_host == metadata.client_host
        and metadata.classic_session_timeout_ms is None
        and (request.instance_id is None or group.static.get(request.instance_id) == request.member_id)
    )


def answer_quickly(group: ConsumerGroup, request: ConsumerGroupHeartbeat, now_ms: int) -> Effects | None:
    """Handle a heartbeat if it says nothing new and the member keeps what it has; None: nothing is done yet.

    It may say what the member owns, as it does after each assignment: this counts while a member has something to give
    up, and if its epoch is an old one.
    """
    if not _says_at_most_what_it_owns(request):
        return None
    if request.member_epoch != group.assignment_epoch:
        return _catch_up(group, request, now_ms)
    interval_ms = quick_heartbeat(group, request, now_ms)
    if interval_ms is None:
        return None
    return [Reply(request.token, _unchanged(request.member_id, request.member_epoch, interval_ms))]


def _catch_up(group: ConsumerGroup, request: ConsumerGroupHeartbeat, now_ms: int) -> Effects | None:
    """Give the new epoch to a member that has another, and whose target is what it has."""
    member_id, epoch = request.member_id, request.member_epoch
    member, assignment_epoch = group.members.get(member_id), group.assignment_epoch
    if (
        member is None
        or epoch != member.epoch
        or group.group_epoch != assignment_epoch
        or member.state is not MemberState.STABLE
        or group.image_version != group.image.version
        or group.pattern_members
        or group.upgrade is not None
        or not _is_known(group, member, request)
        or not _has_its_target(group, member)
    ):
        return None
    session = group.sessions.get(member_id)
    deadline_ms = now_ms + group.session_timeout_ms
    if session is None or deadline_ms < session.alarm_ms:
        return None
    written = group.last_written.get(member_id)
    if written is None:
        written = by_id(member.assigned)
    value = CurrentAssignment(assignment_epoch, epoch, _STABLE, written, ())
    record = ConsumerGroupRecord(CURRENT, group.group_id, member_id, value)
    try:
        pair = write_consumer_group_record(record)
    except ValueError:
        return None  # the rule answers that it cannot be written
    size = len(pair[0]) + len(pair[1] or b"")
    if size > group.settings.coterie_max_record_bytes:
        return None
    session.deadline_ms = deadline_ms
    group.apply_record(record)
    group.last_written[member_id] = written
    caught_up = CaughtUp(group, request, record, pair, size, now_ms)
    caught_up.facts = [assigned_fact(group, member, now_ms), *rebalance_ended(group, now_ms)]
    group.unwritten.append(caught_up)
    return [caught_up]


class CaughtUp(ConsumerGroupWritten):
    """The epoch of a member that keeps what it has: one object from the heartbeat to its answer.

    It stands in the queue of a shard for what is to be written, and is the event of its end as well.
    """

    __slots__ = ("asked_ms", "group", "pairs", "record", "size")

    producer: tuple[int, int] | None = None
    marker: bool | None = None
    mark = None

    def __init__(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeat,
        record: ConsumerGroupRecord,
        pair: tuple[bytes, bytes | None],
        size: int,
        now_ms: int,
    ) -> None:
        """`pair` is key and value of the record, and `size` is the bytes of both."""
        self.group = group
        self.token = request.token
        self.record = record
        self.records = [record]
        self.pairs = [pair]
        self.size = size
        self.asked_ms = now_ms
        self.error = ErrorCode.NONE
        self.position = -1
        answer = _unchanged(request.member_id, group.assignment_epoch, group.heartbeat_interval_ms)
        self.replies = [(request.token, answer, request)]

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def then(self) -> ConsumerGroupWritten:
        return self

    @property
    def group_id(self) -> str:  # type: ignore[override]
        return self.group.group_id

    @property
    def applied(self) -> Sequence[Record]:
        return self.records

    def note_stored(self) -> bool:
        """Note that the record is durable; return False if the rule for all writes must, and nothing was done."""
        group = self.group
        if group.is_deleted or group.upgrade is not None or not group.unwritten or group.unwritten[0] is not self:
            return False
        del group.unwritten[0]
        group.is_in_log = True
        group.note_durable(self.record)
        return True


def _has_its_target(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Return whether a member has all partitions of its target and no others; all must be of topics it names."""
    target, assigned, names = group.targets.get(member.member_id), member.assigned, group.image.topic_names
    if target is None or len(target) != len(assigned):
        return not target and not assigned
    topics = member.metadata.topics if len(target) <= _FEW else frozenset(member.metadata.topics)
    for topic_id, numbers in target.items():
        has = assigned.get(topic_id)
        if has is None or len(has) != len(numbers) or names.get(topic_id) not in topics:
            return False
        for number in numbers:
            if number not in has:
                return False
    return True


def _unchanged(member_id: str, epoch: int, interval_ms: int) -> ConsumerGroupHeartbeatAnswer:
    return ConsumerGroupHeartbeatAnswer(ErrorCode.NONE, None, member_id, epoch, interval_ms)
