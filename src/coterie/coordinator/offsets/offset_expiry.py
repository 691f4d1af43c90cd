"""Expiry: offsets nobody needs any more go, and with the last of them an Empty group (rule 23, KIP-211)."""

from __future__ import annotations

from coterie.coordinator.classic.delete_group import end_group
from coterie.coordinator.classic.effects import Effects, ExpiryDue, Persist, TombstonesWritten
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.states import EMPTY, STABLE
from coterie.coordinator.offsets.offset_delete import tombstones
from coterie.protocol.messages import CONSUMER, CommittedOffset

__all__ = ["expiry_due"]


def expiry_due(group: Group, _event: ExpiryDue, now_ms: int) -> Effects:
    if group.unwritten_commits:
        return []  # a commit is on its way to the log; the next check will know its outcome
    expired = _expired(group, group.wall.surely(now_ms))
    left = len(expired) < sum(map(len, group.offsets.values()))
    if group.state is EMPTY and not left and not group.pending_offsets:
        return end_group(group, expired=expired)
    if not expired:
        return []
    written = TombstonesWritten(group_id=group.group_id, partitions=expired, expired=True)
    return [Persist(tombstones(group, expired), written)]


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
    """Empty groups, simple ones among them; and Stable consumers, for the topics they no longer read."""
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
