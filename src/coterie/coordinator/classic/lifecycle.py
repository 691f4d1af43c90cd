"""Load a group from its GroupMetadataValue (C4), unload it, and delete it (rule 24)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.coordinator.classic.effects import DeletionWritten, Effects, EmptyWritten, Persist, Reply, error_for_client
from coterie.coordinator.classic.group import ClassicGroupMember, Group
from coterie.coordinator.classic.join_phase import start_rebalance
from coterie.coordinator.classic.states import DEAD, EMPTY, STABLE, enter, resume
from coterie.coordinator.offsets.offsets_group import HeldBytes, OffsetsGroup
from coterie.coordinator.offsets.stored_offsets import StoredOffsets, tombstones
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.facts import Cause, Emit, GroupDied, GroupLoaded, GroupUnloaded, OffsetsExpired, WriteFailed
from coterie.protocol.messages import (
    DeleteGroup,
    GroupRecord,
    JoinedGroup,
    LeftGroup,
    Protocol,
    Record,
    StoredGroup,
    SyncedGroup,
    Token,
)
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings


def empty_written(group: Group, event: EmptyWritten, now_ms: int) -> Effects:
    """Report a failed write of an Empty generation. After a crash the old one is restored, and its members expire."""
    group.written()
    answer = LeftGroup(error_for_client(event.error)) if event.error else event.answer
    effects: Effects = [] if event.token is None else [Reply(event.token, answer)]
    if event.error:
        return [*effects, Emit(WriteFailed(now_ms, group.group_id, "that the group is empty", event.error))]
    return effects


def unload(group: Group, now_ms: int) -> Effects:
    """Another node coordinates the group now: answer every waiting request with NOT_COORDINATOR."""
    effects: Effects = []
    for member in group.in_map_order():
        effects += group.report_rejoin(member, now_ms)
        effects += group.answer_join(member, JoinedGroup(ErrorCode.NOT_COORDINATOR, member.member_id))
        if member.parked_sync is not None:
            effects.append(Reply(member.parked_sync, SyncedGroup(ErrorCode.NOT_COORDINATOR)))
            member.parked_sync = None
    enter(group, DEAD, now_ms)
    group.let_go()
    effects.append(Emit(GroupUnloaded(now_ms, group.group_id)))
    return effects


def restore(
    group_id: str,
    settings: GroupCoordinatorSettings,
    stored: StoredGroup | None,
    offsets: StoredOffsets,
    now_ms: int,
    wall: WallClock | None = None,
    held_in_all: HeldBytes | None = None,
) -> Group:
    """Return a group as its records have it: Stable with members, Empty without.

    `stored` is its last record, None for a simple group; `offsets` has had the records of its offsets applied.
    """
    group = Group(group_id, settings, wall, held_in_all)
    group.is_in_log = True
    group.stored = offsets
    if stored is None:
        resume(group, EMPTY, group.wall.at(now_ms))
        return group
    group.generation_id = stored.generation_id
    group.protocol_type = stored.protocol_type or None
    group.protocol_name = stored.protocol_name
    group.leader_id = stored.leader_id
    for was in stored.members:
        protocols = [Protocol(stored.protocol_name or "", was.subscription)]  # the others were never written
        member = ClassicGroupMember(
            was.member_id,
            was.instance_id,
            was.client_id,
            was.client_host,
            was.session_timeout_ms,
            was.rebalance_timeout_ms,
            protocols,
        )
        member.is_restored = True
        group.add(member)
    resume(group, STABLE if group.members else EMPTY, stored.state_timestamp_ms)
    group.apply([GroupRecord(group_id, stored)], -1)
    group.note_subscriptions(group.joined_members())
    return group


def loaded(group: Group, now_ms: int) -> Effects:
    """Start the session of each member; a group that is too large has a rebalance."""
    effects: Effects = []
    for member in group.in_map_order():
        effects += group.expect_by(member, now_ms + member.session_timeout_ms)
        member.restored_until_ms = member.deadline_ms
    assignments = {member.member_id: member.assignment for member in group.in_map_order()}
    offsets = sum(map(len, group.offsets.values()))
    fact = GroupLoaded(
        now_ms, group.group_id, group.state.value, group.generation_id, list(assignments), offsets, assignments
    )
    effects.append(Emit(fact))
    if len(group.members) > group.settings.group_max_size:
        effects += start_rebalance(group, now_ms, Cause.OVER_SIZE_AT_LOAD)
    return effects


def delete_group(group: OffsetsGroup, request: DeleteGroup, _now_ms: int) -> Effects:
    """Delete an Empty group and its offsets; a group in any other state is refused (rule 24)."""
    error = group.validate_delete()
    return [Reply(request.token, error)] if error else end_group(group, token=request.token)


def end_group(
    group: OffsetsGroup, *, token: Token | None = None, expired: Sequence[tuple[str, int]] | None = None
) -> Effects:
    """Write its tombstones. Nothing changes before they are durable; the shard holds requests back till then.

    Pending ids and open transactional commits do not prevent it.
    """
    records: list[Record] = [
        *tombstones(group.group_id, group.partitions_with_offsets()),
        *group.tombstones(),
    ]
    return [Persist(records, DeletionWritten(group_id=group.group_id, token=token, expired=expired))]


def deletion_written(group: OffsetsGroup, event: DeletionWritten, now_ms: int) -> Effects:
    if event.error:
        effects: Effects = [Emit(WriteFailed(now_ms, group.group_id, "the end of the group", event.error))]
        if event.token is not None:
            effects.append(Reply(event.token, error_for_client(event.error)))
        return effects
    effects = [Emit(OffsetsExpired(now_ms, group.group_id, event.expired))] if event.expired else []
    effects += group.died(now_ms)
    why = "deleted" if event.token is not None else "nothing was left of it"
    effects.append(Emit(GroupDied(now_ms, group.group_id, why)))
    if event.token is not None:
        effects.append(Reply(event.token, ErrorCode.NONE))
    return effects
