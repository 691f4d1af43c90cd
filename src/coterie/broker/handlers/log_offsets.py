"""Offsets of logs: ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from coterie.broker.broker_effects import Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.handlers.fetch import leader_epoch_error
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.metadata_cache import is_internal
from coterie.broker.replica_manager import ReplicaManager
from coterie.broker.security.auth_helper import AuthHelper
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.api import READ_COMMITTED
from coterie.protocol.apis import delete_records, list_offsets, offset_for_leader_epoch
from coterie.protocol.apis.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from coterie.storage import DataDirectory, LogError, LogOffsetOutOfRangeError, PartitionLog
from coterie.structs import DataStruct

__all__ = ["LogOffsetApis"]

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -4, -5, -6
HIGH_WATERMARK = -1
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class LogOffsetApis(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper
    replicas: ReplicaManager
    directory: DataDirectory
    changes: Changes
    reporter: Reporter

    def handlers(self) -> Mapping[int, Handler]:
        return {
            list_offsets.API.key: self._list_offsets,
            offset_for_leader_epoch.API.key: self._offset_for_leader_epoch,
            delete_records.API.key: self._delete_records,
        }

    def _list_offsets(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = list_offsets.read_request(frame, at, call.version)
        denied = self._denied(call, AclOperation.DESCRIBE, (topic.name for topic in request.topics))
        committed = request.isolation_level == READ_COMMITTED
        named = Counter((topic.name, asked.partition) for topic in request.topics for asked in topic.partitions)
        topics = [
            list_offsets.ListedTopic(
                name=topic.name,
                partitions=[
                    list_offsets.ListedPartition(partition=asked.partition, error=DENIED)
                    if topic.name in denied
                    else self._listed(topic.name, asked, committed=committed)
                    if named[topic.name, asked.partition] == 1
                    else list_offsets.ListedPartition(partition=asked.partition, error=ErrorCode.INVALID_REQUEST)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return self.responses.answer(call, list_offsets.Response(topics=topics), now_ms)

    def _denied(self, call: Call, operation: AclOperation, topics: Iterable[str]) -> frozenset[str]:
        return self.auth.denied(call, operation, AclResourceType.TOPIC, topics)

    def _listed(self, topic: str, asked: list_offsets.Partition, *, committed: bool) -> list_offsets.ListedPartition:
        answer = list_offsets.ListedPartition(partition=asked.partition)
        log = self.replicas.log(topic, asked.partition)
        if log is None:
            answer.error = self.replicas.error_for(topic, asked.partition)
            return answer
        answer.error = leader_epoch_error(asked.current_leader_epoch, log)
        if answer.error:
            return answer
        end = self.replicas.high_watermark(log)
        if committed:
            end = log.last_stable_offset(end)
        try:
            found = _offset_at(log, asked.timestamp, end)
        except LogError as error:
            answer.error = error.code
            return answer
        if found is not None:
            answer.offset, answer.timestamp = found
            answer.leader_epoch = log.leader_epoch if asked.timestamp == LATEST else log.epoch_at(answer.offset)
        return answer

    def _offset_for_leader_epoch(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = offset_for_leader_epoch.read_request(frame, at, call.version)
        denied: frozenset[str] = frozenset()
        if not self.auth.authorize(call, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, logs=False):
            denied = self._denied(call, AclOperation.DESCRIBE, (topic.topic for topic in request.topics))
        topics = [
            offset_for_leader_epoch.TopicEnds(
                topic=topic.topic,
                partitions=[
                    offset_for_leader_epoch.EpochEnd(partition=asked.partition, error=DENIED)
                    if topic.topic in denied
                    else self._epoch_end(topic.topic, asked)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return self.responses.answer(call, offset_for_leader_epoch.Response(topics=topics), now_ms)

    def _epoch_end(self, topic: str, asked: offset_for_leader_epoch.Partition) -> offset_for_leader_epoch.EpochEnd:
        answer = offset_for_leader_epoch.EpochEnd(partition=asked.partition)
        log = self.replicas.log(topic, asked.partition)
        if log is None:
            answer.error = self.replicas.error_for(topic, asked.partition)
            return answer
        answer.error = leader_epoch_error(asked.current_leader_epoch, log)
        if not answer.error:
            answer.leader_epoch, end = log.end_of_epoch(asked.leader_epoch)
            answer.end_offset = min(end, self.replicas.high_watermark(log))
        return answer

    def _delete_records(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = delete_records.read_request(frame, at, call.version)
        denied = self._denied(call, AclOperation.DELETE, (topic.name for topic in request.topics))
        asked = [
            (topic.name, partition)
            for topic in request.topics
            if topic.name not in denied
            for partition in topic.partitions
        ]

        def finish(
            answers: list[delete_records.DeletedPartition], _at_ms: int
        ) -> tuple[delete_records.Response, Effects]:
            left = iter(answers)
            topics = [
                delete_records.DeletedTopic(
                    name=topic.name,
                    partitions=[
                        delete_records.DeletedPartition(partition=one.partition, error=DENIED)
                        for one in topic.partitions
                    ]
                    if topic.name in denied
                    else list(islice(left, len(topic.partitions))),
                )
                for topic in request.topics
            ]
            return delete_records.Response(topics=topics), []

        return self.changes.ask_each(call, asked, self._delete, finish, now_ms)

    def _delete(
        self,
        asked: tuple[str, delete_records.Partition],
        done: Callable[[delete_records.DeletedPartition, int], Effects],
        now_ms: int,
    ) -> Effects:
        topic, partition = asked
        answer = delete_records.DeletedPartition(partition=partition.partition)

        def then(outcome: int | LogError, at_ms: int) -> Effects:
            if not isinstance(outcome, LogError):
                answer.low_watermark = outcome
                return done(answer, at_ms)
            answer.error = outcome.code
            return [self.reporter.trouble(str(outcome), at_ms), *done(answer, at_ms)]

        log = self.replicas.log(topic, partition.partition)
        if log is None:
            answer.error = self.replicas.error_for(topic, partition.partition)
        elif is_internal(topic):
            answer.error = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif not log.config.deletes:
            answer.error = ErrorCode.POLICY_VIOLATION
        else:
            end = self.replicas.high_watermark(log)
            before = end if partition.offset == HIGH_WATERMARK else partition.offset
            try:
                return [
                    Work(self.directory.checkpoints.delete_records((topic, partition.partition), before, end), then)
                ]
            except LogOffsetOutOfRangeError as error:
                answer.error = error.code
        return done(answer, now_ms)


def _offset_at(log: PartitionLog, timestamp: int, end: int) -> tuple[int, int] | None:
    """Return the offset for a time or for a name of one, and its time (-1 for a name)."""
    if timestamp == LATEST:
        return end, -1
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, -1
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING):
        return None  # nothing is ever moved to remote storage
    if timestamp == MAX_TIMESTAMP:
        found = log.offset_of_latest_timestamp(end)
    else:
        found = log.offset_for_timestamp(timestamp, end)
    return None if found is None else (found.offset, found.timestamp)
