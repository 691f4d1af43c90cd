"""OffsetFetch: where a group stands (rule 22). Whatever is missing is offset -1, and no error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from coterie.coordinator.classic.effects import Effects, Reply
from coterie.coordinator.classic.group import Group
from coterie.errors import ErrorCode
from coterie.protocol.commit_rows import MOST_ROWS, FetchedRows
from coterie.protocol.messages import CommittedOffset, FetchedOffset, OffsetFetch, OffsetsFetched

__all__ = ["offset_fetch"]

_NONE = ErrorCode.NONE
_NOTHING: Mapping[int, CommittedOffset] = {}


def offset_fetch(group: Group, request: OffsetFetch, _now_ms: int) -> Effects:
    """A group nobody knows has no offsets; that is no error either."""
    wanted: Iterable[tuple[str, Iterable[int]]] = group.offsets.items() if request.topics is None else request.topics
    # Only a client that asked for stable offsets hears of open transactions.
    unstable = request.require_stable and bool(group.pending_offsets)
    if request.topics is not None and len(request.topics) == 1 and not unstable:
        rows = _rows(group, *request.topics[0])
        if rows is not None:
            return [Reply(request.token, OffsetsFetched(request.group_id, _NONE, rows))]
    found: list[FetchedOffset] = []
    append = found.append
    for topic, partitions in wanted:
        stored_of = group.offsets.get(topic, _NOTHING).get
        for partition in partitions:
            stored = stored_of(partition)
            if unstable and group.has_pending_offset(topic, partition):
                append(FetchedOffset(topic, partition, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif stored is None:
                append(FetchedOffset(topic, partition))
            else:
                append(FetchedOffset(topic, partition, _NONE, stored.offset, stored.leader_epoch, stored.metadata))
    return [Reply(request.token, OffsetsFetched(request.group_id, _NONE, found))]


def _rows(group: Group, topic: str, partitions: Sequence[int]) -> FetchedRows | None:
    """All at once, if there is nothing to be said of any of them but its offset."""
    committed = group.stored.last_commit(topic)
    if committed is not None and committed.numbers == tuple(partitions):
        return FetchedRows.of_commit(committed)
    stored_of = group.offsets.get(topic, _NOTHING).get
    stored = [each for each in map(stored_of, partitions) if each is not None and not each.metadata]
    plain = 0 < len(stored) == len(partitions) <= MOST_ROWS
    return FetchedRows.of_stored(topic, partitions, stored) if plain else None
