"""OffsetDelete, and what a deleted topic takes with it (rules 23, 24)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coterie.coordinator.classic.effects import Effects, Persist, Reply, Tell, TombstonesWritten
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.states import ON_OFFSET_DELETE, Do
from coterie.coordinator.classic.write_errors import error_for_client
from coterie.errors import ErrorCode
from coterie.facts import OffsetsDeletedFact, OffsetsExpired, WriteFailed
from coterie.protocol.messages import (
    CONSUMER,
    DeletedPartition,
    OffsetDelete,
    OffsetRecord,
    OffsetsDeleted,
    TopicsDeleted,
)

__all__ = ["offset_delete", "tombstones", "tombstones_written", "topics_deleted"]


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
    return [Persist(tombstones(group, doomed), written)]


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
    return [Persist(tombstones(group, doomed), TombstonesWritten(group_id=group.group_id, partitions=doomed))]


def tombstones(group: Group, partitions: Iterable[tuple[str, int]]) -> Sequence[OffsetRecord]:
    return [OffsetRecord(group.group_id, topic, partition, None) for topic, partition in partitions]


def tombstones_written(group: Group, event: TombstonesWritten, now_ms: int) -> Effects:
    if event.error:
        effects: Effects = [Tell(WriteFailed(now_ms, group.group_id, "tombstones", event.error))]
        if event.token is not None:
            effects.append(Reply(event.token, OffsetsDeleted(error_for_client(event.error))))
        return effects
    told = OffsetsExpired if event.expired else OffsetsDeletedFact
    effects = [Tell(told(now_ms, group.group_id, event.partitions))]
    if event.token is not None:
        effects.append(Reply(event.token, event.answer))
    return effects
