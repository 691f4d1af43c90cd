"""LeaveGroup: one or many members leave in one request, with one rebalance for all of them (rules 16, 17)."""

from __future__ import annotations

from coterie.coordinator.classic.effects import Effects, EmptyWritten, Persist, Reply
from coterie.coordinator.classic.fenced_facts import report_fenced
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.join_phase import maybe_complete_join_phase, start_rebalance
from coterie.coordinator.classic.states import ON_REMOVAL, GroupAction
from coterie.errors import ErrorCode
from coterie.facts import Cause, Emit, MemberLeft
from coterie.protocol.messages import LeaveGroup, LeavingMember, LeftGroup, LeftMember


def leave_group(group: Group, request: LeaveGroup, now_ms: int) -> Effects:
    if not request.group_id:
        return [Reply(request.token, LeftGroup(ErrorCode.INVALID_GROUP_ID))]
    answers: list[LeftMember] = []
    gone: list[tuple[Cause, str, str | None]] = []
    effects: Effects = []
    for leaving in request.members:
        member_id, error = _who(group, leaving)
        answers.append(LeftMember(leaving.member_id, leaving.instance_id, error))
        if error:
            effects += report_fenced(group, "LeaveGroup", leaving.member_id, leaving.instance_id, error, now_ms)
            continue
        if member_id in group.pending:
            effects += group.forget_pending(member_id)
            gone.append((Cause.PENDING_MEMBER_LEFT, member_id, leaving.reason))
            effects.append(Emit(MemberLeft(now_ms, group.group_id, member_id, None, leaving.reason)))
        else:
            member = group.members[member_id]
            effects += group.remove([member], now_ms)
            gone.append((Cause.MEMBER_LEFT, member_id, leaving.reason))
            effects.append(Emit(MemberLeft(now_ms, group.group_id, member_id, member.instance_id, leaving.reason)))
    if gone:
        what = ON_REMOVAL[group.state]
        if what is GroupAction.START_REBALANCE:
            effects += start_rebalance(group, now_ms, *gone[0])
        elif what is GroupAction.RECHECK:
            effects += maybe_complete_join_phase(group, now_ms)
    answer = LeftGroup(ErrorCode.NONE, answers)
    for effect in effects:
        if isinstance(effect, Persist) and isinstance(effect.then, EmptyWritten):
            # The last one to go is answered when the log has it: else a crash brings back a member that has left.
            effect.then.token, effect.then.answer = request.token, answer
            return effects
    return [*effects, Reply(request.token, answer)]


def _who(group: Group, leaving: LeavingMember) -> tuple[str, ErrorCode]:
    """An admin names a static member by its instance alone; a static member may go by its id alone."""
    if not leaving.member_id:
        holder = group.static.get(leaving.instance_id) if leaving.instance_id is not None else None
        return (holder, ErrorCode.NONE) if holder else ("", ErrorCode.UNKNOWN_MEMBER_ID)
    if leaving.member_id in group.pending:
        return leaving.member_id, ErrorCode.NONE
    return leaving.member_id, group.validate_member(leaving.member_id, leaving.instance_id)
