"""The end of a session: a member that was not heard of, or an id that nobody came back with (rules 3, 9, 14)."""

from __future__ import annotations

from coterie.coordinator.classic.effects import Arm, Effects, SessionDue, Tell
from coterie.coordinator.classic.group import NEVER, Group, Member
from coterie.coordinator.classic.join_phase import complete, start_rebalance
from coterie.coordinator.classic.states import ON_REMOVAL, PREPARING, Do
from coterie.facts import Cause, MemberExpired, MemberIdExpired

__all__ = ["session_due"]


def session_due(group: Group, event: SessionDue, now_ms: int) -> Effects:
    lapses_ms = group.pending.get(event.member_id)
    if lapses_ms is not None:
        if lapses_ms > now_ms:
            return [Arm(group.session_key(event.member_id), lapses_ms, event)]
        return _lapse(group, event.member_id, now_ms)
    member = group.members.get(event.member_id)
    if member is None:
        return []
    if member.deadline_ms > now_ms:  # it was heard of since the alarm was set
        return group.set_alarm(member, member.deadline_ms)
    waits = member.parked_join is not None or member.parked_sync is not None
    if waits and not member.is_new:
        member.alarm_ms = NEVER  # it waits for us, not we for it (rule 9); the answer starts its session again
        return []
    if _waits_for_commit(group, member):
        member.deadline_ms = now_ms + member.session_timeout_ms
        return group.set_alarm(member, member.deadline_ms)
    return _expire(group, member, now_ms)


def _waits_for_commit(group: Group, member: Member) -> bool:
    """The disk is slow: its heartbeats wait behind its commit, on the same connection, for us to answer it."""
    return any(
        commit.member_id == member.member_id and commit.token is not None for commit in group.unwritten_commits.values()
    )


def _lapse(group: Group, member_id: str, now_ms: int) -> Effects:
    """Nobody came back with the id it was given. Where a join phase waited for it, that may be over now."""
    effects = group.forget_pending(member_id)
    effects.append(Tell(MemberIdExpired(now_ms, group.group_id, member_id)))
    return effects + _complete_if_all_joined(group, now_ms)


def _expire(group: Group, member: Member, now_ms: int) -> Effects:
    never_heard = member.deadline_ms == member.restored_until_ms
    effects = group.remove([member])
    fact = MemberExpired(now_ms, group.group_id, member.member_id, member.session_timeout_ms, never_heard)
    effects.append(Tell(fact))
    if ON_REMOVAL[group.state] is Do.START_REBALANCE:
        cause = Cause.COORDINATOR_MOVED if never_heard else Cause.SESSION_EXPIRED
        return effects + start_rebalance(group, now_ms, cause, member.member_id)
    return effects + _complete_if_all_joined(group, now_ms)


def _complete_if_all_joined(group: Group, now_ms: int) -> Effects:
    """Unlike a leave, an expiry ends even the initial delay if nobody else is waited for (rule 10)."""
    if group.state is PREPARING and group.everybody_joined():
        return complete(group, now_ms)
    return []
