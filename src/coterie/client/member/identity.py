"""Losing the generation, or the id with it (M4, M8), and being fenced.

What the member owned is lost then. It is told so by the next preparation, during a poll (M3).
"""

from __future__ import annotations

from coterie.client.member.effects import Disarm, Effects, Tell
from coterie.client.member.facts import Fenced, IdentityDropped
from coterie.client.member.member import Member
from coterie.client.member.member_timers import HEARTBEAT
from coterie.client.member.states import Api, Do, Stage, enter
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.messages import NO_GENERATION

__all__ = ["DROPS", "drop", "drop_for", "fence", "reset"]

DROPS = frozenset({Do.DROP_IDENTITY, Do.DROP_GENERATION})


def reset(member: Member, *, keeps_id: bool = False) -> Effects:
    member.generation_id = NO_GENERATION
    member.protocol_name = None
    if not keeps_id:
        member.member_id = ""
    member.is_settled = member.is_prepared = False
    member.heartbeat_in_flight = member.beat = None
    member.snapshot, member.is_stale = None, False
    return [Disarm(HEARTBEAT)]


def drop(member: Member, why: str, now_ms: int, *, keeps_id: bool = False, code: ErrorCode = ErrorCode.NONE) -> Effects:
    """Whatever was under way belongs to a life that is over; the next poll begins a new one."""
    effects = reset(member, keeps_id=keeps_id)
    member.rejoin_reason = why
    if member.stage is Stage.PREPARING:
        member.is_prepared = True  # it goes on, and loses what it was about to give up
        member.waiting_for = None
    elif member.stage not in {Stage.UNJOINED, Stage.LEAVING, Stage.FENCED}:
        member.waiting_for = None
        enter(member, Stage.UNJOINED, now_ms)
    return [*effects, Tell(IdentityDropped(now_ms, member.settings.group_id, why, member.member_id, code))]


def drop_for(member: Member, api: Api, code: ErrorCode, what: Do, now_ms: int) -> Effects:
    why = f"{code.name} in answer to {api}"
    return drop(member, why, now_ms, keeps_id=what is Do.DROP_GENERATION, code=code)


def fence(member: Member, error: KafkaError, now_ms: int) -> Effects:
    """Joining again would throw the other one out, which would join again, and so on for ever."""
    effects = drop(member, "FENCED_INSTANCE_ID", now_ms)
    if member.stage in {Stage.LEAVING, Stage.FENCED}:
        return effects
    member.failure, member.waiting_for, member.stalled = error, None, False
    enter(member, Stage.FENCED, now_ms)
    return [*effects, Tell(Fenced(now_ms, member.settings.group_id, member.settings.group_instance_id or ""))]
