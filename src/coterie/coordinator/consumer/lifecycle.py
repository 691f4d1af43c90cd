"""Writes and computations of a consumer group that ended, and how it is loaded and unloaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.coordinator.classic.effects import Disarm, Effects, Reply, error_for_client
from coterie.coordinator.consumer.conversion import DowngradeWritten
from coterie.coordinator.consumer.group import ConsumerGroup, ConsumerGroupWritten
from coterie.coordinator.consumer.group_change import ConsumerGroupChange, written_assignments
from coterie.coordinator.consumer.reconciliation import expect_revocation
from coterie.coordinator.consumer.states import GroupState, MemberState
from coterie.coordinator.consumer.target_assignment import TargetComputation, TargetLate
from coterie.coordinator.consumer.topic_image import TopicsImage
from coterie.coordinator.offsets.offsets_group import HeldBytes
from coterie.coordinator.offsets.stored_offsets import StoredOffsets
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.facts import CONSUMER, AssignorFailed, Emit, GroupLoaded, GroupUnloaded, WriteFailed
from coterie.protocol.consumer_group_records import Value
from coterie.protocol.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    LeftGroup,
    SyncedGroup,
    SyncGroup,
)
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings

_FAILED: Mapping[type, Callable[[Any, ErrorCode], Any]] = {
    ConsumerGroupHeartbeat: lambda _request, error: ConsumerGroupHeartbeatAnswer(error),
    JoinGroup: lambda request, error: JoinedGroup(error, request.member_id),
    SyncGroup: lambda _request, error: SyncedGroup(error),
    LeaveGroup: lambda _request, error: LeftGroup(error),
}


def failed_answer(request: Any, error: ErrorCode) -> Any:
    """Return the answer to a request whose records could not be written."""
    return _FAILED[type(request)](request, error)


def consumer_group_written(group: ConsumerGroup, event: ConsumerGroupWritten, now_ms: int) -> Effects:
    """Answer the requests whose records are durable. If they are not, the shard has taken them back (`abandon`)."""
    if event.error:
        error = error_for_client(event.error)
        effects: Effects = [Reply(token, failed_answer(request, error)) for token, _, request in event.replies]
        effects.append(Emit(WriteFailed(now_ms, group.group_id, "a change of the group", event.error)))
        return effects + _expect_all(group, now_ms)
    if group.unwritten and group.unwritten[0] is event:  # as always, unless the group was loaded or made again
        del group.unwritten[0]
    else:
        group.unwritten = [other for other in group.unwritten if other is not event]
    if group.upgrade is not None:
        group.upgrade.classic.let_go()
        group.upgrade = None
    return [*(Reply(token, answer) for token, answer, _ in event.replies), *map(Emit, event.facts)]


def downgrade_failed(group: ConsumerGroup, event: DowngradeWritten, now_ms: int) -> Effects:
    """Stay a consumer group: the classic group that was to follow could not be written."""
    event.successor.let_go()
    group.rebuild()
    effects: Effects = []
    if event.token is not None:
        effects.append(Reply(event.token, failed_answer(event.request, error_for_client(event.error))))
    effects.append(Emit(WriteFailed(now_ms, group.group_id, "the downgrade of the group", event.error)))
    return effects + _expect_all(group, now_ms)


def _expect_all(group: ConsumerGroup, now_ms: int) -> Effects:
    """Members that were about to go are back: their timers must run."""
    effects: Effects = []
    for member in group.members.values():
        session = group.sessions.get(member.member_id)
        if session is None:
            effects += group.expect(member.member_id, now_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            effects.append(expect_revocation(group, member, now_ms))
    return effects


def target_computed(group: ConsumerGroup, event: TargetComputation, now_ms: int) -> Effects:
    """Take a target for the group epoch that it was computed for (K2). The group may have a later one by now.

    If a static member was replaced meanwhile, within the same epoch, the target names a member that is gone. Then it is
    dropped, and the next heartbeat has it computed again.
    """
    if group.computing is not event:
        return []  # it came too late, or the group was loaded again
    group.computing = None
    ended = Disarm(group.target_key())
    if event.why:
        return [ended, *_assignor_failed(group, event, event.why, now_ms)]
    if not group.members:
        return [ended]
    if event.group_epoch == group.group_epoch and any(each.id not in group.members for each in event.members):
        group.tried_ms = 0
        return [ended]
    change = ConsumerGroupChange(group, now_ms)
    change.apply_target(event)
    return [ended, *change.write(None, None, None)]


def target_late(group: ConsumerGroup, event: TargetLate, now_ms: int) -> Effects:
    """Continue without the result of an assignor that takes too long."""
    if group.computing is not event.computing:
        return []
    group.computing = None
    timeout_ms = group.settings.coterie_assignor_timeout_ms
    why = f"it took more than {timeout_ms} ms (coterie.assignor.timeout.ms)"
    return _assignor_failed(group, event.computing, why, now_ms)


def _assignor_failed(group: ConsumerGroup, asked: TargetComputation, why: str, now_ms: int) -> Effects:
    """Keep the last target until there is another group epoch."""
    group.failed_epoch = asked.group_epoch
    return [Emit(AssignorFailed(now_ms, group.group_id, asked.group_epoch, asked.assignor, why))]


def restore_consumer_group(
    group_id: str,
    settings: GroupCoordinatorSettings,
    records: Mapping[tuple[int, str], Value],
    offsets: StoredOffsets,
    wall: WallClock | None = None,
    held_in_all: HeldBytes | None = None,
    image: TopicsImage | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> ConsumerGroup:
    """Return a group as its records have it; `records` has the last value of each key."""
    group = ConsumerGroup(group_id, settings, wall, held_in_all, image, configs)
    group.is_in_log = True
    group.stored = offsets
    group.durable = dict(records)
    group.rebuild()
    group.is_rebalancing = bool(group.members) and group.state is not GroupState.STABLE
    return group


def consumer_group_loaded(group: ConsumerGroup, now_ms: int) -> Effects:
    """Start the session of each member, and the time to give up partitions (K27)."""
    effects: Effects = []
    for member in group.members.values():
        session = group.session(member.member_id)
        session.deadline_ms = now_ms + group.session_timeout_ms  # whatever a classic member's own is
        effects += group.set_alarm(member.member_id, session)
        session.restored_until_ms = session.deadline_ms
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            effects.append(expect_revocation(group, member, now_ms))
    offsets = sum(map(len, group.offsets.values()))
    fact = GroupLoaded(
        now_ms,
        group.group_id,
        group.state.value,
        group.group_epoch,
        list(group.members),
        offsets,
        written_assignments(group),
        CONSUMER,
    )
    return [*effects, Emit(fact)]


def unload_consumer_group(group: ConsumerGroup, now_ms: int) -> Effects:
    """Another node coordinates the group now. Requests that wait for a write are answered with it."""
    group.died(now_ms)
    return [Emit(GroupUnloaded(now_ms, group.group_id))]
