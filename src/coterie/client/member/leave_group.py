"""LeaveGroup (M9, M13), on unsubscribe and close: commit, call the listener, stop heartbeats, leave, reset."""

from __future__ import annotations

from coterie.client.member.effects import (
    COORDINATOR_LANE,
    LEAVING_LANE,
    AskPositions,
    Effects,
    Ended,
    Listened,
    SendRequest,
    StartTimer,
    StopTimer,
)
from coterie.client.member.events import (
    CloseAsked,
    CloseDue,
    LeaveAnswered,
    PositionsAnswered,
    UnsubscribeAsked,
)
from coterie.client.member.facts import GroupLeft
from coterie.client.member.member import (
    AUTO_COMMIT,
    CLOSE,
    HEARTBEAT,
    JOIN_RETRY,
    PREPARE,
    MemberBase,
    MemberData,
    RequestKind,
)
from coterie.client.member.offset_commit import ask_commit, end
from coterie.client.member.reset_generation import reset_generation
from coterie.client.member.states import IN_A_REBALANCE, MemberState, enter
from coterie.client.member.subscription import ENDING_REASON, call_listener, subscribe, watch
from coterie.errors import KafkaError
from coterie.facts import Emit
from coterie.protocol.messages import MAX_REASON, LeaveGroup, LeavingMember


def unsubscribe_asked(member: MemberBase, event: UnsubscribeAsked, _now_ms: int) -> Effects:
    if member.ending is not None or not member.subscribed:
        return [Ended(event)]
    member.ending = event
    return []


def close_asked(member: MemberBase, event: CloseAsked, _now_ms: int) -> Effects:
    effects: Effects = []
    if member.is_closing:
        return [Ended(event)]
    if member.ending is not None:
        effects.append(Ended(member.ending, member.ending_error))
        member.ending_error = None
    member.ending = event
    return [*effects, StartTimer(CLOSE, event.until_ms, CloseDue())]


def start_leaving(member: MemberData, now_ms: int) -> Effects:
    """Give up the rebalance it is in, if any: its answers are ignored from now on."""
    is_parked = member.state in IN_A_REBALANCE and member.waiting_for is not None
    member.leaving_lane = LEAVING_LANE if is_parked else COORDINATOR_LANE
    member.waiting_for = None
    member.is_backing_off = False
    member.leave_is_sent = False
    enter(member, MemberState.LEAVING, now_ms)
    effects: Effects = [StopTimer(JOIN_RETRY), StopTimer(PREPARE), StopTimer(AUTO_COMMIT)]
    return [*effects, *commit_on_close(member, now_ms)]


def commit_on_close(member: MemberBase, now_ms: int) -> Effects:
    """A member that closes asks nothing more, and commits if auto-commit is on."""
    effects: Effects = []
    if member.is_closing:
        for pending in [one for one in member.pending_requests.values() if one.kind is RequestKind.COMMITTED]:
            effects += end(member, pending, closed_error(member), now_ms)
        if member.settings.enable_auto_commit and (member.is_settled or not member.subscribed):
            member.waiting_for = then = PositionsAnswered()
            effects.append(AskPositions(then))
    return effects


def positions_on_close(member: MemberBase, event: PositionsAnswered, now_ms: int) -> Effects:
    assert isinstance(member.ending, CloseAsked)
    return ask_commit(member, RequestKind.COMMIT_ON_CLOSE, None, event.reply or {}, member.ending.until_ms, now_ms)


def can_continue_leaving(member: MemberBase) -> bool:
    """A closing member waits for all commits that were asked for: after the leave they would be refused."""
    return member.waiting_for is None and member.calling is None and not (member.is_closing and member.pending_requests)


def continue_leaving(member: MemberData, now_ms: int) -> Effects:
    if member.assigned:
        kind = Listened.REVOKED if member.has_generation and member.is_settled else Listened.LOST
        return call_listener(member, kind, member.assigned, now_ms)
    if not member.leave_is_sent:
        assert member.ending is not None
        effects = [StopTimer(HEARTBEAT), *_maybe_leave_group(member, now_ms), *reset_generation(member)]
        member.leave_is_sent = True
        return effects
    return _finish(member, now_ms)


def _maybe_leave_group(member: MemberData, now_ms: int) -> Effects:
    asked = member.ending
    leaves = member.settings.group_instance_id is None
    if isinstance(asked, CloseAsked) and asked.leave is not None:
        leaves = asked.leave  # KIP-1092
    if not leaves or asked is None:
        return []
    effects = send_leave_group(member, ENDING_REASON[type(asked)], now_ms, member.leaving_lane)
    if member.is_closing and effects and isinstance(effects[0], SendRequest):
        member.waiting_for = effects[0].then
    return effects


def send_leave_group(member: MemberData, reason: str, now_ms: int, lane: str = COORDINATOR_LANE) -> Effects:
    """Send LeaveGroup once, without a retry: if it is lost, the session timeout ends the membership."""
    if not member.member_id:
        return []
    leave_sent = member.coordinator is not None
    fact = Emit(GroupLeft(now_ms, member.settings.group_id, member.member_id, reason, leave_sent))
    if not leave_sent:
        return [fact]
    leaving = LeavingMember(member.member_id, member.settings.group_instance_id, reason[:MAX_REASON])
    request = LeaveGroup(None, member.settings.group_id, [leaving])
    then = LeaveAnswered(member.generation_id, member.member_id)
    return [SendRequest(member.coordinator, request, member.settings.request_timeout_ms, then, lane), fact]


def leave_answered(member: MemberData, event: LeaveAnswered, _now_ms: int) -> Effects:
    """Ignore the answer to LeaveGroup, whatever it is (M13)."""
    if event is member.waiting_for:
        member.waiting_for = None
    return []


def close_due(member: MemberData, _event: CloseDue, now_ms: int) -> Effects:
    """The time to close is over: send what can still be sent, and wait for no answer."""
    if not member.is_closing:
        return []
    effects: Effects = []
    if member.state is not MemberState.LEAVING:
        effects = start_leaving(member, now_ms)
    if not member.leave_is_sent:
        effects += [StopTimer(HEARTBEAT), *_maybe_leave_group(member, now_ms), *reset_generation(member)]
    return [*effects, *_finish(member, now_ms)]


def _finish(member: MemberData, now_ms: int) -> Effects:
    assert member.ending is not None
    asked, error = member.ending, member.ending_error
    member.ending = member.ending_error = member.waiting_for = member.calling = None
    member.subscribed = member.stalled = member.is_prepared = member.is_revocation_announced = False
    member.topics, member.pattern, member.joined_topics = frozenset(), None, None
    member.group_topics, member.rejoin_reason, member.failure = frozenset(), None, None
    member.assigned, member.failures = frozenset(), 0
    effects = watch(member)
    if isinstance(asked, UnsubscribeAsked):
        enter(member, MemberState.UNJOINED, now_ms)
        effects.append(Ended(asked, error))
        following, member.next_subscription = member.next_subscription, None
        return effects if following is None else [*effects, *subscribe(member, following, now_ms)]
    for pending in list(member.pending_requests.values()):
        effects += end(member, pending, closed_error(member), now_ms)
    enter(member, MemberState.CLOSED, now_ms)
    return [*effects, StopTimer(CLOSE), Ended(asked, error)]


def closed_error(member: MemberBase) -> KafkaError:
    return KafkaError(f'the consumer of group "{member.settings.group_id}" is closed; open a new one')
