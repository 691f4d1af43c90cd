"""OffsetCommit and TxnOffsetCommit: how far a group has come (rules 21, 22).

Three steps: partitions nobody knows are refused before the group is asked; then the group answers for all; then each
partition for itself. What is left is answered when it is durable, and only then becomes visible.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.coordinator.classic.effects import (
    Effects,
    Emit,
    OffsetsWritten,
    Persist,
    Reply,
    TransactionEnded,
    error_for_client,
)
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.states import (
    DEAD,
    EMPTY,
    ON_COMMIT,
    ON_SIMPLE_COMMIT,
    ON_SIMPLE_TXN_COMMIT,
    ON_TXN_COMMIT,
    Do,
    enter,
)
from coterie.errors import ErrorCode
from coterie.facts import GroupCreated, GroupDied, OffsetsStored, WriteFailed
from coterie.protocol.commit_rows import CommitRows, OffsetRows, StoredRows
from coterie.protocol.messages import CommitPartition, CommittedOffset, OffsetCommit, OffsetRecord, OffsetsCommitted

__all__ = ["offset_commit", "offsets_written", "transaction_ended"]

_NONE = ErrorCode.NONE


def offset_commit(group: Group, request: OffsetCommit, now_ms: int) -> Effects:
    if type(request.partitions) is not CommitRows and all(partition.error for partition in request.partitions):
        return _answer(request, ErrorCode.NONE)  # nothing left to ask the group about: it is not touched
    refusal = _refusal_of(group, request)
    if refusal:
        return _answer(request, refusal)
    effects: Effects = []
    member = group.members.get(request.member_id)
    if member is not None and request.producer_id is None:  # a sign of life, even if every partition fails (rule 14)
        effects += group.expect_by(member, now_ms + member.session_timeout_ms)

    errors, records = _judged(group, request, now_ms)
    if not records:
        return [*effects, Reply(request.token, OffsetsCommitted(request.partitions, errors))]
    if group.state is DEAD:
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


def _refusal_of(group: Group, request: OffsetCommit) -> ErrorCode:
    transactional = request.producer_id is not None
    nameless = request.generation_id < 0 and not request.member_id and request.instance_id is None
    if request.generation_id < 0 and (nameless or group.state in (EMPTY, DEAD)):  # whatever the ids
        table = ON_SIMPLE_TXN_COMMIT if transactional else ON_SIMPLE_COMMIT
    else:
        table = ON_TXN_COMMIT if transactional else ON_COMMIT
        if group.state is DEAD and not transactional and request.knows_group_id_not_found:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not DEAD:
            refusal = group.refusal_of(request.member_id, request.instance_id)
            if refusal:
                return refusal
            if request.generation_id != group.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
    what = table[group.state]
    return ErrorCode.NONE if isinstance(what, Do) else what


def _judged(group: Group, request: OffsetCommit, now_ms: int) -> tuple[Sequence[ErrorCode], Sequence[OffsetRecord]]:
    """Each partition for itself, and what is to be written."""
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


def offsets_written(group: Group, event: OffsetsWritten, now_ms: int) -> Effects:
    """The offsets are durable, and count: now the member is answered."""
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


def _fail(group: Group, event: OffsetsWritten, now_ms: int) -> Effects:
    error = error_for_client(event.error)
    effects = _reply(event, [given or error for given in event.errors])
    effects.append(Emit(WriteFailed(now_ms, group.group_id, "offsets", event.error)))
    on_the_way = group.unwritten_commits or group.records_under_way
    if group.state is EMPTY and not (group.is_in_log or group.pending or on_the_way):
        enter(group, DEAD, now_ms)  # this commit would have been all there is of the group
        effects.append(Emit(GroupDied(now_ms, group.group_id, "it could not be written")))
    return effects


def _reply(event: OffsetsWritten, errors: Sequence[ErrorCode]) -> Effects:
    if event.token is None:  # it waited too long and has been answered (offsets.commit.timeout.ms)
        return []
    return [Reply(event.token, OffsetsCommitted(event.partitions, errors))]


def transaction_ended(group: Group, event: TransactionEnded, now_ms: int) -> Effects:
    """The marker is durable: the offsets of the transaction count now, or never (rule 22)."""
    counted = group.stored.end_transaction(event.producer_id, committed=event.committed)
    return [Emit(OffsetsStored(now_ms, group.group_id, "", counted, transactional=True))] if counted else []
