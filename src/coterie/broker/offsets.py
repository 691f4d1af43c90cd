"""Offsets of logs: ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.apis import delete_records, list_offsets, offset_for_leader_epoch
from coterie.broker.calls import Call
from coterie.broker.fetch import LEADER_EPOCH, READ_COMMITTED, leader_epoch_error
from coterie.broker.topics import is_internal
from coterie.errors import ErrorCode
from coterie.log import LogError, OffsetOutOfRangeError, PartitionLog

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["HANDLERS"]

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
HIGH_WATERMARK = -1


def _list_offsets(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = list_offsets.read_request(frame, at, call.version)
    committed = request.isolation_level == READ_COMMITTED
    topics = [
        list_offsets.ListedTopic(
            name=topic.name,
            partitions=[_listed(node, topic.name, asked, committed=committed) for asked in topic.partitions],
        )
        for topic in request.topics
    ]
    node.answer(call, list_offsets.Response(topics=topics))


def _listed(node: Node, topic: str, asked: list_offsets.Partition, *, committed: bool) -> list_offsets.ListedPartition:
    answer = list_offsets.ListedPartition(partition=asked.partition)
    log = node.log(topic, asked.partition)
    if log is None:
        answer.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    answer.error = leader_epoch_error(asked.current_leader_epoch)
    if answer.error:
        return answer
    end = node.flusher.end_of(log)
    if committed:
        end = log.last_stable(end)
    try:
        found = _offset_at(log, asked.timestamp, end)
    except LogError as error:
        answer.error = error.code
        return answer
    if found is not None:
        answer.offset, answer.timestamp = found
        answer.leader_epoch = LEADER_EPOCH if log.log_end else -1
    return answer


def _offset_at(log: PartitionLog, timestamp: int, end: int) -> tuple[int, int] | None:
    """The offset for a time or one of the names for one, and the time it has (-1 for a name)."""
    if timestamp == LATEST:
        return end, -1
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start, -1
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING):
        return None  # nothing is ever moved to remote storage
    if timestamp == MAX_TIMESTAMP:
        found = log.offset_of_latest_timestamp(end)
    else:
        found = log.offset_for_timestamp(timestamp, end)
    return None if found is None else (found.offset, found.timestamp)


def _offset_for_leader_epoch(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = offset_for_leader_epoch.read_request(frame, at, call.version)
    topics = [
        offset_for_leader_epoch.TopicEnds(
            topic=topic.topic, partitions=[_epoch_end(node, topic.topic, asked) for asked in topic.partitions]
        )
        for topic in request.topics
    ]
    node.answer(call, offset_for_leader_epoch.Response(topics=topics))


def _epoch_end(node: Node, topic: str, asked: offset_for_leader_epoch.Partition) -> offset_for_leader_epoch.EpochEnd:
    answer = offset_for_leader_epoch.EpochEnd(partition=asked.partition)
    log = node.log(topic, asked.partition)
    if log is None:
        answer.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    answer.error = leader_epoch_error(asked.current_leader_epoch)
    if not answer.error and asked.leader_epoch == LEADER_EPOCH:
        answer.leader_epoch, answer.end_offset = LEADER_EPOCH, node.flusher.end_of(log)
    return answer


def _delete_records(node: Node, call: Call, frame: bytes, at: int, now_ms: int) -> None:
    request = delete_records.read_request(frame, at, call.version)
    topics = [
        delete_records.DeletedTopic(
            name=topic.name, partitions=[_deleted(node, topic.name, asked, now_ms) for asked in topic.partitions]
        )
        for topic in request.topics
    ]
    node.answer(call, delete_records.Response(topics=topics))


def _deleted(node: Node, topic: str, asked: delete_records.Partition, now_ms: int) -> delete_records.DeletedPartition:
    answer = delete_records.DeletedPartition(partition=asked.partition)
    log = node.log(topic, asked.partition)
    if log is None:
        answer.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif is_internal(topic):
        answer.error = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif not log.config.deletes:
        answer.error = ErrorCode.POLICY_VIOLATION
    else:
        end = node.flusher.end_of(log)
        before = end if asked.offset == HIGH_WATERMARK else asked.offset
        try:
            answer.low_watermark = node.directory.delete_records((topic, asked.partition), before, end)
        except OffsetOutOfRangeError as error:
            answer.error = error.code
        except LogError as error:
            node.tell_trouble(str(error), now_ms)
            answer.error = error.code
    return answer


HANDLERS = {
    list_offsets.API.key: _list_offsets,
    offset_for_leader_epoch.API.key: _offset_for_leader_epoch,
    delete_records.API.key: _delete_records,
}
