"""Staying alive (M8): heartbeats, the session, and the user who does not come back to poll.

One timer looks at all three. A heartbeat that is answered is an event without effects, and the next one a request that
was built when the generation began.
"""

from __future__ import annotations

from coterie.client.member.effects import Effects, Fail, SendRequest, StartTimer
from coterie.client.member.events import HeartbeatAnswered, HeartbeatDue
from coterie.client.member.facts import PollIntervalExceeded
from coterie.client.member.find_coordinator import forget_coordinator
from coterie.client.member.leave_group import send_leave_group
from coterie.client.member.member import DUE, HEARTBEAT, MemberData
from coterie.client.member.reset_generation import DROPS, drop, drop_for, fence
from coterie.client.member.states import ApiName, ErrorAction, code_of, error_for, on_error
from coterie.errors import ErrorCode
from coterie.facts import Emit
from coterie.protocol.messages import Heartbeat


def heartbeat_due(member: MemberData, _event: HeartbeatDue, now_ms: int) -> Effects:
    if not member.is_beating:
        return []
    if now_ms >= member.poll_deadline_ms and _poll_counts(member):
        return _poll_timeout_expired(member, now_ms)
    if member.coordinator is None:
        return [_look_again(member, now_ms)]
    if now_ms >= member.session_deadline_ms:
        # Nothing was answered for a whole session: this coordinator, or the way to it, is gone.
        cause = f"no heartbeat was answered for session.timeout.ms ({member.settings.session_timeout_ms} ms)"
        member.heartbeat_in_flight = None
        return [*forget_coordinator(member, cause, now_ms), _look_again(member, now_ms)]
    if member.heartbeat_in_flight is not None or now_ms < member.heartbeat_at_ms:
        return [_look_again(member, now_ms)]
    request = member.heartbeat_request or _build(member)
    then = request.then
    then.reply = then.error = None
    member.heartbeat_in_flight = then
    member.heartbeat_at_ms = now_ms + member.settings.heartbeat_interval_ms
    return [request, _look_again(member, now_ms)]


def _poll_counts(member: MemberData) -> bool:
    """Inside poll the user is here, unless it is the listener that keeps it."""
    return (not member.polling or member.calling is not None) and member.ending is None


def _look_again(member: MemberData, now_ms: int) -> StartTimer:
    at_ms = member.heartbeat_at_ms
    if at_ms <= now_ms:
        at_ms = now_ms + member.settings.heartbeat_interval_ms
    if now_ms < member.session_deadline_ms < at_ms:
        at_ms = member.session_deadline_ms
    if now_ms < member.poll_deadline_ms < at_ms and _poll_counts(member):
        at_ms = member.poll_deadline_ms
    return StartTimer(HEARTBEAT, at_ms, DUE)


def _build(member: MemberData) -> SendRequest:
    settings = member.settings
    request = Heartbeat(None, settings.group_id, member.member_id, settings.group_instance_id, member.generation_id)
    then = HeartbeatAnswered(member.generation_id, member.member_id)
    member.heartbeat_request = SendRequest(member.coordinator, request, settings.request_timeout_ms, then)
    return member.heartbeat_request


def heartbeat_answered(member: MemberData, event: HeartbeatAnswered, now_ms: int) -> Effects:
    if event is not member.heartbeat_in_flight:
        return []  # of an older generation, or of a time before the join (KAFKA-9823)
    member.heartbeat_in_flight = None
    if event.error is None and event.reply is ErrorCode.NONE:
        member.session_deadline_ms = now_ms + member.settings.session_timeout_ms
        member.heartbeat_failures = 0
        return []
    return _refused(member, event.reply if event.error is None else code_of(event.error), now_ms)


def _refused(member: MemberData, code: ErrorCode, now_ms: int) -> Effects:
    what = on_error(ApiName.HEARTBEAT, code)
    if what is ErrorAction.REJOIN:
        member.session_deadline_ms = now_ms + member.settings.session_timeout_ms
        member.heartbeat_failures = 0
        if member.is_settled:  # else it is on its way already
            member.rejoin_reason = "group is already rebalancing"
        return []
    if what is ErrorAction.FATAL:
        return fence(member, error_for(ApiName.HEARTBEAT, code, member.settings), now_ms)
    if what in DROPS:
        return drop_for(member, ApiName.HEARTBEAT, code, what, now_ms)
    effects: Effects = []
    if what is ErrorAction.FIND_COORDINATOR:
        effects = forget_coordinator(member, f"{code.name} in answer to {ApiName.HEARTBEAT}", now_ms)
    elif what is ErrorAction.FAIL and member.ending is None:
        effects = [Fail(error_for(ApiName.HEARTBEAT, code, member.settings))]
    backoff_ms = min(member.backoff_ms(member.heartbeat_failures), member.settings.heartbeat_interval_ms)
    member.heartbeat_at_ms = now_ms + backoff_ms
    member.heartbeat_failures += 1
    return [*effects, _look_again(member, now_ms)]


def _poll_timeout_expired(member: MemberData, now_ms: int) -> Effects:
    settings = member.settings
    leaves = settings.group_instance_id is None
    exceeded = Emit(PollIntervalExceeded(now_ms, settings.group_id, settings.max_poll_interval_ms, leaves))
    member.poll_late_since_ms = member.poll_deadline_ms
    why = "consumer poll timeout has expired"
    effects = send_leave_group(member, why, now_ms) if leaves else []
    return [exceeded, *effects, *drop(member, why, now_ms)]
