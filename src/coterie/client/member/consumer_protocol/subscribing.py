"""Subscribe, unsubscribe and close.

A subscription has names, a pattern that the client matches, or a pattern that the broker matches. At the end a member
commits, calls the listener, leaves with a heartbeat of epoch -1 or -2, and resets.
"""

from __future__ import annotations

from coterie.client.member.consumer_protocol.fencing import back_off, join, reset_epoch
from coterie.client.member.consumer_protocol.heartbeat import send_leave
from coterie.client.member.consumer_protocol.member import RESOLVE_RETRY, ConsumerMemberData
from coterie.client.member.consumer_protocol.states import (
    CLOSED,
    IN_THE_GROUP,
    LEAVING,
    PREPARE_LEAVING,
    UNSUBSCRIBED,
    enter,
)
from coterie.client.member.effects import Effects, Ended, Fail, Listened, RefreshMetadata, SendRequest, StopTimer
from coterie.client.member.events import (
    CloseAsked,
    CloseDue,
    MetadataAnswered,
    MetadataChanged,
    RejoinAsked,
    Subscribed,
    UnsubscribeAsked,
)
from coterie.client.member.facts import RebalanceNotEnforced
from coterie.client.member.leave_group import closed_error, commit_on_close
from coterie.client.member.member import AUTO_COMMIT, CLOSE, JOIN_RETRY
from coterie.client.member.offset_commit import end
from coterie.client.member.subscription import ENDING_REASON, call_listener, matching, take_matching, watch
from coterie.errors import KafkaError
from coterie.facts import Emit


def subscribe(member: ConsumerMemberData, event: Subscribed, _now_ms: int) -> Effects:
    if member.ending is not None:
        member.next_subscription = event
        return []
    member.member_id = member.member_id or event.fresh_id
    assert member.member_id, "the member makes its own id in this protocol: Subscribed.fresh_id"
    member.pattern, member.remote_pattern = event.pattern, event.remote_pattern
    member.topics = frozenset(event.topics) if event.pattern is None else matching(event.pattern, member.metadata)
    member.subscribed = True
    _report(member)
    return watch(member)


def _report(member: ConsumerMemberData) -> None:
    """Report the changed subscription to the coordinator at once."""
    sent = member.sent
    if member.state in IN_THE_GROUP and (sent.topics, sent.remote_pattern) != (member.topics, member.remote_pattern):
        member.wants_heartbeat = True


def can_join(member: ConsumerMemberData) -> bool:
    return (
        member.state is UNSUBSCRIBED
        and member.polling
        and member.subscribed
        and not member.stalled
        and not member.is_backing_off
        and member.waiting_for is None
    )


def start_joining(member: ConsumerMemberData, now_ms: int) -> Effects:
    if member.pattern is None:
        return join(member, "", now_ms)
    member.waiting_for = then = MetadataAnswered()
    return [RefreshMetadata(None, then)]


def metadata_answered(member: ConsumerMemberData, event: MetadataAnswered, now_ms: int) -> Effects:
    """The topics that the pattern matches are known before the first heartbeat names them."""
    if event is not member.waiting_for:
        return []
    member.waiting_for = None
    if event.error is not None:
        if isinstance(event.error, KafkaError) and event.error.retriable:
            return back_off(member, now_ms)
        member.stalled = True
        return [Fail(event.error)]
    member.metadata = event.reply
    take_matching(member)
    return [*watch(member), *join(member, "", now_ms)]


def metadata_changed(member: ConsumerMemberData, event: MetadataChanged, _now_ms: int) -> Effects:
    member.metadata = event.topics
    take_matching(member)
    _report(member)
    return watch(member)


def rejoin_asked(member: ConsumerMemberData, event: RejoinAsked, now_ms: int) -> Effects:
    """Report that there is no rebalance to enforce: the broker assigns, and nothing would change."""
    return [Emit(RebalanceNotEnforced(now_ms, member.settings.group_id, event.reason))]


# --- unsubscribe and close --------------------------------------------------------------------------------------------


def start_leaving(member: ConsumerMemberData, now_ms: int) -> Effects:
    """End a reconciliation that is under way. Heartbeats continue until the leave is sent."""
    member.waiting_for = member.reconciling = member.resolving = None
    member.is_backing_off = False
    enter(member, PREPARE_LEAVING, now_ms)
    effects: Effects = [StopTimer(JOIN_RETRY), StopTimer(RESOLVE_RETRY), StopTimer(AUTO_COMMIT)]
    return [*effects, *commit_on_close(member, now_ms)]


def prepare_leaving(member: ConsumerMemberData, now_ms: int) -> Effects:
    if member.assigned:
        kind = Listened.REVOKED if member.has_generation else Listened.LOST
        return call_listener(member, kind, member.assigned, now_ms)
    return _leave(member, now_ms)


def _leave(member: ConsumerMemberData, now_ms: int) -> Effects:
    """A dynamic member that is to stay says nothing (KIP-1092); its session ends by itself."""
    asked = member.ending
    assert asked is not None
    enter(member, LEAVING, now_ms)
    stays = isinstance(asked, CloseAsked) and asked.leave is False and not member.is_static
    effects = [] if stays else send_leave(member, ENDING_REASON[type(asked)], now_ms)
    member.may_be_member = False
    effects = [*effects, *reset_epoch(member)]
    if member.is_closing and isinstance(effects[0], SendRequest):
        member.waiting_for = effects[0].then
    return effects


def has_left(member: ConsumerMemberData) -> bool:
    return member.waiting_for is None


def close_due(member: ConsumerMemberData, _event: CloseDue, now_ms: int) -> Effects:
    """Time is over: what can still be said is said, and nothing is waited for."""
    if not member.is_closing:
        return []
    effects: Effects = []
    if member.state not in {PREPARE_LEAVING, LEAVING}:
        effects += start_leaving(member, now_ms)
    if member.state is not LEAVING:
        effects += _leave(member, now_ms)
    return [*effects, *finish(member, now_ms)]


def finish(member: ConsumerMemberData, now_ms: int) -> Effects:
    assert member.ending is not None
    asked, error = member.ending, member.ending_error
    member.ending = member.ending_error = member.waiting_for = member.calling = member.failure = None
    member.subscribed = member.stalled = False
    member.topics, member.pattern, member.remote_pattern = frozenset(), None, None
    member.group_topics, member.assigned, member.failures = frozenset(), frozenset(), 0
    effects = watch(member)
    if isinstance(asked, UnsubscribeAsked):
        enter(member, UNSUBSCRIBED, now_ms)
        effects.append(Ended(asked, error))
        following, member.next_subscription = member.next_subscription, None
        return effects if following is None else [*effects, *subscribe(member, following, now_ms)]
    for pending in list(member.pending_requests.values()):
        effects += end(member, pending, closed_error(member), now_ms)
    enter(member, CLOSED, now_ms)
    return [*effects, StopTimer(CLOSE), Ended(asked, error)]
