"""Offsets of logs: ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from coterie.broker.calls import Call
from coterie.broker.handlers.fetch import leader_epoch_error
from coterie.broker.handlers.topic_changes import is_internal
from coterie.broker.maintenance.directory_changes import Step
from coterie.errors import ErrorCode
from coterie.protocol.api_values import READ_COMMITTED
from coterie.protocol.apis import delete_records, list_offsets, offset_for_leader_epoch
from coterie.protocol.apis.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from coterie.storage import LogError, OffsetOutOfRangeError, PartitionLog

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["HANDLERS"]

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -4, -5, -6
HIGH_WATERMARK = -1


def _list_offsets(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = list_offsets.read_request(frame, at, call.version)
    committed = request.isolation_level == READ_COMMITTED
    named = Counter((topic.name, asked.partition) for topic in request.topics for asked in topic.partitions)
    topics = [
        list_offsets.ListedTopic(
            name=topic.name,
            partitions=[
                _listed(node, topic.name, asked, committed=committed)
                if named[topic.name, asked.partition] == 1
                else list_offsets.ListedPartition(partition=asked.partition, error=ErrorCode.INVALID_REQUEST)
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    node.answer(call, list_offsets.Response(topics=topics))


def _listed(node: Node, topic: str, asked: list_offsets.Partition, *, committed: bool) -> list_offsets.ListedPartition:
    answer = list_offsets.ListedPartition(partition=asked.partition)
    log = node.log(topic, asked.partition)
    if log is None:
        answer.error = node.absent(topic, asked.partition)
        return answer
    answer.error = leader_epoch_error(asked.current_leader_epoch, log)
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
        answer.leader_epoch = log.leader_epoch if asked.timestamp == LATEST else log.epoch_at(answer.offset)
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
        answer.error = node.absent(topic, asked.partition)
        return answer
    answer.error = leader_epoch_error(asked.current_leader_epoch, log)
    if not answer.error:
        answer.leader_epoch, end = log.end_of_epoch(asked.leader_epoch)
        answer.end_offset = min(end, node.flusher.end_of(log))
    return answer


def _delete_records(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = delete_records.read_request(frame, at, call.version)
    asked = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]

    def finish(answers: list[delete_records.DeletedPartition]) -> delete_records.Response:
        left = iter(answers)
        topics = [
            delete_records.DeletedTopic(name=topic.name, partitions=list(islice(left, len(topic.partitions))))
            for topic in request.topics
        ]
        return delete_records.Response(topics=topics)

    node.change_each(call, asked, _delete, finish)


def _delete(
    node: Node,
    asked: tuple[str, delete_records.Partition],
    done: Callable[[delete_records.DeletedPartition], None],
    _now_ms: int,
) -> Step | None:
    topic, partition = asked
    answer = delete_records.DeletedPartition(partition=partition.partition)

    def then(outcome: int | LogError, at_ms: int) -> None:
        if isinstance(outcome, LogError):
            answer.error = outcome.code
            node.tell_trouble(str(outcome), at_ms)
        else:
            answer.low_watermark = outcome
        done(answer)

    log = node.log(topic, partition.partition)
    if log is None:
        answer.error = node.absent(topic, partition.partition)
    elif is_internal(topic):
        answer.error = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif not log.config.deletes:
        answer.error = ErrorCode.POLICY_VIOLATION
    else:
        end = node.flusher.end_of(log)
        before = end if partition.offset == HIGH_WATERMARK else partition.offset
        try:
            return Step(node.directory.delete_records((topic, partition.partition), before, end), then)
        except OffsetOutOfRangeError as error:
            answer.error = error.code
    done(answer)
    return None


HANDLERS = {
    list_offsets.API.key: _list_offsets,
    offset_for_leader_epoch.API.key: _offset_for_leader_epoch,
    delete_records.API.key: _delete_records,
}
