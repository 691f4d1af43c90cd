"""Requests of the classic protocol to a consumer group that has members (section 8).

Members of the two protocols cannot be mixed in one group: a classic member is refused. LeaveGroup removes members by
id or instance, as tools do.
"""

from __future__ import annotations

from coterie.coordinator.classic.effects import Effects, Reply
from coterie.coordinator.classic.join_group import join_precheck
from coterie.coordinator.consumer.change import Change
from coterie.coordinator.consumer.conversion import retire
from coterie.coordinator.consumer.group import ConsumerGroup
from coterie.errors import ErrorCode
from coterie.facts import Cause, MemberLeft
from coterie.protocol.messages import (
    Heartbeat,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    LeftGroup,
    LeftMember,
    SyncedGroup,
    SyncGroup,
)


def join_of_classic(group: ConsumerGroup, request: JoinGroup, now_ms: int) -> Effects:
    """A join without id turns an Empty group into a classic one (K26)."""
    error = join_precheck(request, group.settings)
    if error:
        return [Reply(request.token, JoinedGroup(error, request.member_id))]
    if not group.members:
        if not request.member_id:
            return retire(group, request, now_ms)
        return [Reply(request.token, JoinedGroup(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))]
    return [Reply(request.token, JoinedGroup(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))]


def sync_of_classic(_group: ConsumerGroup, request: SyncGroup, _now_ms: int) -> Effects:
    return [Reply(request.token, SyncedGroup(ErrorCode.UNKNOWN_MEMBER_ID))]


def heartbeat_of_classic(_group: ConsumerGroup, request: Heartbeat, _now_ms: int) -> Effects:
    return [Reply(request.token, ErrorCode.UNKNOWN_MEMBER_ID)]


def leave_of_classic(group: ConsumerGroup, request: LeaveGroup, now_ms: int) -> Effects:
    """Remove members by id or instance; several are one group epoch (K25)."""
    change = Change(group, now_ms)
    answers, gone = [], []
    for leaving in request.members:
        member_id, error = _who(group, leaving)
        answers.append(LeftMember(leaving.member_id, leaving.instance_id, error))
        if error:
            continue
        member = group.members[member_id]
        fact = MemberLeft(now_ms, group.group_id, member_id, member.metadata.instance_id, leaving.reason)
        change.facts.append(fact)
        change.remove(member_id)
        change.forget_pattern(member.metadata.pattern)
        gone.append(member_id)
    if gone:
        change.bump(Cause.MEMBER_LEFT, gone[0])
    return change.write(request.token, LeftGroup(ErrorCode.NONE, answers), request)


def _who(group: ConsumerGroup, leaving: LeavingMember) -> tuple[str, ErrorCode]:
    if leaving.instance_id is not None:
        holder = group.static.get(leaving.instance_id)
        if holder is None:
            return "", ErrorCode.UNKNOWN_MEMBER_ID
        if leaving.member_id and holder != leaving.member_id:
            return "", ErrorCode.FENCED_INSTANCE_ID
        return holder, ErrorCode.NONE
    if leaving.member_id in group.members:
        return leaving.member_id, ErrorCode.NONE
    return "", ErrorCode.UNKNOWN_MEMBER_ID
