"""The member as drivers see it: an event in, effects out. RULES has the function that handles each event.

OF_BOTH_PROTOCOLS has those that a member of a KIP-848 group (`consumer_protocol/`) handles in the same way.

A rule changes data and answers its event. Then the next step of the state is taken, if it can be (AGENDA). So a step
that had to wait need not be called from each place that makes it possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from coterie.client.member import events
from coterie.client.member.effects import CommitEnded, CommittedEnded, Effects, Ended, Fail, Listened
from coterie.client.member.events import (
    JoinAnswered,
    LeaveAnswered,
    MetadataAnswered,
    PositionsAnswered,
    SyncAnswered,
)
from coterie.client.member.facts import PollResumed
from coterie.client.member.find_coordinator import can_find, coordinator_answered, find_coordinator
from coterie.client.member.heartbeat import heartbeat_answered, heartbeat_due
from coterie.client.member.join_group import (
    can_join,
    can_rejoin,
    can_revoke_before_join,
    join_answered,
    metadata_for_pattern,
    on_join_prepare,
    positions_before_join,
    prepare_due,
    rejoin,
    send_join_group,
)
from coterie.client.member.leave_group import (
    can_continue_leaving,
    close_asked,
    close_due,
    closed_error,
    continue_leaving,
    leave_answered,
    positions_on_close,
    start_leaving,
    unsubscribe_asked,
)
from coterie.client.member.member import FIND_RETRY, PENDING_REQUEST, MemberBase, MemberData
from coterie.client.member.offset_commit import (
    auto_commit_due,
    auto_commit_if_due,
    can_send,
    commit_answered,
    commit_asked,
    committed_answered,
    committed_asked,
    lookup_failed,
    pending_request_due,
    positions_for_auto_commit,
    send_pending_requests,
    topics_answered,
)
from coterie.client.member.states import DOING, MemberState
from coterie.client.member.subscription import (
    call_listener,
    listener_answered,
    metadata_changed,
    rejoin_asked,
    subscribe,
)
from coterie.client.member.sync_group import (
    ask_metadata,
    can_ask_metadata,
    can_complete_join,
    group_metadata_there,
    on_join_complete,
    sync_answered,
)
from coterie.errors import IllegalTransitionError
from coterie.facts import Emit

Step = Callable[[MemberData, int], Effects]
Rule = Callable[[Any, Any, int], Effects]


def can_raise_failure(member: MemberBase) -> bool:
    return member.may_call and not member.stalled


def raise_failure(member: MemberBase, now_ms: int) -> Effects:
    """Raise the error in each poll."""
    assert member.failure is not None
    if member.assigned:
        return call_listener(member, Listened.LOST, member.assigned, now_ms)
    member.stalled = True
    return [Fail(member.failure)]


AGENDA: Mapping[MemberState, tuple[Callable[[MemberData], bool], Step] | None] = {
    MemberState.UNJOINED: (can_rejoin, rejoin),
    MemberState.PREPARING: (can_revoke_before_join, on_join_prepare),
    MemberState.JOINING: (can_join, send_join_group),
    MemberState.LEADING: (can_ask_metadata, ask_metadata),
    MemberState.SYNCING: None,
    MemberState.COMPLETING: (can_complete_join, on_join_complete),
    MemberState.STABLE: (can_rejoin, rejoin),
    MemberState.LEAVING: (can_continue_leaving, continue_leaving),
    MemberState.FENCED: (can_raise_failure, raise_failure),
    MemberState.CLOSED: None,
}
_MOST_STEPS = 50
MemberT = TypeVar("MemberT", bound=MemberBase)
_ENDING_ALREADY = frozenset({MemberState.LEAVING, MemberState.CLOSED})


def take_steps(
    member: MemberT,
    next_step: Callable[[MemberT], Callable[[MemberT, int], Effects] | None],
    effects: Effects,
    now_ms: int,
) -> None:
    """Take every step that can be taken now, and append its effects to `effects`."""
    steps = 0
    while (step := next_step(member)) is not None:
        steps += 1
        if steps > _MOST_STEPS:
            raise IllegalTransitionError(f"{_MOST_STEPS} steps in {member.state} without an end: a bug in Coterie")
        effects += step(member, now_ms)


def _next(member: MemberData) -> Step | None:
    if member.coordinator is None:
        if can_find(member):
            return find_coordinator
    elif member.unsent and can_send(member):
        return send_pending_requests
    if member.ending is not None and member.state not in _ENDING_ALREADY:
        return start_leaving if member.calling is None else None
    entry = AGENDA[member.state]
    if entry is not None and entry[0](member):
        return entry[1]
    return None


_ANSWERS: Mapping[type, str] = {
    JoinAnswered: "the answer to JoinGroup, which comes when all members have joined or the rebalance timeout is over",
    SyncAnswered: "the answer to SyncGroup, which comes when the leader has assigned the partitions",
    MetadataAnswered: "metadata from the cluster",
    PositionsAnswered: "the positions to commit",
    LeaveAnswered: "the answer to LeaveGroup",
}


def explain(member: MemberData, now_ms: int) -> str:
    wants = ""
    if member.state in {MemberState.STABLE, MemberState.UNJOINED} and member.subscribed and member.reason_to_rejoin:
        wants = f"it wants to rejoin: {member.reason_to_rejoin}"
    return described(member, now_ms, DOING[member.state], "generation", _waits_for(member, now_ms), wants)


def described(member: MemberBase, now_ms: int, doing: str, number: str, waits: str | None, wants: str = "") -> str:
    """Describe a member in either protocol; `number` is what its generation is called."""
    who = f'member "{member.member_id}"' if member.member_id else "a consumer without a member id"
    if member.settings.group_instance_id is not None:
        who += f' (instance "{member.settings.group_instance_id}")'
    since = f" for {seconds(now_ms - member.state_since_ms)}" if member.state_since_ms else ""
    sentences = [f'{who} of group "{member.settings.group_id}" is {member.state}{since}: it {doing}']
    if member.has_generation:
        sentences.append(f"{number} {member.generation_id}, {counted(len(member.assigned), 'partition')}")
    elif member.assigned:
        sentences.append(f"it has lost {counted(len(member.assigned), 'partition')}; the next poll calls the listener")
    if member.failure is not None:
        sentences.append(str(member.failure))
    if waits:
        sentences.append(f"it waits for {waits}")
    if wants:
        sentences.append(wants)
    if member.pending_requests:
        kinds = sorted({pending.kind.value for pending in member.pending_requests.values()})
        sentences.append(f"{counted(len(member.pending_requests), 'request')} pending ({', '.join(kinds)})")
    return "; ".join(sentences) + "."


def seconds(ms: int) -> str:
    return f"{round(ms / 1000, 2):g} s"


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _waits_for(member: MemberData, now_ms: int) -> str | None:
    if member.state is MemberState.CLOSED:
        return None
    if waits := waits_in_either_protocol(member, _ANSWERS):
        return waits
    if member.state is MemberState.PREPARING and not member.is_prepared:
        return "the commit before the join"
    if member.state is MemberState.LEAVING and member.pending_requests:
        return "the answers to its commits"
    if member.state is MemberState.UNJOINED and not member.subscribed:
        return "a subscription"
    return waits_for_poll(
        member, now_ms, is_idle=member.state is MemberState.STABLE and member.reason_to_rejoin is None
    )


def waits_in_either_protocol(member: MemberBase, answers: Mapping[type, str]) -> str | None:
    if member.calling is not None:
        return f"the rebalance listener to return ({member.calling.kind})"
    if member.waiting_for is not None:
        return answers[type(member.waiting_for)]
    if member.coordinator is None and member.is_finding_later:
        return f"the next FindCoordinator request ({member.find_failures} failed)"
    if member.coordinator is None and member.finding is not None:
        return "the answer to FindCoordinator"
    if member.is_backing_off:
        return f"the end of a back-off after {counted(member.failures, 'failed attempt')}"
    return None


def waits_for_poll(member: MemberBase, now_ms: int, *, is_idle: bool) -> str | None:
    """`is_idle`: nothing but the user's own work keeps it from the next poll."""
    if member.polling:
        return None
    ago = seconds(now_ms - member.poll_deadline_ms + member.settings.max_poll_interval_ms)
    return f"the next poll (the last one ended {ago} ago)" if is_idle else "the next poll"


def poll_began(member: MemberBase, _event: events.PollBegan, now_ms: int) -> Effects:
    member.polling = True
    member.stalled = False
    late_since_ms = member.poll_late_since_ms
    if late_since_ms is None:
        return auto_commit_if_due(member, now_ms)
    member.poll_late_since_ms = None
    resumed = Emit(PollResumed(now_ms, member.settings.group_id, now_ms - late_since_ms))
    return [resumed, *auto_commit_if_due(member, now_ms)]


def poll_ended(member: MemberBase, _event: events.PollEnded, now_ms: int) -> Effects:
    member.polling = False
    member.poll_deadline_ms = now_ms + member.settings.max_poll_interval_ms
    return []


def retry_due(member: MemberBase, event: events.RetryDue, now_ms: int) -> Effects:
    if event.what == PENDING_REQUEST:
        return pending_request_due(member, event, now_ms)
    if event.what == FIND_RETRY:
        member.is_finding_later = False
    else:
        member.is_backing_off = False
    return []


def lookup_answered(member: MemberBase, event: events.CoordinatorAnswered, now_ms: int) -> Effects:
    return [*coordinator_answered(member, event, now_ms), *lookup_failed(member, event, now_ms)]


def _metadata_answered(member: MemberData, event: events.MetadataAnswered, now_ms: int) -> Effects:
    if event is not member.waiting_for:
        return []
    member.waiting_for = None
    rule = group_metadata_there if member.state is MemberState.LEADING else metadata_for_pattern
    return rule(member, event, now_ms)


def positions_answered(leaving: object, before_rebalance: Rule) -> Rule:
    """Return the rule for positions: those of an auto-commit, of a close in the state `leaving`, or of a rebalance."""

    def rule(member: MemberBase, event: events.PositionsAnswered, now_ms: int) -> Effects:
        if event is member.auto_asked:
            member.auto_asked = None
            return positions_for_auto_commit(member, event, now_ms)
        if event is not member.waiting_for:
            return []
        member.waiting_for = None
        return (positions_on_close if member.state is leaving else before_rebalance)(member, event, now_ms)

    return rule


OF_BOTH_PROTOCOLS: Mapping[type, Rule] = {
    # what the user does
    events.UnsubscribeAsked: unsubscribe_asked,
    events.PollBegan: poll_began,
    events.PollEnded: poll_ended,
    events.CommitAsked: commit_asked,
    events.CommittedAsked: committed_asked,
    events.CloseAsked: close_asked,
    # answers to effects
    events.CoordinatorAnswered: lookup_answered,
    events.TopicsAnswered: topics_answered,
    events.CommitAnswered: commit_answered,
    events.CommittedAnswered: committed_answered,
    # timers that rang
    events.AutoCommitDue: auto_commit_due,
}
RULES: Mapping[type, Rule] = {
    **OF_BOTH_PROTOCOLS,
    # what the user does
    events.Subscribed: subscribe,
    events.RejoinAsked: rejoin_asked,
    # news of the cluster
    events.MetadataChanged: metadata_changed,
    # answers to effects
    events.MetadataAnswered: _metadata_answered,
    events.PositionsAnswered: positions_answered(MemberState.LEAVING, positions_before_join),
    events.ListenerAnswered: listener_answered,
    events.JoinAnswered: join_answered,
    events.SyncAnswered: sync_answered,
    events.HeartbeatAnswered: heartbeat_answered,
    events.LeaveAnswered: leave_answered,
    # timers that rang
    events.HeartbeatDue: heartbeat_due,
    events.RetryDue: retry_due,
    events.PrepareDue: prepare_due,
    events.CloseDue: close_due,
}


class Membership(MemberData):
    """One member of one group. It is not thread-safe."""

    __slots__ = ()

    def handle(self, event: Any, now_ms: int) -> Effects:
        """Handle `event` at `now_ms`, and return the effects. Time may stand still, but never goes back."""
        if self.state is MemberState.CLOSED:
            return when_closed(self, event)
        effects = RULES[type(event)](self, event, now_ms)
        take_steps(self, _next, effects, now_ms)
        return effects

    def explain(self, now_ms: int) -> str:
        """Describe what the member is doing, what it waits for, and since when."""
        return explain(self, now_ms)


def when_closed(member: MemberBase, event: Any) -> Effects:
    """Answer requests of the user with an error, and ignore all else."""
    if isinstance(event, events.CommitAsked):
        return [CommitEnded(event.token, closed_error(member))]
    if isinstance(event, events.CommittedAsked):
        return [CommittedEnded(event.token, {}, closed_error(member))]
    if isinstance(event, events.CloseAsked | events.UnsubscribeAsked):
        return [Ended(event)]
    return []
