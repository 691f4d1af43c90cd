"""The member as drivers see it: an event in, effects out. RULES says which function handles what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.client.member import events
from coterie.client.member.agenda import go_on
from coterie.client.member.effects import CommitEnded, CommittedEnded, Effects, Emit, Ended
from coterie.client.member.explain import explain
from coterie.client.member.facts import PollResumed
from coterie.client.member.find_coordinator import coordinator_answered
from coterie.client.member.heartbeat import heartbeat_answered, heartbeat_due
from coterie.client.member.join_group import join_answered, metadata_for_pattern, positions_before_join, prepare_due
from coterie.client.member.leave_group import (
    close_asked,
    close_due,
    closed_error,
    leave_answered,
    positions_on_close,
    unsubscribe_asked,
)
from coterie.client.member.member import FIND_RETRY, PENDING_REQUEST, Member
from coterie.client.member.offset_commit import (
    auto_commit_due,
    auto_commit_if_due,
    commit_answered,
    commit_asked,
    committed_answered,
    committed_asked,
    lookup_failed,
    pending_request_due,
    positions_for_auto_commit,
    topics_answered,
)
from coterie.client.member.states import MemberState
from coterie.client.member.subscription import listener_answered, metadata_changed, rejoin_asked, subscribe
from coterie.client.member.sync_group import group_metadata_there, sync_answered

__all__ = ["RULES", "Membership"]


def _poll_began(member: Member, _event: events.PollBegan, now_ms: int) -> Effects:
    member.polling = True
    member.stalled = False
    late_since_ms = member.poll_late_since_ms
    if late_since_ms is None:
        return auto_commit_if_due(member, now_ms)
    member.poll_late_since_ms = None
    resumed = Emit(PollResumed(now_ms, member.settings.group_id, now_ms - late_since_ms))
    return [resumed, *auto_commit_if_due(member, now_ms)]


def _poll_ended(member: Member, _event: events.PollEnded, now_ms: int) -> Effects:
    member.polling = False
    member.poll_deadline_ms = now_ms + member.settings.max_poll_interval_ms
    return []


def _retry_due(member: Member, event: events.RetryDue, now_ms: int) -> Effects:
    if event.what == PENDING_REQUEST:
        return pending_request_due(member, event, now_ms)
    if event.what == FIND_RETRY:
        member.is_finding_later = False
    else:
        member.is_backing_off = False
    return []


def _coordinator_answered(member: Member, event: events.CoordinatorAnswered, now_ms: int) -> Effects:
    return [*coordinator_answered(member, event, now_ms), *lookup_failed(member, event, now_ms)]


def _metadata_answered(member: Member, event: events.MetadataAnswered, now_ms: int) -> Effects:
    if event is not member.waiting_for:
        return []
    member.waiting_for = None
    rule = group_metadata_there if member.state is MemberState.LEADING else metadata_for_pattern
    return rule(member, event, now_ms)


def _positions_answered(member: Member, event: events.PositionsAnswered, now_ms: int) -> Effects:
    if event is member.auto_asked:
        member.auto_asked = None
        return positions_for_auto_commit(member, event, now_ms)
    if event is not member.waiting_for:
        return []
    member.waiting_for = None
    rule = positions_on_close if member.state is MemberState.LEAVING else positions_before_join
    return rule(member, event, now_ms)


RULES: Mapping[type, Callable[[Any, Any, int], Effects]] = {
    # what the user does
    events.Subscribed: subscribe,
    events.UnsubscribeAsked: unsubscribe_asked,
    events.PollBegan: _poll_began,
    events.PollEnded: _poll_ended,
    events.CommitAsked: commit_asked,
    events.CommittedAsked: committed_asked,
    events.RejoinAsked: rejoin_asked,
    events.CloseAsked: close_asked,
    # news of the cluster
    events.MetadataChanged: metadata_changed,
    # answers to effects
    events.CoordinatorAnswered: _coordinator_answered,
    events.MetadataAnswered: _metadata_answered,
    events.PositionsAnswered: _positions_answered,
    events.TopicsAnswered: topics_answered,
    events.ListenerAnswered: listener_answered,
    events.JoinAnswered: join_answered,
    events.SyncAnswered: sync_answered,
    events.HeartbeatAnswered: heartbeat_answered,
    events.LeaveAnswered: leave_answered,
    events.CommitAnswered: commit_answered,
    events.CommittedAnswered: committed_answered,
    # timers that rang
    events.HeartbeatDue: heartbeat_due,
    events.RetryDue: _retry_due,
    events.PrepareDue: prepare_due,
    events.AutoCommitDue: auto_commit_due,
    events.CloseDue: close_due,
}


class Membership(Member):
    """One member of one group. Not for use by two threads at once."""

    __slots__ = ()

    def handle(self, event: Any, now_ms: int) -> Effects:
        """What follows from `event` at `now_ms`. Time may stand still, but never goes back."""
        if self.state is MemberState.CLOSED:
            return _when_closed(self, event)
        effects = RULES[type(event)](self, event, now_ms)
        go_on(self, effects, now_ms)
        return effects

    def explain(self, now_ms: int) -> str:
        """What the member is doing, what it waits for, and since when, in words."""
        return explain(self, now_ms)


def _when_closed(member: Member, event: Any) -> Effects:
    """Nobody is left waiting, and nothing is done any more."""
    if isinstance(event, events.CommitAsked):
        return [CommitEnded(event.token, closed_error(member))]
    if isinstance(event, events.CommittedAsked):
        return [CommittedEnded(event.token, {}, closed_error(member))]
    if isinstance(event, events.CloseAsked | events.UnsubscribeAsked):
        return [Ended(event)]
    return []
