"""The rules of OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete and of offsets that expire (rules 21 to 24).

A commit has three steps: partitions that do not exist are refused first; then the group accepts or refuses the request;
then each partition is checked. The rest is answered when it is durable, and only then becomes visible. Offsets are
deleted by OffsetDelete, with their topic, and when they expire (KIP-211). With the last of its offsets an Empty group
expires as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from coterie.coordinator.classic.effects import (
    Effects,
    ExpiryDue,
    OffsetsWritten,
    Persist,
    Reply,
    TombstonesWritten,
    TransactionEnded,
    error_for_client,
)
from coterie.coordinator.classic.fenced_facts import report_fenced
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.lifecycle import end_group
from coterie.coordinator.classic.states import EMPTY, enter
from coterie.coordinator.offsets.offsets_group import OffsetsGroup
from coterie.coordinator.offsets.stored_offsets import tombstones
from coterie.errors import ErrorCode
from coterie.facts import Emit, GroupCreated, GroupDied, OffsetsDeletedFact, OffsetsExpired, OffsetsStored, WriteFailed
from coterie.protocol.commit_rows import MOST_ROWS, CommitRows, FetchedRows, OffsetRows, StoredRows
from coterie.protocol.messages import (
    CommitPartition,
    CommittedOffset,
    DeletedPartition,
    FetchedOffset,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetRecord,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    TopicsDeleted,
)

_NONE = ErrorCode.NONE
_NOTHING: Mapping[int, CommittedOffset] = {}


def offset_commit(group: OffsetsGroup, request: OffsetCommit, now_ms: int) -> Effects:
    if type(request.partitions) is not CommitRows and all(partition.error for partition in request.partitions):
        return _answer(request, ErrorCode.NONE)  # no partition is left for the group
    error = group.validate_offset_commit(request)
    if error:
        name = "OffsetCommit" if request.producer_id is None else "TxnOffsetCommit"
        reported = report_fenced(group, name, request.member_id, request.instance_id, error, now_ms)
        return [*_answer(request, error), *reported]
    effects = group.commit_accepted(request, now_ms)
    errors, records = _judged(group, request, now_ms)
    if not records:
        return [*effects, Reply(request.token, OffsetsCommitted(request.partitions, errors))]
    if isinstance(group, Group) and group.is_dead:
        enter(group, EMPTY, now_ms)
        effects.append(Emit(GroupCreated(now_ms, group.group_id, simple=True)))
    written = OffsetsWritten(
        group_id=group.group_id,
        token=request.token,
        member_id=request.member_id,
        partitions=request.partitions,
        errors=errors,
        records=records,
        producer_id=request.producer_id,
    )
    group.unwritten_commits[id(written)] = written
    persist = Persist(records, written, request.producer_id, request.producer_epoch)
    return [*effects, persist] if effects else [persist]


def _judged(
    group: OffsetsGroup, request: OffsetCommit, now_ms: int
) -> tuple[Sequence[ErrorCode], Sequence[OffsetRecord]]:
    """Return the error of each partition, and the records to write."""
    partitions = request.partitions
    if type(partitions) is CommitRows and request.producer_id is None and request.retention_ms is None:
        return [_NONE] * len(partitions), OffsetRows(request.group_id, partitions, group.wall.at(now_ms))
    limit = group.settings.offset_metadata_max_bytes
    errors = [
        partition.error or (_too_large(partition, limit) if partition.metadata else _NONE) for partition in partitions
    ]
    at_ms = group.wall.at(now_ms)
    expire_ms = None if request.retention_ms is None else at_ms + request.retention_ms
    records = [
        OffsetRecord(
            request.group_id,
            partition.topic,
            partition.partition,
            CommittedOffset(
                partition.offset,
                partition.leader_epoch,
                partition.metadata or "",
                at_ms,
                expire_ms,
                partition.topic_id,
            ),
        )
        for partition, error in zip(partitions, errors, strict=True)
        if not error
    ]
    return errors, records


def _too_large(partition: CommitPartition, limit: int) -> ErrorCode:
    """Counted in UTF-16 units, as Java counts."""
    metadata = partition.metadata
    if metadata is None or len(metadata) * 2 <= limit:
        return ErrorCode.NONE
    units = len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-le", "surrogatepass")) // 2
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if units > limit else ErrorCode.NONE


def _answer(request: OffsetCommit, error: ErrorCode) -> Effects:
    errors = [partition.error or error for partition in request.partitions]
    return [Reply(request.token, OffsetsCommitted(request.partitions, errors))]


def offsets_written(group: OffsetsGroup, event: OffsetsWritten, now_ms: int) -> Effects:
    """The offsets are durable: answer the member."""
    del group.unwritten_commits[id(event)]
    if event.error:
        return _fail(group, event, now_ms)
    offsets: Sequence[tuple[str, int, int]]
    if type(event.records) is OffsetRows:
        offsets = StoredRows(event.records.of)
    else:
        offsets = [(record.topic, record.partition, record.value.offset) for record in event.records if record.value]
    fact = OffsetsStored(now_ms, group.group_id, event.member_id, offsets, event.producer_id is not None)
    return [*_reply(event, event.errors), Emit(fact)]


def _fail(group: OffsetsGroup, event: OffsetsWritten, now_ms: int) -> Effects:
    error = error_for_client(event.error)
    effects = _reply(event, [given or error for given in event.errors])
    effects.append(Emit(WriteFailed(now_ms, group.group_id, "offsets", event.error)))
    on_the_way = group.unwritten_commits or group.records_under_way
    if isinstance(group, Group) and group.is_empty and not (group.is_in_log or group.pending or on_the_way):
        effects += group.died(now_ms)  # this commit would have been all there is of the group
        effects.append(Emit(GroupDied(now_ms, group.group_id, "it could not be written")))
    return effects


def _reply(event: OffsetsWritten, errors: Sequence[ErrorCode]) -> Effects:
    if event.token is None:  # it waited too long and has been answered (offsets.commit.timeout.ms)
        return []
    return [Reply(event.token, OffsetsCommitted(event.partitions, errors))]


def transaction_ended(group: OffsetsGroup, event: TransactionEnded, now_ms: int) -> Effects:
    """The marker is durable: the offsets of the transaction are committed or dropped (rule 22)."""
    counted = group.stored.end_transaction(event.producer_id, committed=event.committed)
    return [Emit(OffsetsStored(now_ms, group.group_id, "", counted, transactional=True))] if counted else []


def offset_fetch(group: OffsetsGroup, request: OffsetFetch, _now_ms: int) -> Effects:
    """Return the offsets (rule 22). An offset that does not exist is -1 and no error, nor is an unknown group."""
    error = group.validate_offset_fetch(request)
    if error:
        return [Reply(request.token, OffsetsFetched(request.group_id, error))]
    wanted: Iterable[tuple[str, Iterable[int]]] = group.offsets.items() if request.topics is None else request.topics
    # Only a client that asked for stable offsets hears of open transactions.
    unstable = request.require_stable and bool(group.pending_offsets)
    if request.topics is not None and len(request.topics) == 1 and not unstable:
        rows = quick_rows(group, *request.topics[0])
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


def quick_rows(group: OffsetsGroup, topic: str, partitions: Sequence[int]) -> FetchedRows | None:
    """Return the offsets of one topic in one piece, if none of them has more than its offset."""
    committed = group.stored.last_commit(topic)
    if committed is not None and committed.numbers == tuple(partitions):
        return FetchedRows.of_commit(committed)
    stored_of = group.offsets.get(topic, _NOTHING).get
    stored = [each for each in map(stored_of, partitions) if each is not None and not each.metadata]
    plain = 0 < len(stored) == len(partitions) <= MOST_ROWS
    return FetchedRows.of_stored(topic, partitions, stored) if plain else None


def offset_delete(group: OffsetsGroup, request: OffsetDelete, _now_ms: int) -> Effects:
    error = group.validate_offset_delete(request)
    if error:
        return [Reply(request.token, OffsetsDeleted(error))]
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


def topics_deleted(group: OffsetsGroup, event: TopicsDeleted, _now_ms: int) -> Effects:
    """Delete the offsets of deleted topics; the group stays."""
    doomed = [(topic, partition) for topic, partition in group.partitions_with_offsets() if topic in event.topics]
    if not doomed:
        return []
    return [Persist(tombstones(group.group_id, doomed), TombstonesWritten(group_id=group.group_id, partitions=doomed))]


def tombstones_written(group: OffsetsGroup, event: TombstonesWritten, now_ms: int) -> Effects:
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


def expiry_due(group: OffsetsGroup, _event: ExpiryDue, now_ms: int) -> Effects:
    """Delete expired offsets (cleanupExpiredOffsets), or the group if it is Empty and nothing else is left of it."""
    if group.unwritten_commits:
        return []  # a commit is on its way to the log; the next check will know its outcome
    expired = _expired(group, group.wall.surely(now_ms))
    left = len(expired) < sum(map(len, group.offsets.values()))
    if group.is_empty and not left and not group.pending_offsets:
        return end_group(group, expired=expired)
    if not expired:
        return []
    written = TombstonesWritten(group_id=group.group_id, partitions=expired, expired=True)
    return [Persist(tombstones(group.group_id, expired), written)]


def _expired(group: OffsetsGroup, wall_ms: int) -> list[tuple[str, int]]:
    if not group.offsets_may_expire:
        return []
    return [
        (topic, partition)
        for topic, offsets in group.offsets.items()
        if not group.subscribes_to(topic)
        for partition, offset in offsets.items()
        if _is_expired(group, offset, wall_ms) and not group.has_pending_offset(topic, partition)
    ]


def _is_expired(group: OffsetsGroup, offset: CommittedOffset, wall_ms: int) -> bool:
    """Return whether `offsets.retention.minutes`, or the retention time of an old OffsetCommit, is over."""
    if offset.expire_timestamp_ms is not None:
        return wall_ms >= offset.expire_timestamp_ms
    return wall_ms - group.base_timestamp_ms(offset) >= group.settings.offsets_retention_ms
