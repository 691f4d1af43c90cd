"""Reconciliation: a member goes from the partitions that it owns to those that it is assigned.

During a poll: commit and revoke what is not assigned any more, take what is new, and acknowledge by a heartbeat. The
coordinator gives a revoked partition to another member only after that. Topics come by id: partitions of a topic that
the metadata does not have yet wait until it does.
"""

from __future__ import annotations

from coterie.client.member.consumer_protocol.member import RESOLVE_RETRY, ConsumerMemberData, Reconciliation
from coterie.client.member.consumer_protocol.states import (
    ACKNOWLEDGING,
    JOINING,
    RECONCILING,
    STABLE,
    enter,
)
from coterie.client.member.effects import (
    AskPositions,
    Effects,
    HoldPartitions,
    Listened,
    ResolveTopicIds,
    SetAssignment,
    StartTimer,
)
from coterie.client.member.events import ListenerAnswered, PositionsAnswered, RetryDue, TopicIdsAnswered
from coterie.client.member.facts import AssignmentReconciled, ReconciliationBegan, TopicIdsUnknown
from coterie.client.member.member import RequestKind
from coterie.client.member.offset_commit import ask_commit, restart_auto_commit
from coterie.client.member.subscription import ENDING_REASON, call_listener, given_up, listener_failed, watch
from coterie.client.types import TopicPartition
from coterie.facts import Emit
from coterie.protocol.apis.consumer_group_heartbeat import Assignment


def take_target(member: ConsumerMemberData, assignment: Assignment | None, now_ms: int) -> None:
    """The coordinator has answered; None: the assignment is as before."""
    if assignment is not None:
        target = {
            one.topic_id: frozenset(one.partitions)
            for one in assignment.topic_partitions
            if one.topic_id is not None and one.partitions
        }
        if target != member.target or not member.target_number:
            member.target, member.target_number = target, member.target_number + 1
    if member.is_reconciled and member.reconciling is None:
        if member.state in {JOINING, RECONCILING}:
            enter(member, STABLE, now_ms)
    elif member.state in {JOINING, STABLE}:
        enter(member, RECONCILING, now_ms)


# --- names of topics --------------------------------------------------------------------------------------------------


def can_resolve(member: ConsumerMemberData) -> bool:
    return (
        member.state is RECONCILING
        and member.resolving is None
        and not member.is_resolving_later
        and bool(member.unresolved)
    )


def resolve(member: ConsumerMemberData, _now_ms: int) -> Effects:
    member.resolving = then = TopicIdsAnswered()
    return [ResolveTopicIds(member.unresolved, then)]


def topic_ids_answered(member: ConsumerMemberData, event: TopicIdsAnswered, now_ms: int) -> Effects:
    if event is not member.resolving:
        return []
    member.resolving = None
    known = {**member.topic_names, **(event.reply or {})}
    wanted = member.target.keys() | member.owned.keys()
    member.topic_names = {topic_id: name for topic_id, name in known.items() if topic_id in wanted}
    unknown = member.unresolved
    if not unknown:
        return []
    member.is_resolving_later = True
    at_ms = now_ms + member.settings.retry_backoff_max_ms
    effects: Effects = [StartTimer(RESOLVE_RETRY, at_ms, RetryDue(RESOLVE_RETRY))]
    if member.unknown_reported != member.target_number:
        member.unknown_reported = member.target_number
        effects.append(Emit(TopicIdsUnknown(now_ms, member.settings.group_id, sorted(map(str, unknown)))))
    return effects


# --- commit, revoke, take ---------------------------------------------------------------------------------------------


def can_reconcile(member: ConsumerMemberData) -> bool:
    if not member.may_call or member.waiting_for is not None or member.resolving is not None:
        return False
    if member.reconciling is not None:
        if any(one.kind is RequestKind.COMMIT_BEFORE_REVOCATION for one in member.pending_requests.values()):
            return False
        # A report without the new partitions may free them for others: what the answer says counts.
        return member.is_target_confirmed or bool(member.assigned - member.given) or member.given <= member.assigned
    if member.resolved != member.owned:
        return True
    return member.reconciled_number != member.target_number and (bool(member.owned) or not member.unresolved)


def reconcile(member: ConsumerMemberData, now_ms: int) -> Effects:
    """One step: it is checked again after the commit and after each call of the listener, which may take long."""
    current = member.reconciling
    if current is None:
        return _begin(member, now_ms)
    revoked = member.assigned - member.given
    if revoked:
        return call_listener(member, Listened.REVOKED, revoked, now_ms)
    if current.number != member.target_number:
        member.reconciling = None  # what was to be taken may belong to another member by now
        return []
    current.is_taken = True
    added = member.given - member.assigned
    # From here on it reads them: a heartbeat that goes out before the listener returns must not say otherwise.
    member.assigned, member.owned = member.given, current.partitions
    member.group_topics = frozenset(one.topic for one in member.given)
    taken = AssignmentReconciled(
        now_ms, member.settings.group_id, member.generation_id, sorted(member.given), sorted(added)
    )
    return [
        *watch(member),
        *restart_auto_commit(member, now_ms),
        SetAssignment(sorted(member.given), sorted(added)),
        Emit(taken),
        *call_listener(member, Listened.ASSIGNED, added, now_ms),
    ]


def _begin(member: ConsumerMemberData, now_ms: int) -> Effects:
    partitions = member.resolved
    current = member.reconciling = Reconciliation(member.target_number, partitions)
    if partitions == member.owned and member.unresolved:
        _acknowledge(member, current, now_ms)  # nothing changes until the metadata has the other topics
        return []
    member.given = frozenset(
        TopicPartition(member.topic_names[topic_id], number)
        for topic_id, numbers in partitions.items()
        for number in numbers
    )
    revoked, added = member.assigned - member.given, member.given - member.assigned
    began = ReconciliationBegan(now_ms, member.settings.group_id, member.generation_id, sorted(added), sorted(revoked))
    effects: Effects = [Emit(began)]
    if revoked:
        # Else a poll could return more records between the commit and the revocation, and the next owner again.
        effects.append(HoldPartitions(sorted(revoked)))
        if member.settings.enable_auto_commit:
            member.waiting_for = then = PositionsAnswered()
            effects.append(AskPositions(then))
    return effects


def positions_before_revocation(member: ConsumerMemberData, event: PositionsAnswered, now_ms: int) -> Effects:
    """Retriable errors are retried for the whole rebalance timeout; after that the coordinator removes the member."""
    until_ms = now_ms + member.settings.max_poll_interval_ms
    kind = RequestKind.COMMIT_BEFORE_REVOCATION
    return ask_commit(member, kind, None, event.reply or {}, until_ms, now_ms)


def listener_answered(member: ConsumerMemberData, event: ListenerAnswered, now_ms: int) -> Effects:
    if event is not member.calling:
        return []
    member.calling = None
    effects: Effects = []
    if event.error is not None:
        effects += listener_failed(member, event, event.error, now_ms)
    if event.kind == Listened.ASSIGNED:
        current = member.reconciling
        if current is not None and current.is_taken and member.state is RECONCILING:
            _acknowledge(member, current, now_ms)
        return effects
    return [*effects, *given_up(member, event, _why(member, lost=event.kind == Listened.LOST), now_ms)]


def _acknowledge(member: ConsumerMemberData, current: Reconciliation, now_ms: int) -> None:
    member.owned, member.reconciled_number = current.partitions, current.number
    member.reconciling = None
    enter(member, ACKNOWLEDGING, now_ms)
    member.wants_heartbeat = True


def _why(member: ConsumerMemberData, *, lost: bool) -> str:
    if lost:
        return f"the member is {member.state.lower()}"
    if member.ending is not None:
        return ENDING_REASON[type(member.ending)]
    return f"the broker does not assign them to this member in epoch {member.generation_id}"
