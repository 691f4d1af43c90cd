"""Losing the generation, or the member id with it (M4, M8), being fenced, and the errors of a rebalance (M4).

A member that loses its generation has lost what it owned. Its listener is called before the next join, during a poll
(M3).
"""

from __future__ import annotations

from coterie.client.member.effects import Effects, Fail, StartTimer, StopTimer
from coterie.client.member.events import RetryDue
from coterie.client.member.facts import Fenced, IdentityDropped
from coterie.client.member.find_coordinator import forget_coordinator
from coterie.client.member.member import HEARTBEAT, JOIN_RETRY, MemberData
from coterie.client.member.states import ApiName, ErrorAction, MemberState, enter, error_for, on_error, with_advice
from coterie.errors import ErrorCode, KafkaError
from coterie.facts import Emit
from coterie.protocol.messages import NO_GENERATION

DROPS = frozenset({ErrorAction.DROP_IDENTITY, ErrorAction.DROP_GENERATION})


def reset_generation(member: MemberData, *, keeps_id: bool = False) -> Effects:
    member.keep_lost_identity()
    member.generation_id = NO_GENERATION
    member.protocol_name = None
    if not keeps_id:
        member.member_id = ""
    member.is_settled = member.is_prepared = False
    member.heartbeat_in_flight = member.heartbeat_request = None
    member.snapshot, member.is_stale = None, False
    return [StopTimer(HEARTBEAT)]


def drop(
    member: MemberData, why: str, now_ms: int, *, keeps_id: bool = False, code: ErrorCode = ErrorCode.NONE
) -> Effects:
    """Drop everything that is under way; the next poll joins again."""
    effects = reset_generation(member, keeps_id=keeps_id)
    member.rejoin_reason = why
    if member.state is MemberState.PREPARING:
        member.is_prepared = True  # it goes on, and loses what it was about to give up
        member.waiting_for = None
    elif member.state not in {MemberState.UNJOINED, MemberState.LEAVING, MemberState.FENCED}:
        member.waiting_for = None
        enter(member, MemberState.UNJOINED, now_ms)
    return [*effects, Emit(IdentityDropped(now_ms, member.settings.group_id, why, member.member_id, code))]


def drop_for(member: MemberData, api: ApiName, code: ErrorCode, what: ErrorAction, now_ms: int) -> Effects:
    why = f"{code.name} in answer to {api}"
    return drop(member, why, now_ms, keeps_id=what is ErrorAction.DROP_GENERATION, code=code)


def fence(member: MemberData, error: KafkaError, now_ms: int) -> Effects:
    """Fence the member. It does not rejoin: that would fence the other member, which would rejoin, and so on."""
    effects = drop(member, "FENCED_INSTANCE_ID", now_ms)
    if member.state in {MemberState.LEAVING, MemberState.FENCED}:
        return effects
    member.failure, member.waiting_for, member.stalled = error, None, False
    enter(member, MemberState.FENCED, now_ms)
    return [*effects, Emit(Fenced(now_ms, member.settings.group_id, member.settings.group_instance_id or ""))]


# --- errors of a join or a sync ---------------------------------------------------------------------------------------


def rebalance_failed(
    member: MemberData, api: ApiName, code: ErrorCode, now_ms: int, error: Exception | None = None
) -> Effects:
    """A join or a sync was refused with `code`, or `error` kept it from being answered."""
    what = on_error(api, code)
    member.rejoin_reason = f"rebalance failed due to {code.name}"
    if what is ErrorAction.FATAL:
        return fence(member, error_for(api, code, member.settings), now_ms)
    if what is ErrorAction.FAIL:
        return fail_rebalance(member, error_for(api, code, member.settings) if error is None else error, now_ms, api)
    if what in DROPS:
        return [*drop_for(member, api, code, what, now_ms), *_soon(member, now_ms)]
    if member.state is not MemberState.JOINING:
        enter(member, MemberState.JOINING, now_ms)
    if what is ErrorAction.TAKE_ID:
        member.rejoin_reason = f"need to re-join with the given member-id: {member.member_id}"
    if what in {ErrorAction.TAKE_ID, ErrorAction.REJOIN}:
        return _soon(member, now_ms)
    effects = back_off(member, now_ms)
    if what is ErrorAction.FIND_COORDINATOR:
        effects += forget_coordinator(member, f"{code.name} in answer to {api}", now_ms)
    return effects


def fail_rebalance(member: MemberData, error: Exception, now_ms: int, api: ApiName | None = None) -> Effects:
    """The caller of poll gets it; the next poll tries again, without preparing again (M10)."""
    member.waiting_for = None
    if member.state is not MemberState.UNJOINED:
        enter(member, MemberState.UNJOINED, now_ms)
    member.rejoin_reason = member.rejoin_reason or "the previous attempt failed"
    member.stalled = True
    return [Fail(error if api is None else with_advice(api, error, member.settings))]


def back_off(member: MemberData, now_ms: int) -> Effects:
    at_ms = now_ms + member.backoff_ms(member.failures)
    member.failures += 1
    member.is_backing_off = True
    return [StartTimer(JOIN_RETRY, at_ms, RetryDue(JOIN_RETRY))]


def _soon(member: MemberData, now_ms: int) -> Effects:
    """Rejoin at once; after repeated errors, back off first."""
    if member.failures > 1:
        return back_off(member, now_ms)
    member.failures += 1
    return []
