"""SyncGroup: the leader sends the assignment, and every member gets its part (rules 11-13).

The leader's sync is written before any member is answered.
"""

from __future__ import annotations

from collections.abc import Mapping

from coterie.coordinator.classic.effects import AssignmentWritten, Effects, Reply, SyncPhaseDue, error_for_client
from coterie.coordinator.classic.fenced_facts import report_fenced
from coterie.coordinator.classic.group import ClassicGroupMember, Group
from coterie.coordinator.classic.join_phase import answer_parked_syncs, start_rebalance
from coterie.coordinator.classic.states import COMPLETING_REBALANCE, ON_SYNC, STABLE, GroupAction, enter
from coterie.errors import ErrorCode
from coterie.facts import AssignmentFailed, AssignmentStored, Cause, Emit, MemberMissedSync
from coterie.protocol.messages import SyncedGroup, SyncGroup
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings


def sync_group(group: Group, request: SyncGroup, now_ms: int) -> Effects:
    error = _validate_sync_group(group, request)
    if error is not ErrorCode.NONE:
        reported = report_fenced(group, "SyncGroup", request.member_id, request.instance_id, error, now_ms)
        return [Reply(request.token, SyncedGroup(error)), *reported]
    return take_sync(group, group.members[request.member_id], request, now_ms)


def take_sync(group: Group, member: ClassicGroupMember, request: SyncGroup, now_ms: int) -> Effects:
    """Handle the sync of a member in the generation of the group; all checks are done."""
    what = ON_SYNC[group.state]
    if isinstance(what, ErrorCode):
        return [Reply(request.token, SyncedGroup(what))]
    member.awaits_sync = False
    if what is GroupAction.REPEAT:  # also to the leader, whose new list is ignored; the session goes on (rule 14)
        answer = SyncedGroup(ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol_name)
        return [Reply(request.token, answer)]
    member.parked_sync = request.token  # an earlier one loses its place and is never answered (rule 10)
    if request.member_id != group.leader_id or group.writing_generation == group.generation_id:
        return []
    return _write(group, request, now_ms)


def sync_precheck(request: SyncGroup, _settings: GroupCoordinatorSettings) -> ErrorCode:
    """Return what is wrong with a sync on any node, whether it coordinates the group or not."""
    if request.needs_protocol and (request.protocol_type is None or request.protocol_name is None):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID


def _validate_sync_group(group: Group, request: SyncGroup) -> ErrorCode:
    error = sync_precheck(request, group.settings)
    if error is not ErrorCode.NONE:
        return error
    error = group.validate_member(request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    for given, ours in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if given != ours and given is not None and ours is not None:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _write(group: Group, request: SyncGroup, now_ms: int) -> Effects:
    """Return the assignment of each member: the last entry counts, and a member without one gets nothing (rule 11)."""
    given = dict(request.assignments)
    assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
    group.writing_generation = group.generation_id
    written = AssignmentWritten(group_id=group.group_id, generation_id=group.generation_id, assignments=assignments)
    persist = group.write(assignments, written)
    if not _fits(group, assignments):  # as a record that is too large for the log
        written.error = ErrorCode.MESSAGE_TOO_LARGE
        return assignment_written(group, written, now_ms)
    return [persist]


def _fits(group: Group, assignments: Mapping[str, bytes]) -> bool:
    more = sum(map(len, assignments.values())) - sum([len(member.assignment) for member in group.members.values()])
    settings = group.settings
    return more <= 0 or (
        group.held_bytes + more <= settings.coterie_group_max_bytes
        and group.held_in_all.total + more <= settings.coterie_groups_max_bytes
    )


def assignment_written(group: Group, event: AssignmentWritten, now_ms: int) -> Effects:
    group.written()
    if group.state is not COMPLETING_REBALANCE or group.generation_id != event.generation_id:
        return []  # a rebalance began meanwhile: the waiting syncs are answered (rule 13)
    if event.error:
        for member in group.members.values():
            group.assign(member, b"")
        answers = answer_parked_syncs(group, error_for_client(event.error), now_ms)
        failed = Emit(AssignmentFailed(now_ms, group.group_id, group.generation_id, event.error))
        return [*answers, failed, *start_rebalance(group, now_ms, Cause.WRITE_FAILED)]
    enter(group, STABLE, now_ms)
    answers = answer_parked_syncs(group, ErrorCode.NONE, now_ms)
    return [*answers, Emit(AssignmentStored(now_ms, group.group_id, group.generation_id, event.assignments))]


def sync_phase_due(group: Group, event: SyncPhaseDue, now_ms: int) -> Effects:
    """Rule 12: remove the members that have not synced, also static ones and those that send heartbeats."""
    if group.state not in (COMPLETING_REBALANCE, STABLE) or group.generation_id != event.generation_id:
        return []
    silent = [member for member in group.in_map_order() if member.awaits_sync]
    if not silent:
        return []
    effects = group.remove(silent, now_ms)
    effects += [Emit(MemberMissedSync(now_ms, group.group_id, member.member_id)) for member in silent]
    return effects + start_rebalance(group, now_ms, Cause.SYNC_TIMEOUT, silent[0].member_id)
