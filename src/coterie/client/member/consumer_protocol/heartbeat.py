"""ConsumerGroupHeartbeat, the one request of a member: it joins, reports what it owns, stays alive and leaves.

A field is sent only if it has changed since it was sent last; after an error, all are sent again.
"""

from __future__ import annotations

from coterie.client.member.consumer_protocol.fencing import back_off, fail_for_good, fence, heartbeat_error, reset_epoch
from coterie.client.member.consumer_protocol.member import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMemberData,
    SentFields,
    TopicIdPartitions,
)
from coterie.client.member.consumer_protocol.reconciliation import take_target
from coterie.client.member.consumer_protocol.states import (
    ACKNOWLEDGING,
    HEARTBEAT_API,
    IN_THE_GROUP,
    JOINING,
    LEAVING,
    PREPARE_LEAVING,
    RECONCILING,
    STABLE,
    STALE,
    enter,
    on_error,
)
from coterie.client.member.effects import Effects, Fail, SendRequest, StartTimer
from coterie.client.member.events import ConsumerHeartbeatAnswered, HeartbeatDue
from coterie.client.member.facts import GroupEntered, GroupLeft, PollIntervalExceeded
from coterie.client.member.find_coordinator import forget_coordinator
from coterie.client.member.member import DUE, HEARTBEAT
from coterie.client.member.states import ErrorAction, code_of
from coterie.errors import ErrorCode
from coterie.facts import Emit
from coterie.protocol.apis.consumer_group_heartbeat import Request, Response, TopicPartitions


def can_beat(member: ConsumerMemberData) -> bool:
    return (
        member.wants_heartbeat
        and member.coordinator is not None
        and member.heartbeat_in_flight is None
        and member.is_beating
        and not member.is_backing_off
        and not (member.state is JOINING and member.stalled)
    )


def send_heartbeat(member: ConsumerMemberData, now_ms: int) -> Effects:
    member.wants_heartbeat = False
    member.heartbeat_sent_ms = now_ms
    member.heartbeat_at_ms = now_ms + member.interval_ms
    request = _build(member)
    then = ConsumerHeartbeatAnswered(request.member_epoch, was_member=member.may_be_member)
    member.heartbeat_in_flight = then
    if request.topic_partitions is not None:
        member.is_target_confirmed = False
    if request.member_epoch == JOIN_EPOCH:
        member.may_be_member = True
    if member.state is ACKNOWLEDGING:
        enter(member, STABLE if member.is_reconciled else RECONCILING, now_ms)
    return [SendRequest(member.coordinator, request, member.settings.request_timeout_ms, then), look(member, now_ms)]


def _build(member: ConsumerMemberData) -> Request:
    settings, sent = member.settings, member.sent
    if member.releases_instance:
        return _request(member, STATIC_LEAVE_EPOCH)
    joins = member.state is JOINING
    request = _request(member, JOIN_EPOCH if joins else member.generation_id)
    if joins or not sent.knows_settings:
        request.rebalance_timeout_ms = settings.max_poll_interval_ms
        request.server_assignor = settings.group_remote_assignor
        request.rack_id = settings.client_rack
    if joins or sent.topics != member.topics:
        request.subscribed_topic_names = sorted(member.topics)
    if sent.remote_pattern != member.remote_pattern or (joins and member.remote_pattern is not None):
        request.subscribed_topic_regex = member.remote_pattern or ""
    if joins or member.state is ACKNOWLEDGING or sent.owned != member.owned:
        request.topic_partitions = _listed(member.owned)
    member.sent = SentFields(member.topics, member.remote_pattern, member.owned, knows_settings=True)
    return request


def _request(member: ConsumerMemberData, epoch: int) -> Request:
    settings = member.settings
    return Request(
        group_id=settings.group_id,
        member_id=member.member_id,
        member_epoch=epoch,
        instance_id=settings.group_instance_id,
    )


def _listed(partitions: TopicIdPartitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in sorted(partitions.items(), key=lambda one: one[0].bytes)
    ]


# --- when ------------------------------------------------------------------------------------------------------------


def heartbeat_due(member: ConsumerMemberData, _event: HeartbeatDue, now_ms: int) -> Effects:
    if not member.is_beating:
        return []
    if now_ms >= member.poll_deadline_ms and _poll_counts(member):
        return _poll_timeout_expired(member, now_ms)
    if now_ms >= member.heartbeat_at_ms:
        member.wants_heartbeat = True
    return [look(member, now_ms)]


def _poll_counts(member: ConsumerMemberData) -> bool:
    """Inside poll the user is here, unless it is the listener that keeps it."""
    return (not member.polling or member.calling is not None) and member.ending is None


def look(member: ConsumerMemberData, now_ms: int) -> StartTimer:
    """Look again when the next heartbeat is due, or when poll is late."""
    at_ms = member.heartbeat_at_ms
    if at_ms <= now_ms:
        at_ms = now_ms + member.interval_ms
    if now_ms < member.poll_deadline_ms < at_ms and _poll_counts(member):
        at_ms = member.poll_deadline_ms
    member.looks_at_ms = at_ms
    return StartTimer(HEARTBEAT, at_ms, DUE)


def must_look_sooner(member: ConsumerMemberData, now_ms: int) -> bool:
    """Return whether max.poll.interval.ms ends before the timer fires: a poll has ended, or a listener was called."""
    return now_ms < member.poll_deadline_ms < member.looks_at_ms and member.is_beating and _poll_counts(member)


def _poll_timeout_expired(member: ConsumerMemberData, now_ms: int) -> Effects:
    """Leave the group, since poll was not called in time. The listener is called in the next poll."""
    settings = member.settings
    exceeded = Emit(PollIntervalExceeded(now_ms, settings.group_id, settings.max_poll_interval_ms, left=True))
    member.poll_late_since_ms = member.poll_deadline_ms
    enter(member, PREPARE_LEAVING, now_ms)
    enter(member, LEAVING, now_ms)
    effects: Effects = [exceeded, *send_leave(member, "consumer poll timeout has expired", now_ms)]
    effects += reset_epoch(member)
    enter(member, STALE, now_ms)
    return effects


def send_leave(member: ConsumerMemberData, reason: str, now_ms: int) -> Effects:
    """Send the leave once, without a retry: if it is lost, the session timeout ends the membership."""
    if not member.may_be_member:
        return []
    leave_sent = member.coordinator is not None
    fact = Emit(GroupLeft(now_ms, member.settings.group_id, member.member_id, reason, leave_sent))
    if not leave_sent:
        return [fact]
    member.may_be_member = False
    epoch = member.leave_epoch
    then = ConsumerHeartbeatAnswered(epoch, was_member=True)
    request = _request(member, epoch)
    return [SendRequest(member.coordinator, request, member.settings.request_timeout_ms, then), fact]


# --- the answer -------------------------------------------------------------------------------------------------------


def heartbeat_answered(member: ConsumerMemberData, event: ConsumerHeartbeatAnswered, now_ms: int) -> Effects:
    if event is member.waiting_for:
        member.waiting_for = None  # it has left, whatever the answer
        return []
    if event is not member.heartbeat_in_flight:
        return []  # of an older life
    member.heartbeat_in_flight = None
    if event.error is not None:
        return _refused(member, event, code_of(event.error), str(event.error), now_ms)
    reply: Response = event.reply
    if event.member_epoch == STATIC_LEAVE_EPOCH and reply.error in _NOTHING_HELD:
        member.releases_instance = member.may_be_member = False
        member.wants_heartbeat = True
        return []
    if reply.error:
        return _refused(member, event, reply.error, reply.message, now_ms)
    member.heartbeat_failures = 0
    member.heartbeat_interval_ms = reply.heartbeat_interval_ms
    member.heartbeat_at_ms = member.heartbeat_sent_ms + member.interval_ms
    member.member_id = reply.member_id or member.member_id
    member.generation_id = reply.member_epoch
    member.is_settled = member.is_target_confirmed = True
    effects: Effects = [look(member, now_ms)]
    if member.state is JOINING:
        entered = GroupEntered(now_ms, member.settings.group_id, member.member_id, member.generation_id)
        effects.append(Emit(entered))
    else:
        member.failures = 0
    if member.state in IN_THE_GROUP:
        take_target(member, reply.assignment, now_ms)
    return effects


_NOTHING_HELD = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
"""Answers to a static leave after which the instance id is free."""


def _refused(
    member: ConsumerMemberData, event: ConsumerHeartbeatAnswered, code: ErrorCode, about: str | None, now_ms: int
) -> Effects:
    member.sent = SentFields()
    if event.error is None and event.member_epoch == JOIN_EPOCH:
        member.may_be_member = event.was_member
    what = on_error(HEARTBEAT_API, code)
    if what is ErrorAction.RELEASE and event.was_member:
        member.releases_instance = member.wants_heartbeat = True
        return []
    if what is ErrorAction.DROP_GENERATION:
        return fence(member, code, now_ms)
    error = heartbeat_error(member, code, about)
    if what in {ErrorAction.FATAL, ErrorAction.RELEASE}:
        member.may_be_member = False
        return fail_for_good(member, error, code, now_ms)
    if what is ErrorAction.FAIL:
        # It may be allowed later: a member goes on with its next heartbeat, a newcomer with the next poll.
        member.stalled = member.stalled or member.state is JOINING
        member.wants_heartbeat = member.state is JOINING
        return [Fail(error), look(member, now_ms)] if member.ending is None else [look(member, now_ms)]
    effects: Effects = []
    if what is ErrorAction.FIND_COORDINATOR:
        effects = forget_coordinator(member, f"{code.name} in answer to {HEARTBEAT_API}", now_ms)
    member.wants_heartbeat = True
    if what is ErrorAction.RETRY or member.heartbeat_failures:
        effects += back_off(member, now_ms)
    member.heartbeat_failures += 1
    return effects
