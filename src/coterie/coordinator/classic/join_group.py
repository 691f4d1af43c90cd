"""JoinGroup: a member joins, rejoins, or reports a change (rules 1-3, 18, 19).

Checks first, in the order of section 2: session bounds, bytes, absent group, size, protocols, pending id, instance,
member, state. Then one of three ways: a newcomer, a returning static member, a member that is already here.
"""

from __future__ import annotations

from coterie.coordinator.classic.effects import (
    Arm,
    CreationWritten,
    Disarm,
    Effects,
    Reply,
    SessionDue,
    StaticMemberWritten,
    error_for_client,
)
from coterie.coordinator.classic.fenced_facts import report_fenced, report_waiting_fenced
from coterie.coordinator.classic.group import NEVER, ClassicGroupMember, Group
from coterie.coordinator.classic.join_phase import maybe_complete_join_phase, start_rebalance
from coterie.coordinator.classic.member_bytes import why_too_large
from coterie.coordinator.classic.states import (
    DEAD,
    EMPTY,
    ON_JOIN_CHANGED,
    ON_JOIN_NEW,
    ON_JOIN_STATIC_RETURN,
    ON_JOIN_UNCHANGED,
    ON_JOIN_UNCHANGED_LEADER,
    PREPARING_REBALANCE,
    STABLE,
    GroupAction,
    enter,
)
from coterie.errors import ErrorCode
from coterie.facts import (
    Cause,
    Emit,
    GroupCreated,
    GroupDied,
    MemberIdGiven,
    MemberJoined,
    MemberReplaced,
    MemberTurnedAway,
    WriteFailed,
)
from coterie.protocol.messages import JoinedGroup, JoinGroup, SyncedGroup
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings

LONGEST_STRING = 32_767
"""The longest string of the protocol, in bytes."""
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""The time that the join of a new member may stay parked (KAFKA-7610). It is not a setting in Kafka either."""


def join_group(group: Group, request: JoinGroup, now_ms: int) -> Effects:
    error = join_precheck(request, group.settings)
    if error:
        return _refuse(request, error)
    too_large = why_too_large(group, request)
    if too_large is not None:
        return _turn_away(group, request, now_ms, too_large)
    if group.state is DEAD:
        if request.member_id:
            return _refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
        return _create(group, now_ms) + _join_existing_group(group, request, now_ms)
    return _join_existing_group(group, request, now_ms)


def join_precheck(request: JoinGroup, settings: GroupCoordinatorSettings) -> ErrorCode:
    """Return what is wrong with a join on any node, whether it coordinates the group or not (rule 1)."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if not shortest <= request.session_timeout_ms <= longest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def _create(group: Group, now_ms: int) -> Effects:
    """Create the group and write its record, also if the join fails later (section 10)."""
    enter(group, EMPTY, now_ms)
    birth = group.write({}, CreationWritten(group_id=group.group_id))
    return [Emit(GroupCreated(now_ms, group.group_id, simple=False)), birth]


def _join_existing_group(group: Group, request: JoinGroup, now_ms: int) -> Effects:
    if _is_full_for(group, request.member_id):
        return _turn_away(group, request, now_ms)
    if not group.supports(request.protocol_type, request.protocols):
        return _refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.member_id:
        if request.instance_id in group.static:
            return _replace_static_member(group, request, now_ms)
        return _newcomer(group, request, now_ms)
    if request.member_id in group.pending:
        if request.instance_id is not None:  # Kafka breaks on this one: UNKNOWN_SERVER_ERROR
            return _refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
        return _add(group, request, request.member_id, now_ms)
    error = group.validate_member(request.member_id, request.instance_id)
    if error:
        reported = report_fenced(group, "JoinGroup", request.member_id, request.instance_id, error, now_ms)
        return [*_refuse(request, error), *reported]
    return rejoin(group, group.members[request.member_id], request, now_ms)


def _refuse(request: JoinGroup, error: ErrorCode) -> Effects:
    """The id is echoed; a refused newcomer came without one."""
    return [Reply(request.token, JoinedGroup(error, request.member_id))]


# --- size (rule 1) ----------------------------------------------------------------------------------------------------


def _is_full_for(group: Group, member_id: str) -> bool:
    limit = group.settings.group_max_size
    if group.state is EMPTY:
        return False
    member = group.members.get(member_id)
    if (
        group.state is PREPARING_REBALANCE
    ):  # counts who is here already, so that the last to rejoin are the ones dropped
        return group.parked_joins >= limit and (member is None or member.parked_join is None)
    return member is None and len(group.members) >= limit


def _turn_away(group: Group, request: JoinGroup, now_ms: int, why: str = "") -> Effects:
    """A known member is removed. Whether the phase is complete now is only seen at the next event."""
    member = group.members.get(request.member_id)
    effects: Effects = [Reply(request.token, JoinedGroup(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))]
    if member is not None:
        effects += group.remove([member], now_ms)
    elif request.member_id in group.pending:
        effects += group.forget_pending(request.member_id)
    return [*effects, Emit(MemberTurnedAway(now_ms, group.group_id, request.member_id, why))]


# --- a newcomer (rule 3) ----------------------------------------------------------------------------------------------


def _newcomer(group: Group, request: JoinGroup, now_ms: int) -> Effects:
    member_id = _new_id(request.client_id if request.instance_id is None else request.instance_id, request.fresh_id)
    if request.needs_member_id and request.instance_id is None:
        return _give_id(group, request, member_id, now_ms)
    return _add(group, request, member_id, now_ms)


def _new_id(stem: str, fresh_id: str) -> str:
    """Cut where it would not fit into a string of the protocol: what counts is the fresh part."""
    tail = f"-{fresh_id}"
    data = stem.encode("utf-8", "replace")
    if len(data) + len(tail) > LONGEST_STRING:
        stem = data[: LONGEST_STRING - len(tail)].decode("utf-8", "ignore")
    return stem + tail


def _give_id(group: Group, request: JoinGroup, member_id: str, now_ms: int) -> Effects:
    lapses_ms = now_ms + request.session_timeout_ms
    group.give_id(member_id, lapses_ms)
    return [
        Arm(group.session_key(member_id), lapses_ms, SessionDue(group.group_id, member_id)),
        Reply(request.token, JoinedGroup(ErrorCode.MEMBER_ID_REQUIRED, member_id)),
        Emit(MemberIdGiven(now_ms, group.group_id, member_id, request.client_id, request.client_host)),
    ]


def _add(group: Group, request: JoinGroup, member_id: str, now_ms: int) -> Effects:
    member = ClassicGroupMember(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.protocols,
    )
    member.is_new = True
    if not group.members:
        group.protocol_type = request.protocol_type
    group.newcomers |= group.in_initial_delay
    group.add(member)
    group.park_join(member, request.token, now_ms)
    effects = group.expect_by(member, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
    effects.append(
        Emit(
            MemberJoined(now_ms, group.group_id, member_id, request.instance_id, request.client_id, request.client_host)
        )
    )
    if ON_JOIN_NEW[group.state] is GroupAction.START_REBALANCE:
        return effects + start_rebalance(group, now_ms, Cause.NEW_MEMBER, member_id, request.reason)
    return effects + maybe_complete_join_phase(group, now_ms)


# --- a member that is here --------------------------------------------------------------------------------------------


def rejoin(group: Group, member: ClassicGroupMember, request: JoinGroup, now_ms: int) -> Effects:
    """Handle the join of a member that is here; all checks are done."""
    leads = request.member_id == group.leader_id
    same = _same_protocols(member, request)
    unchanged = ON_JOIN_UNCHANGED_LEADER if leads else ON_JOIN_UNCHANGED
    what = (unchanged if same else ON_JOIN_CHANGED)[group.state]
    if what is GroupAction.REPEAT:  # changes nothing: not the timeouts, not the session (section 2)
        return [Reply(request.token, group.joined(member, members=leads))]
    if isinstance(what, ErrorCode):
        return _refuse(request, what)
    cause = _cause_of_rejoin(member, request, same=same) if what is GroupAction.START_REBALANCE else None
    effects = group.report_rejoin(member, now_ms)
    group.update(member, request)
    member.is_restored = False
    member.rejoined = True
    group.park_join(member, request.token, now_ms)
    if cause is not None:
        return effects + start_rebalance(group, now_ms, cause, member.member_id, request.reason)
    return effects + maybe_complete_join_phase(group, now_ms)


def _same_protocols(member: ClassicGroupMember, request: JoinGroup) -> bool:
    """Same names, same bytes, same order."""
    return member.protocols == request.protocols or list(member.protocols) == list(request.protocols)


def _cause_of_rejoin(member: ClassicGroupMember, request: JoinGroup, *, same: bool) -> Cause:
    if same:
        return Cause.LEADER_REJOINED
    if member.is_restored and all(protocol in request.protocols for protocol in member.protocols):
        return Cause.COORDINATOR_MOVED  # only the selected one of its protocols was on disk (C4)
    return Cause.PROTOCOLS_CHANGED


# --- a static member that comes back (rules 18, 19) -------------------------------------------------------------------


def _replace_static_member(group: Group, request: JoinGroup, now_ms: int) -> Effects:
    instance_id = request.instance_id
    assert instance_id is not None
    old = group.members[group.static[instance_id]]
    old_leader_id = group.leader_id
    effects = group.report_rejoin(old, now_ms)
    waiting = [
        name for name, token in (("SyncGroup", old.parked_sync), ("JoinGroup", old.parked_join)) if token is not None
    ]
    if old.parked_sync is not None:
        effects.append(Reply(old.parked_sync, SyncedGroup(ErrorCode.FENCED_INSTANCE_ID)))
    effects += group.answer_join(old, JoinedGroup(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
    effects.append(Disarm(group.session_key(old.member_id)))

    new = group.rename(old, _new_id(instance_id, request.fresh_id))
    for name in waiting[:1]:
        effects.append(report_waiting_fenced(group, name, old.member_id, instance_id, new.member_id, now_ms))
    new.awaits_sync = old.awaits_sync
    effects += group.expect_by(new, now_ms + new.session_timeout_ms)  # the old session timeout, once more
    group.update(new, request)
    group.park_join(new, request.token, now_ms)
    effects.append(Emit(MemberReplaced(now_ms, group.group_id, new.member_id, old.member_id, instance_id)))

    what = ON_JOIN_STATIC_RETURN[group.state]
    if what is GroupAction.PARK:
        new.rejoined = True
        return [*effects, *maybe_complete_join_phase(group, now_ms)]
    if what is GroupAction.REPLACE and group.vote() == group.protocol_name:
        written = StaticMemberWritten(
            group_id=group.group_id,
            token=request.token,
            request=request,
            generation_id=group.generation_id,
            member_id=new.member_id,
            old_member_id=old.member_id,
            old_leader_id=old_leader_id or "",
            old_protocols=old.protocols,
            old_session_timeout_ms=old.session_timeout_ms,
            old_rebalance_timeout_ms=old.rebalance_timeout_ms,
        )
        assignments = {member.member_id: member.assignment for member in group.members.values()}
        return [*effects, group.write(assignments, written)]
    cause = Cause.STATIC_MEMBER_CHANGED_VOTE if group.state is STABLE else Cause.STATIC_MEMBER_REPLACED
    new.rejoined = True
    return [*effects, *start_rebalance(group, now_ms, cause, new.member_id, request.reason)]


def static_member_written(group: Group, event: StaticMemberWritten, now_ms: int) -> Effects:
    """The new id is on disk: answer with the current generation, without a rebalance."""
    group.written()
    member = group.members.get(event.member_id)
    if member is None or member.parked_join != event.token:
        return []  # it left, or joined again: another rule has answered, or will
    if group.state is not STABLE or group.generation_id != event.generation_id:
        return []  # a rebalance began meanwhile; this join is parked in it
    if event.error:
        return _put_old_member_back(group, member, event, now_ms)
    if event.request.can_skip_assignment:
        leads = member.member_id == group.leader_id
        answer = group.joined(member, members=leads, skip_assignment=leads)
    else:
        answer = group.joined(member, members=False)
        answer.leader_id = event.old_leader_id  # below version 9 it must not believe that it leads (KIP-814)
    effects = group.answer_join(member, answer)
    if member.alarm_ms == NEVER:  # the disk was slow and its alarm has rung: the session starts again (rule 9)
        effects += group.expect_by(member, now_ms + member.session_timeout_ms)
    return effects


def _put_old_member_back(group: Group, member: ClassicGroupMember, event: StaticMemberWritten, now_ms: int) -> Effects:
    error = error_for_client(event.error)
    answer = JoinedGroup(error, "", group.generation_id, group.protocol_type, group.protocol_name, event.old_leader_id)
    effects = group.answer_join(member, answer)
    group.change(member, event.old_protocols, event.old_session_timeout_ms, event.old_rebalance_timeout_ms)
    effects.append(Disarm(group.session_key(member.member_id)))
    old = group.rename(member, event.old_member_id)
    old.awaits_sync = member.awaits_sync
    assert old.instance_id is not None
    replaced = MemberReplaced(now_ms, group.group_id, old.member_id, member.member_id, old.instance_id)
    failed = WriteFailed(now_ms, group.group_id, "the new id of a static member", event.error)
    return [
        *effects,
        *group.expect_by(old, now_ms + old.session_timeout_ms),
        Emit(failed),
        Emit(replaced),
    ]


# --- the record of a group's birth ------------------------------------------------------------------------------------


def creation_written(group: Group, event: CreationWritten, now_ms: int) -> Effects:
    """Remove a group whose creation could not be written, unless a generation was written meanwhile."""
    group.written()
    if not event.error or group.state is DEAD:
        return []
    effects: Effects = [Emit(WriteFailed(now_ms, group.group_id, "the birth of the group", event.error))]
    if group.generation_id or group.unwritten_commits:
        return effects
    error = error_for_client(event.error)
    for member in group.in_map_order():
        effects += group.answer_join(member, JoinedGroup(error, member.member_id))
    effects += group.remove(group.in_map_order(), now_ms)
    for member_id in list(group.pending):
        effects += group.forget_pending(member_id)
    enter(group, DEAD, now_ms)
    return [*effects, Disarm(group.join_key()), Emit(GroupDied(now_ms, group.group_id, "it could not be written"))]
