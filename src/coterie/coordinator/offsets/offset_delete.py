"""Offsets are deleted: by OffsetDelete, with their topic, and when they expire (rules 23, 24, KIP-211).

With the last of its offsets an Empty group expires as well.
"""

from __future__ import annotations

from coterie.coordinator.classic.delete_group import end_group
from coterie.coordinator.classic.effects import (
    Effects,
    Emit,
    ExpiryDue,
    Persist,
    Reply,
    TombstonesWritten,
    error_for_client,
)
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.states import EMPTY, ON_OFFSET_DELETE, STABLE, Do
from coterie.coordinator.offsets.stored_offsets import tombstones
from coterie.errors import ErrorCode
from coterie.facts import OffsetsDeletedFact, OffsetsExpired, WriteFailed
from coterie.protocol.messages import (
    CONSUMER,
    CommittedOffset,
    DeletedPartition,
    OffsetDelete,
    OffsetsDeleted,
    TopicsDeleted,
)

__all__ = ["expiry_due", "offset_delete", "tombstones_written", "topics_deleted"]


def offset_delete(group: Group, request: OffsetDelete, _now_ms: int) -> Effects:
    refusal = _refusal_of(group, request)
    if refusal:
        return [Reply(request.token, OffsetsDeleted(refusal))]
    known = group.partitions_with_offsets()
    answers: list[DeletedPartition] = []
    doomed: list[tuple[str, int]] = []
    for topic, partitions in request.topics:
        if group.subscribes_to(topic):
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            error = ErrorCode.NONE
            doomed += [(topic, partition) for partition in partitions if (topic, partition) in known]
        answers += [DeletedPartition(topic, partition, error) for partition in partitions]
    answer = OffsetsDeleted(ErrorCode.NONE, answers)
    if not doomed:
        return [Reply(request.token, answer)]
    written = TombstonesWritten(group_id=group.group_id, token=request.token, partitions=doomed, answer=answer)
    return [Persist(tombstones(group.group_id, doomed), written)]


def _refusal_of(group: Group, request: OffsetDelete) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    what = ON_OFFSET_DELETE[group.state]
    if what is Do.TAKE_IF_CONSUMER and group.protocol_type != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE if isinstance(what, Do) else what


def topics_deleted(group: Group, event: TopicsDeleted, _now_ms: int) -> Effects:
    """Offsets go with their topic; the group stays."""
    doomed = [(topic, partition) for topic, partition in group.partitions_with_offsets() if topic in event.topics]
    if not doomed:
        return []
    return [Persist(tombstones(group.group_id, doomed), TombstonesWritten(group_id=group.group_id, partitions=doomed))]


def tombstones_written(group: Group, event: TombstonesWritten, now_ms: int) -> Effects:
    if event.error:
        effects: Effects = [Emit(WriteFailed(now_ms, group.group_id, "tombstones", event.error))]
        if event.token is not None:
            effects.append(Reply(event.token, OffsetsDeleted(error_for_client(event.error))))
        return effects
    kind = OffsetsExpired if event.expired else OffsetsDeletedFact
    effects = [Emit(kind(now_ms, group.group_id, event.partitions))]
    if event.token is not None:
        effects.append(Reply(event.token, event.answer))
    return effects


def expiry_due(group: Group, _event: ExpiryDue, now_ms: int) -> Effects:
    """Delete the offsets that expired, or the group if it is Empty and nothing else is left of it."""
    if group.unwritten_commits:
        return []  # a commit is on its way to the log; the next check will know its outcome
    expired = _expired(group, group.wall.surely(now_ms))
    left = len(expired) < sum(map(len, group.offsets.values()))
    if group.state is EMPTY and not left and not group.pending_offsets:
        return end_group(group, expired=expired)
    if not expired:
        return []
    written = TombstonesWritten(group_id=group.group_id, partitions=expired, expired=True)
    return [Persist(tombstones(group.group_id, expired), written)]


def _expired(group: Group, wall_ms: int) -> list[tuple[str, int]]:
    if not _may_expire(group):
        return []
    return [
        (topic, partition)
        for topic, offsets in group.offsets.items()
        if not group.subscribes_to(topic)
        for partition, offset in offsets.items()
        if _is_over(group, offset, wall_ms) and not group.has_pending_offset(topic, partition)
    ]


def _may_expire(group: Group) -> bool:
    """Offsets of Empty groups may expire; of Stable consumers, those of topics they no longer read."""
    if group.state is EMPTY:
        return True
    return group.state is STABLE and group.protocol_type == CONSUMER and group.subscribed_topics is not None


def _is_over(group: Group, offset: CommittedOffset, wall_ms: int) -> bool:
    if offset.expire_timestamp_ms is not None:
        return wall_ms >= offset.expire_timestamp_ms
    was_in_use = offset.commit_timestamp_ms
    if group.state is EMPTY and group.protocol_type is not None and group.state_timestamp_ms >= 0:
        was_in_use = group.state_timestamp_ms  # until the last member went
    return wall_ms - was_in_use >= group.settings.offsets_retention_ms
