"""What is done about every error of a rebalance, that is of a join or a sync (M4)."""

from __future__ import annotations

from coterie.client.member.effects import Arm, Effects, Fail
from coterie.client.member.events import RetryDue
from coterie.client.member.finding import forget_coordinator
from coterie.client.member.identity import DROPS, drop_for, fence
from coterie.client.member.member import Member
from coterie.client.member.member_timers import JOIN_RETRY
from coterie.client.member.states import Api, Do, Stage, enter, on_error
from coterie.client.member.user_errors import error_for, said
from coterie.errors import ErrorCode

__all__ = ["back_off", "fail_rebalance", "rebalance_failed"]


def rebalance_failed(member: Member, api: Api, code: ErrorCode, now_ms: int, error: Exception | None = None) -> Effects:
    """A join or a sync was refused with `code`, or `error` kept it from being answered."""
    what = on_error(api, code)
    member.rejoin_reason = f"rebalance failed due to {code.name}"
    if what is Do.GIVE_UP:
        return fence(member, error_for(api, code, member.settings), now_ms)
    if what is Do.FAIL:
        return fail_rebalance(member, error_for(api, code, member.settings) if error is None else error, now_ms, api)
    if what in DROPS:
        return [*drop_for(member, api, code, what, now_ms), *_soon(member, now_ms)]
    if member.stage is not Stage.JOINING:
        enter(member, Stage.JOINING, now_ms)
    if what is Do.TAKE_ID:
        member.rejoin_reason = f"need to re-join with the given member-id: {member.member_id}"
    if what in {Do.TAKE_ID, Do.REJOIN}:
        return _soon(member, now_ms)
    effects = back_off(member, now_ms)
    if what is Do.FIND:
        effects += forget_coordinator(member, f"{code.name} in answer to {api}", now_ms)
    return effects


def fail_rebalance(member: Member, error: Exception, now_ms: int, api: Api | None = None) -> Effects:
    """The caller of poll gets it; the next poll tries again, without preparing again (M10)."""
    member.waiting_for = None
    if member.stage is not Stage.UNJOINED:
        enter(member, Stage.UNJOINED, now_ms)
    member.rejoin_reason = member.rejoin_reason or "the previous attempt failed"
    member.stalled = True
    return [Fail(error if api is None else said(api, error, member.settings))]


def back_off(member: Member, now_ms: int) -> Effects:
    at_ms = now_ms + member.backoff_ms(member.failures)
    member.failures += 1
    member.is_backing_off = True
    return [Arm(JOIN_RETRY, at_ms, RetryDue(JOIN_RETRY))]


def _soon(member: Member, now_ms: int) -> Effects:
    """At once; but a coordinator that says such things again and again is given time."""
    if member.failures > 1:
        return back_off(member, now_ms)
    member.failures += 1
    return []
