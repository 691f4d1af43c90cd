"""Heartbeat, and the expiry of sessions (session.timeout.ms; rules 3, 9, 14, 15).

A heartbeat says that a member is alive; its answer says whether the group rebalances. This is the hot path: no heap, no
disk, one field written. A session expires when its member was silent, or when a member id was given and never used.
"""

from __future__ import annotations

from coterie.coordinator.classic.effects import Arm, Effects, Reply, SessionDue
from coterie.coordinator.classic.fenced_facts import report_fenced
from coterie.coordinator.classic.group import NEVER, ClassicGroupMember, Group
from coterie.coordinator.classic.join_phase import complete_join_phase, start_rebalance
from coterie.coordinator.classic.states import DEAD, ON_HEARTBEAT, ON_REMOVAL, PREPARING_REBALANCE, GroupAction
from coterie.errors import ErrorCode
from coterie.facts import Cause, Emit, MemberExpired, MemberIdExpired
from coterie.protocol.messages import Heartbeat


def heartbeat(group: Group, request: Heartbeat, now_ms: int) -> Effects:
    member = group.members.get(request.member_id)
    if member is None or request.instance_id is not None or request.generation_id != group.generation_id:
        error = _validate_heartbeat(group, request)  # an ordinary heartbeat has nothing that could be refused
        if error:
            reported = report_fenced(group, "Heartbeat", request.member_id, request.instance_id, error, now_ms)
            return [Reply(request.token, error), *reported]
        member = group.members[request.member_id]
    reply = Reply(request.token, ON_HEARTBEAT[group.state])
    deadline_ms = now_ms + member.session_timeout_ms
    if deadline_ms < member.alarm_ms:
        return [*group.expect_by(member, deadline_ms), reply]
    member.deadline_ms = deadline_ms  # as `expect_by` does: the timer need not be moved
    return [reply]


def _validate_heartbeat(group: Group, request: Heartbeat) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group.state is DEAD:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.validate_member(request.member_id, request.instance_id)
    if error:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION  # in every state (KAFKA-2557)
    return ErrorCode.NONE


def session_due(group: Group, event: SessionDue, now_ms: int) -> Effects:
    lapses_ms = group.pending.get(event.member_id)
    if lapses_ms is not None:
        if lapses_ms > now_ms:
            return [Arm(group.session_key(event.member_id), lapses_ms, event)]
        return _expire_pending_member(group, event.member_id, now_ms)
    member = group.members.get(event.member_id)
    if member is None:
        return []
    if member.deadline_ms > now_ms:  # it was heard of since the alarm was set
        return group.set_alarm(member, member.deadline_ms)
    waits = member.parked_join is not None or member.parked_sync is not None
    if waits and not member.is_new:
        member.alarm_ms = NEVER  # its join or sync is parked: it does not expire, and the answer restarts it (rule 9)
        return []
    if _waits_for_commit(group, member):
        member.deadline_ms = now_ms + member.session_timeout_ms
        return group.set_alarm(member, member.deadline_ms)
    return _expire(group, member, now_ms)


def _waits_for_commit(group: Group, member: ClassicGroupMember) -> bool:
    """Return whether a commit of the member waits for the disk: its heartbeats may wait behind that, unread."""
    return any(
        commit.member_id == member.member_id and commit.token is not None for commit in group.unwritten_commits.values()
    )


def _expire_pending_member(group: Group, member_id: str, now_ms: int) -> Effects:
    """Forget a member id that was given and not used. A join phase that waited for it may end now."""
    effects = group.forget_pending(member_id)
    effects.append(Emit(MemberIdExpired(now_ms, group.group_id, member_id)))
    return effects + _complete_if_all_joined(group, now_ms)


def _expire(group: Group, member: ClassicGroupMember, now_ms: int) -> Effects:
    never_heard = member.deadline_ms == member.restored_until_ms
    effects = group.remove([member], now_ms)
    fact = MemberExpired(now_ms, group.group_id, member.member_id, member.session_timeout_ms, never_heard)
    effects.append(Emit(fact))
    if ON_REMOVAL[group.state] is GroupAction.START_REBALANCE:
        cause = Cause.COORDINATOR_MOVED if never_heard else Cause.SESSION_EXPIRED
        return effects + start_rebalance(group, now_ms, cause, member.member_id)
    return effects + _complete_if_all_joined(group, now_ms)


def _complete_if_all_joined(group: Group, now_ms: int) -> Effects:
    """Unlike a leave, an expiry ends even the initial delay if no other member has to join (rule 10)."""
    if group.state is PREPARING_REBALANCE and group.all_members_joined():
        return complete_join_phase(group, now_ms)
    return []
