"""OffsetFetch: where a group stands (rule 22). Whatever is missing is offset -1, and no error."""

from __future__ import annotations

from collections.abc import Iterable

from coterie.errors import ErrorCode
from coterie.group.effects import Effects, Reply
from coterie.group.group import Group
from coterie.messages import FetchedOffset, OffsetFetch, OffsetsFetched

__all__ = ["offset_fetch"]


def offset_fetch(group: Group, request: OffsetFetch, _now_ms: int) -> Effects:
    """A group nobody knows has no offsets; that is no error either."""
    wanted: Iterable[tuple[str, Iterable[int]]] = group.offsets.items() if request.topics is None else request.topics
    # Only a client that asked for stable offsets is told of open transactions.
    unstable = request.require_stable and bool(group.pending_offsets)
    found = [
        _fetched(group, topic, partition, unstable=unstable) for topic, partitions in wanted for partition in partitions
    ]
    return [Reply(request.token, OffsetsFetched(request.group_id, ErrorCode.NONE, found))]


def _fetched(group: Group, topic: str, partition: int, *, unstable: bool) -> FetchedOffset:
    if unstable and group.has_pending_offset(topic, partition):
        return FetchedOffset(topic, partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    partitions = group.offsets.get(topic)
    stored = partitions.get(partition) if partitions else None
    if stored is None:
        return FetchedOffset(topic, partition)
    return FetchedOffset(topic, partition, ErrorCode.NONE, stored.offset, stored.leader_epoch, stored.metadata)
