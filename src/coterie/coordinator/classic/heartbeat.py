"""Heartbeat: a member says that it is alive, and hears whether a rebalance is on (rules 14, 15).

The hot path: no heap, no disk, one field written.
"""

from __future__ import annotations

from coterie.coordinator.classic.effects import Effects, Reply
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.states import DEAD, ON_HEARTBEAT
from coterie.errors import ErrorCode
from coterie.protocol.messages import Heartbeat

__all__ = ["heartbeat"]


def heartbeat(group: Group, request: Heartbeat, now_ms: int) -> Effects:
    member = group.members.get(request.member_id)
    if member is None or request.instance_id is not None or request.generation_id != group.generation_id:
        refusal = _refusal_of(group, request)  # an ordinary heartbeat has nothing that could be refused
        if refusal:
            return [Reply(request.token, refusal)]
        member = group.members[request.member_id]
    moved = group.expect_by(member, now_ms + member.session_timeout_ms)
    reply = Reply(request.token, ON_HEARTBEAT[group.state])
    return [*moved, reply] if moved else [reply]


def _refusal_of(group: Group, request: Heartbeat) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group.state is DEAD:
        return ErrorCode.UNKNOWN_MEMBER_ID
    refusal = group.refusal_of(request.member_id, request.instance_id)
    if refusal:
        return refusal
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION  # in every state (KAFKA-2557)
    return ErrorCode.NONE
