"""The member of a KIP-848 group as drivers see it: an event in, effects out, as `coterie.client.member.membership`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.client.member import events
from coterie.client.member.consumer_protocol.fencing import can_rejoin, rejoin
from coterie.client.member.consumer_protocol.heartbeat import (
    can_beat,
    heartbeat_answered,
    heartbeat_due,
    look,
    must_look_sooner,
    send_heartbeat,
)
from coterie.client.member.consumer_protocol.member import RESOLVE_RETRY, ConsumerMemberData
from coterie.client.member.consumer_protocol.reconciliation import (
    can_reconcile,
    can_resolve,
    listener_answered,
    positions_before_revocation,
    reconcile,
    resolve,
    topic_ids_answered,
)
from coterie.client.member.consumer_protocol.states import (
    ACKNOWLEDGING,
    CLOSED,
    DOING,
    FATAL,
    FENCED,
    JOINING,
    LEAVING,
    PREPARE_LEAVING,
    RECONCILING,
    STABLE,
    STALE,
    UNSUBSCRIBED,
    ConsumerMemberState,
)
from coterie.client.member.consumer_protocol.subscribing import (
    can_join,
    close_due,
    finish,
    has_left,
    metadata_answered,
    metadata_changed,
    prepare_leaving,
    rejoin_asked,
    start_joining,
    start_leaving,
    subscribe,
)
from coterie.client.member.effects import Effects
from coterie.client.member.find_coordinator import can_find, find_coordinator
from coterie.client.member.leave_group import can_continue_leaving
from coterie.client.member.member import RequestKind
from coterie.client.member.membership import (
    OF_BOTH_PROTOCOLS,
    Rule,
    can_raise_failure,
    counted,
    described,
    positions_answered,
    raise_failure,
    retry_due,
    take_steps,
    waits_for_poll,
    waits_in_either_protocol,
    when_closed,
)
from coterie.client.member.offset_commit import can_send, send_pending_requests

Step = Callable[[ConsumerMemberData, int], Effects]


def _can_rejoin_stale(member: ConsumerMemberData) -> bool:
    """The user is back."""
    return member.polling and can_rejoin(member)


AGENDA: Mapping[ConsumerMemberState, tuple[Callable[[ConsumerMemberData], bool], Step] | None] = {
    UNSUBSCRIBED: (can_join, start_joining),
    JOINING: None,
    RECONCILING: (can_reconcile, reconcile),
    ACKNOWLEDGING: None,
    STABLE: None,
    FENCED: (can_rejoin, rejoin),
    STALE: (_can_rejoin_stale, rejoin),
    FATAL: (can_raise_failure, raise_failure),
    PREPARE_LEAVING: (can_continue_leaving, prepare_leaving),
    LEAVING: (has_left, finish),
    CLOSED: None,
}
"""The next action in each state, beside heartbeats."""
_ENDING_ALREADY = frozenset({PREPARE_LEAVING, LEAVING, CLOSED})


def _next(member: ConsumerMemberData) -> Step | None:
    if member.coordinator is None:
        if can_find(member):
            return find_coordinator
    elif can_send(member):
        return send_pending_requests
    if can_beat(member):
        return send_heartbeat
    if member.ending is not None and member.state not in _ENDING_ALREADY:
        return start_leaving if member.calling is None else None
    if can_resolve(member):
        return resolve
    entry = AGENDA[member.state]
    if entry is not None and entry[0](member):
        return entry[1]
    return None


def _retry_due(member: ConsumerMemberData, event: events.RetryDue, now_ms: int) -> Effects:
    if event.what == RESOLVE_RETRY:
        member.is_resolving_later = False
        return []
    return retry_due(member, event, now_ms)


RULES: Mapping[type, Rule] = {
    **OF_BOTH_PROTOCOLS,
    # what the user does
    events.Subscribed: subscribe,
    events.RejoinAsked: rejoin_asked,
    # news of the cluster
    events.MetadataChanged: metadata_changed,
    # answers to effects
    events.MetadataAnswered: metadata_answered,
    events.PositionsAnswered: positions_answered(PREPARE_LEAVING, positions_before_revocation),
    events.TopicIdsAnswered: topic_ids_answered,
    events.ListenerAnswered: listener_answered,
    events.ConsumerHeartbeatAnswered: heartbeat_answered,
    # timers that rang
    events.HeartbeatDue: heartbeat_due,
    events.RetryDue: _retry_due,
    events.CloseDue: close_due,
}


class ConsumerMembership(ConsumerMemberData):
    """One member of one group. It is not thread-safe."""

    __slots__ = ()

    def handle(self, event: Any, now_ms: int) -> Effects:
        """Handle `event` at `now_ms`, and return the effects. Time may stand still, but never goes back."""
        if self.state is CLOSED:
            return when_closed(self, event)
        effects = RULES[type(event)](self, event, now_ms)
        take_steps(self, _next, effects, now_ms)
        if must_look_sooner(self, now_ms):
            effects.append(look(self, now_ms))
        return effects

    def explain(self, now_ms: int) -> str:
        """Describe what the member is doing, in which epoch, what it waits for, and since when."""
        return described(self, now_ms, DOING[self.state], "member epoch", _waits_for(self, now_ms))


_ANSWERS: Mapping[type, str] = {
    events.MetadataAnswered: "metadata from the cluster",
    events.PositionsAnswered: "the positions to commit",
    events.ConsumerHeartbeatAnswered: "the answer to its leave",
}


def _waits_for(member: ConsumerMemberData, now_ms: int) -> str | None:
    if member.state is CLOSED:
        return None
    if waits := waits_in_either_protocol(member, _ANSWERS):
        return waits
    if member.state is JOINING:
        return "the answer to its heartbeat" if member.polling or not member.stalled else "the next poll"
    if member.state is PREPARE_LEAVING and member.pending_requests:
        return "the answers to its commits"
    if member.state is UNSUBSCRIBED and not member.subscribed:
        return "a subscription"
    if any(one.kind is RequestKind.COMMIT_BEFORE_REVOCATION for one in member.pending_requests.values()):
        return "the commit before the revocation"
    if member.state is RECONCILING and member.polling and member.unresolved:
        return f"metadata of {counted(len(member.unresolved), 'topic')} that it is assigned"
    return waits_for_poll(member, now_ms, is_idle=member.state in {STABLE, ACKNOWLEDGING})
