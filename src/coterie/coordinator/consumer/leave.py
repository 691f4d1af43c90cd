"""Members that leave, that are away for a while, whose session expires, or that do not give up partitions in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.coordinator.classic.effects import Effects, Reply
from coterie.coordinator.classic.fenced_facts import report_fenced
from coterie.coordinator.consumer.conversion import downgrade, may_downgrade
from coterie.coordinator.consumer.group import (
    NEVER,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerSessionDue,
    RejoinDue,
    RevocationDue,
    SyncDue,
)
from coterie.coordinator.consumer.group_change import ConsumerGroupChange
from coterie.coordinator.consumer.states import MemberState
from coterie.errors import ErrorCode
from coterie.facts import Cause, MemberExpired, MemberLeft, MemberMissedJoin, MemberMissedRevocation, MemberMissedSync
from coterie.protocol.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatAnswer


def leave(group: ConsumerGroup, request: ConsumerGroupHeartbeat, now_ms: int) -> Effects:
    """Remove a member, whatever its epoch is; a static member that leaves for a while keeps its target (K14, K15)."""
    member = group.members.get(request.member_id)
    error = ErrorCode.NONE
    if request.instance_id is not None:
        holder = group.static.get(request.instance_id)
        if holder is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif holder != request.member_id:
            error = ErrorCode.FENCED_INSTANCE_ID
    elif member is None:
        error = ErrorCode.UNKNOWN_MEMBER_ID
    if error or member is None:
        whom = request.member_id if request.instance_id is None else f"instance {request.instance_id}"
        why = f"{whom} is not a member of group {group.group_id}, or another member has its place."
        name = "ConsumerGroupHeartbeat"
        reported = report_fenced(group, name, request.member_id, request.instance_id, error, now_ms)
        return [Reply(request.token, ConsumerGroupHeartbeatAnswer(error, why)), *reported]
    change = ConsumerGroupChange(group, now_ms)
    answer = ConsumerGroupHeartbeatAnswer(ErrorCode.NONE, None, request.member_id, request.member_epoch)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        kept = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()}
        change.set_current_assignment(member, STATIC_LEAVE_EPOCH, member.previous_epoch, member.state, kept, {})
    else:
        change.facts.append(MemberLeft(now_ms, group.group_id, member.member_id, member.metadata.instance_id, None))
        return remove(change, [member], Cause.MEMBER_LEFT, request, answer)
    return change.write(request.token, answer, request)


def remove(
    change: ConsumerGroupChange,
    members: Sequence[ConsumerGroupMember],
    cause: Cause,
    request: Any = None,
    answer: Any = None,
) -> Effects:
    """Remove members. If only classic ones are left, the group becomes classic (K26), else its next epoch begins."""
    group = change.group
    for member in members:
        change.remove(member.member_id)
        change.forget_pattern(member.metadata.pattern)
    if members and may_downgrade(group):
        return downgrade(change, cause, members[0].member_id, request, answer)
    if members:
        change.bump(cause, members[0].member_id)
    return change.write(None if request is None else request.token, answer, request)


def consumer_session_due(group: ConsumerGroup, event: ConsumerSessionDue, now_ms: int) -> Effects:
    """Remove a member that was silent for its session timeout (K10)."""
    session = group.sessions.get(event.member_id)
    member = group.members.get(event.member_id)
    if session is None or member is None:
        group.sessions.pop(event.member_id, None)
        return []
    if session.deadline_ms > now_ms:  # it was heard of since the alarm was set
        return group.set_alarm(event.member_id, session)
    never_heard = session.deadline_ms == session.restored_until_ms
    del group.sessions[event.member_id]
    change = ConsumerGroupChange(group, now_ms)
    fact = MemberExpired(now_ms, group.group_id, event.member_id, group.session_timeout_of(member), never_heard)
    change.facts.append(fact)
    return remove(change, [member], Cause.COORDINATOR_MOVED if never_heard else Cause.SESSION_EXPIRED)


def revocation_due(group: ConsumerGroup, event: RevocationDue, now_ms: int) -> Effects:
    """Remove a member that has not given up partitions within its rebalance timeout, although it heartbeats (K12)."""
    member = group.members.get(event.member_id)
    if member is None or member.epoch != event.member_epoch or member.state is not MemberState.UNREVOKED_PARTITIONS:
        return []
    return _too_late(group, MemberMissedRevocation(now_ms, group.group_id, event.member_id), Cause.REVOCATION_TIMEOUT)


def rejoin_due(group: ConsumerGroup, event: RejoinDue, now_ms: int) -> Effects:
    """Remove a classic member that was told to rejoin and has not, although it sends heartbeats (K25)."""
    session = group.sessions.get(event.member_id)
    if session is None or session.join_by_ms > now_ms:
        return []
    session.join_by_ms = NEVER
    return _too_late(group, MemberMissedJoin(now_ms, group.group_id, event.member_id), Cause.REVOCATION_TIMEOUT)


def sync_due(group: ConsumerGroup, event: SyncDue, now_ms: int) -> Effects:
    """Remove a classic member that has joined, and has not synced in time (K25)."""
    session = group.sessions.get(event.member_id)
    if session is None or session.sync_by_ms > now_ms:
        return []
    session.sync_by_ms = NEVER
    return _too_late(group, MemberMissedSync(now_ms, group.group_id, event.member_id), Cause.SYNC_TIMEOUT)


def _too_late(
    group: ConsumerGroup, fact: MemberMissedRevocation | MemberMissedJoin | MemberMissedSync, cause: Cause
) -> Effects:
    """Remove the member that a fact is about, if it is still there."""
    member = group.members.get(fact.member_id)
    if member is None:
        return []
    change = ConsumerGroupChange(group, fact.at_ms)
    change.facts.append(fact)
    return remove(change, [member], cause)
