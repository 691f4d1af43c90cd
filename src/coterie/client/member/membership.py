"""The member as drivers see it: an event in, effects out. RULES says which function handles what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.client.member import events
from coterie.client.member.agenda import go_on
from coterie.client.member.auto_commit import auto_commit_due, auto_commit_if_due, positions_for_auto_commit
from coterie.client.member.committing import commit_answered, commit_asked, topics_answered
from coterie.client.member.effects import CommitEnded, CommittedEnded, Effects, Ended, Tell
from coterie.client.member.events import (
    CommittedAnswered,
    CommittedAsked,
    JoinAnswered,
    LeaveAnswered,
    MetadataAnswered,
    PositionsAnswered,
    SyncAnswered,
)
from coterie.client.member.facts import PollResumed
from coterie.client.member.finding import coordinator_answered
from coterie.client.member.heartbeat import heartbeat_answered, heartbeat_due
from coterie.client.member.joining import join_answered
from coterie.client.member.leading import group_metadata_there
from coterie.client.member.leaving import (
    close_asked,
    close_due,
    closed_error,
    leave_answered,
    positions_on_close,
    unsubscribe_asked,
)
from coterie.client.member.listener_calls import listener_answered
from coterie.client.member.member import Member
from coterie.client.member.member_timers import FIND_RETRY, PENDING_REQUEST
from coterie.client.member.pending_requests import Kind, PendingRequest
from coterie.client.member.preparing import metadata_for_pattern, positions_before_join, prepare_due
from coterie.client.member.sending import end, give, lookup_failed, pending_request_due, try_later
from coterie.client.member.states import DOING, Api, Do, Stage, on_error
from coterie.client.member.subscribing import metadata_changed, rejoin_asked, subscribe
from coterie.client.member.syncing import sync_answered
from coterie.client.member.user_errors import code_of, error_for, said
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.messages import OffsetsFetched

__all__ = ["RULES", "Membership"]


# What a member is doing, in words: for people who look at a consumer that does nothing and want to know why.

_ANSWERS = {
    JoinAnswered: "the answer to JoinGroup, which comes when all members have joined or the rebalance timeout is over",
    SyncAnswered: "the answer to SyncGroup, which comes when the leader has assigned the partitions",
    MetadataAnswered: "metadata from the cluster",
    PositionsAnswered: "the positions to commit",
    LeaveAnswered: "the answer to LeaveGroup",
}


def explain(member: Member, now_ms: int) -> str:
    who = f'member "{member.member_id}"' if member.member_id else "a consumer without a member id"
    if member.settings.group_instance_id is not None:
        who += f' (instance "{member.settings.group_instance_id}")'
    since = f" for {_seconds(now_ms - member.stage_since_ms)}" if member.stage_since_ms else ""
    sentences = [f'{who} of group "{member.settings.group_id}" is {member.stage}{since}: it {DOING[member.stage]}']
    if member.has_generation:
        sentences.append(f"generation {member.generation_id}, {_count(len(member.assigned), 'partition')}")
    elif member.assigned:
        sentences.append(f"it has lost {_count(len(member.assigned), 'partition')}; the next poll tells the listener")
    if member.failure is not None:
        sentences.append(str(member.failure))
    if waits := _waits_for(member, now_ms):
        sentences.append(f"it waits for {waits}")
    if member.stage in {Stage.STABLE, Stage.UNJOINED} and member.subscribed and member.reason_to_rejoin:
        sentences.append(f"it wants to rejoin: {member.reason_to_rejoin}")
    if member.pending_requests:
        kinds = sorted({pending.kind.value for pending in member.pending_requests.values()})
        sentences.append(f"{_count(len(member.pending_requests), 'request')} pending ({', '.join(kinds)})")
    return "; ".join(sentences) + "."


def _seconds(ms: int) -> str:
    return f"{round(ms / 1000, 2):g} s"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _waits_for(member: Member, now_ms: int) -> str | None:
    if member.stage is Stage.CLOSED:
        return None
    if member.calling is not None:
        return f"the rebalance listener to return ({member.calling.kind})"
    if member.waiting_for is not None:
        return _ANSWERS[type(member.waiting_for)]
    if member.coordinator is None and member.is_finding_later:
        return f"the next FindCoordinator request ({member.find_failures} failed)"
    if member.coordinator is None and member.finding is not None:
        return "the answer to FindCoordinator"
    if member.is_backing_off:
        return f"the end of a back-off after {_count(member.failures, 'failed attempt')}"
    if member.stage is Stage.PREPARING and not member.is_prepared:
        return "the commit before the join"
    if member.stage is Stage.LEAVING and member.pending_requests:
        return "the answers to its commits"
    if member.stage is Stage.UNJOINED and not member.subscribed:
        return "a subscription"
    if member.stage is Stage.STABLE and member.reason_to_rejoin is None:
        overdue_ms = now_ms - member.poll_deadline_ms + member.settings.max_poll_interval_ms
        return None if member.polling else f"the next poll (the last one ended {_seconds(overdue_ms)} ago)"
    return None if member.polling else "the next poll"


# Asking what the group has committed (M6): the position of a partition that is new here.


def committed_asked(member: Member, event: CommittedAsked, _now_ms: int) -> Effects:
    if not event.partitions:
        return [CommittedEnded(event.token, {})]
    return give(member, Kind.COMMITTED, event.token, event.until_ms, {}, event.partitions)


def committed_answered(member: Member, event: CommittedAnswered, now_ms: int) -> Effects:
    pending = member.pending_requests.get(event.number)
    if pending is None or not pending.in_flight:
        return []
    pending.in_flight = False
    if event.error is not None:
        code, error = code_of(event.error), said(Api.OFFSET_FETCH, event.error, member.settings)
    else:
        code, about = _first_error(event.reply)
        if not code:
            return _found(member, pending, event.reply, now_ms)
        error = error_for(Api.OFFSET_FETCH, code, member.settings, about)
    if on_error(Api.OFFSET_FETCH, code) is not Do.FAIL and isinstance(error, KafkaError):
        return try_later(member, pending, Api.OFFSET_FETCH, error, now_ms)
    return end(member, pending, error, now_ms)


def _first_error(reply: OffsetsFetched) -> tuple[ErrorCode, str]:
    if reply.error:
        return reply.error, ""
    wrong = [one for one in reply.partitions if one.error]
    if not wrong:
        return ErrorCode.NONE, ""
    # What only takes time comes last: no use in waiting for it if something else is refused.
    fatal = [one for one in wrong if on_error(Api.OFFSET_FETCH, one.error) is Do.FAIL]
    first = (fatal or wrong)[0]
    return first.error, f"{first.topic}-{first.partition}"


def _found(member: Member, pending: PendingRequest, reply: OffsetsFetched, now_ms: int) -> Effects:
    offsets = {
        TopicPartition(one.topic, one.partition): OffsetAndMetadata(
            one.offset, one.metadata or "", leader_epoch=one.leader_epoch
        )
        for one in reply.partitions
        if one.offset >= 0
    }
    return end(member, pending, None, now_ms, offsets)


def _poll_began(member: Member, _event: events.PollBegan, now_ms: int) -> Effects:
    member.polling = True
    member.stalled = False
    late_since_ms = member.poll_late_since_ms
    if late_since_ms is None:
        return auto_commit_if_due(member, now_ms)
    member.poll_late_since_ms = None
    resumed = Tell(PollResumed(now_ms, member.settings.group_id, now_ms - late_since_ms))
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
    rule = group_metadata_there if member.stage is Stage.LEADING else metadata_for_pattern
    return rule(member, event, now_ms)


def _positions_answered(member: Member, event: events.PositionsAnswered, now_ms: int) -> Effects:
    if event is member.auto_asked:
        member.auto_asked = None
        return positions_for_auto_commit(member, event, now_ms)
    if event is not member.waiting_for:
        return []
    member.waiting_for = None
    rule = positions_on_close if member.stage is Stage.LEAVING else positions_before_join
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
        if self.stage is Stage.CLOSED:
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
