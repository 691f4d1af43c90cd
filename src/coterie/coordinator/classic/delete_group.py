"""DeleteGroups: only an Empty group can be deleted, and all its offsets go with it (rule 24)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.coordinator.classic.effects import DeletionWritten, Effects, Emit, Persist, Reply, error_for_client
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.states import DEAD, ON_DELETE_GROUP, Do, enter
from coterie.coordinator.offsets.stored_offsets import tombstones
from coterie.errors import ErrorCode
from coterie.facts import GroupDied, OffsetsExpired, WriteFailed
from coterie.protocol.messages import DeleteGroup, GroupRecord, Record, Token

__all__ = ["delete_group", "deletion_written", "end_group"]


def delete_group(group: Group, request: DeleteGroup, _now_ms: int) -> Effects:
    what = ON_DELETE_GROUP[group.state]
    if not isinstance(what, Do):
        return [Reply(request.token, what)]
    return end_group(group, token=request.token)


def end_group(group: Group, *, token: Token | None = None, expired: Sequence[tuple[str, int]] | None = None) -> Effects:
    """Nothing changes before the tombstones are durable; until then the shard holds back what comes for the group.

    Pending ids and open transactional commits do not prevent it.
    """
    records: list[Record] = [
        *tombstones(group.group_id, group.partitions_with_offsets()),
        GroupRecord(group.group_id, None),
    ]
    return [Persist(records, DeletionWritten(group_id=group.group_id, token=token, expired=expired))]


def deletion_written(group: Group, event: DeletionWritten, now_ms: int) -> Effects:
    if event.error:
        effects: Effects = [Emit(WriteFailed(now_ms, group.group_id, "the end of the group", event.error))]
        if event.token is not None:
            effects.append(Reply(event.token, error_for_client(event.error)))
        return effects
    effects = [Emit(OffsetsExpired(now_ms, group.group_id, event.expired))] if event.expired else []
    for member_id in list(group.pending):
        effects += group.forget_pending(member_id)
    enter(group, DEAD, now_ms)
    why = "deleted" if event.token is not None else "nothing was left of it"
    effects.append(Emit(GroupDied(now_ms, group.group_id, why)))
    if event.token is not None:
        effects.append(Reply(event.token, ErrorCode.NONE))
    return effects
