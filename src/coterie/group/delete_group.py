"""DeleteGroups: only an Empty group can be deleted, and all its offsets go with it (rule 24)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.facts import GroupDied, OffsetsExpired, WriteFailed
from coterie.group.effects import DeletionWritten, Effects, Persist, Reply, Tell
from coterie.group.group import Group
from coterie.group.offset_delete import tombstones
from coterie.group.states import DEAD, ON_DELETE_GROUP, Do, enter
from coterie.group.write_errors import error_for_client
from coterie.messages import DeleteGroup, GroupRecord, Record, Token

__all__ = ["delete_group", "deletion_written", "end_group"]


def delete_group(group: Group, request: DeleteGroup, now_ms: int) -> Effects:
    what = ON_DELETE_GROUP[group.state]
    if not isinstance(what, Do):
        return [Reply(request.token, what)]
    return end_group(group, now_ms, token=request.token)


def end_group(
    group: Group, now_ms: int, *, token: Token | None = None, expired: Sequence[tuple[str, int]] | None = None
) -> Effects:
    """The group is gone at once, so that a join right behind founds a new one; the answer waits for the disk.

    Pending ids and open transactional commits do not prevent it.
    """
    effects: Effects = []
    for member_id in list(group.pending):
        effects += group.forget_pending(member_id)
    records: list[Record] = [*tombstones(group, group.partitions_with_offsets()), GroupRecord(group.group_id, None)]
    written = DeletionWritten(
        group_id=group.group_id, token=token, expired=expired, empty_since_ms=group.state_timestamp_ms
    )
    enter(group, DEAD, now_ms)
    why = "deleted" if token is not None else "nothing was left of it"
    return [*effects, Tell(GroupDied(now_ms, group.group_id, why)), Persist(records, written)]


def deletion_written(group: Group, event: DeletionWritten, now_ms: int) -> Effects:
    """If it failed, nothing was deleted; the shard knows whether the group's place is still free for it."""
    if event.error:
        effects: Effects = [Tell(WriteFailed(now_ms, group.group_id, "the end of the group", event.error))]
        if event.token is not None:
            effects.append(Reply(event.token, error_for_client(event.error)))
        return effects
    effects = [Tell(OffsetsExpired(now_ms, group.group_id, event.expired))] if event.expired else []
    group.offsets.clear()
    group.pending_offsets.clear()
    if event.token is not None:
        effects.append(Reply(event.token, ErrorCode.NONE))
    return effects
