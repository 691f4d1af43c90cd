"""Fencing: the member loses its epoch, or fails for good. Its partitions are lost; a poll calls the listener."""

from __future__ import annotations

from coterie.client.member.consumer_protocol.member import RESOLVE_RETRY, ConsumerMemberData, SentFields
from coterie.client.member.consumer_protocol.states import (
    ADVICE,
    FATAL,
    FENCED,
    HEARTBEAT_API,
    IN_THE_GROUP,
    JOINING,
    enter,
)
from coterie.client.member.effects import Effects, Listened, StartTimer, StopTimer
from coterie.client.member.events import RetryDue
from coterie.client.member.facts import Fenced, IdentityDropped, RebalanceBegan
from coterie.client.member.member import HEARTBEAT, JOIN_RETRY
from coterie.client.member.states import error_for
from coterie.client.member.subscription import call_listener
from coterie.errors import ErrorCode, KafkaError
from coterie.facts import Emit
from coterie.protocol.messages import NO_GENERATION

_INSTANCE_TAKEN = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID})


def reset_epoch(member: ConsumerMemberData) -> Effects:
    """Forget the life in the group. The id stays: it is the client's own."""
    member.keep_lost_identity()
    member.generation_id = NO_GENERATION
    member.is_settled = False
    member.heartbeat_in_flight = member.waiting_for = member.resolving = member.reconciling = None
    member.wants_heartbeat = member.is_resolving_later = member.releases_instance = False
    member.sent = SentFields()
    member.target, member.owned, member.given = {}, {}, frozenset()
    member.target_number = member.reconciled_number = member.unknown_reported = 0
    return [StopTimer(HEARTBEAT), StopTimer(RESOLVE_RETRY)]


def fence(member: ConsumerMemberData, code: ErrorCode, now_ms: int) -> Effects:
    """The coordinator does not know the member, or not in this epoch."""
    if code is ErrorCode.UNKNOWN_MEMBER_ID:
        member.may_be_member = False
    effects = reset_epoch(member)
    if member.state not in IN_THE_GROUP:
        return effects  # it is leaving anyway
    enter(member, FENCED, now_ms)
    why = f"{code.name} in answer to {HEARTBEAT_API}"
    return [*effects, Emit(IdentityDropped(now_ms, member.settings.group_id, why, member.member_id, code))]


def can_rejoin(member: ConsumerMemberData) -> bool:
    """Return whether the member can rejoin. It gives up lost partitions first, during a poll."""
    return member.calling is None and (member.may_call or not member.assigned)


def rejoin(member: ConsumerMemberData, now_ms: int) -> Effects:
    if member.assigned:
        return call_listener(member, Listened.LOST, member.assigned, now_ms)
    effects: Effects = []
    if member.failures > 1:
        effects = back_off(member, now_ms)
    else:
        member.failures += 1
    return [*effects, *join(member, f"the member is {member.state.lower()}", now_ms)]


def join(member: ConsumerMemberData, reason: str, now_ms: int) -> Effects:
    enter(member, JOINING, now_ms)
    member.wants_heartbeat = True
    return [Emit(RebalanceBegan(now_ms, member.settings.group_id, reason))]


def back_off(member: ConsumerMemberData, now_ms: int) -> Effects:
    at_ms = now_ms + member.backoff_ms(member.failures)
    member.failures += 1
    member.is_backing_off = True
    return [StartTimer(JOIN_RETRY, at_ms, RetryDue(JOIN_RETRY))]


def fail_for_good(member: ConsumerMemberData, error: Exception, code: ErrorCode, now_ms: int) -> Effects:
    """Fail for good: every poll raises the error, until unsubscribe or close."""
    effects = reset_epoch(member)
    if member.state not in IN_THE_GROUP:
        return effects
    member.failure, member.stalled = error, False
    enter(member, FATAL, now_ms)
    if code in _INSTANCE_TAKEN:
        effects.append(Emit(Fenced(now_ms, member.settings.group_id, member.settings.group_instance_id or "")))
    return effects


def heartbeat_error(member: ConsumerMemberData, code: ErrorCode, about: str | None) -> KafkaError:
    return error_for(HEARTBEAT_API, code, member.settings, about or "", ADVICE.get(code))
