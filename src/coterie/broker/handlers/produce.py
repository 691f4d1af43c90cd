"""Produce: batches go into their logs, and the answer says where, when it is as safe as the client asked (`acks`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coterie.broker.calls import Call
from coterie.broker.handlers.redirect import endpoints_of, leader_of
from coterie.broker.handlers.topic_changes import is_internal
from coterie.errors import ErrorCode
from coterie.protocol.apis import produce
from coterie.protocol.apis.produce import Leader, ProducedPartition, ProducedTopic, RecordError, Request, Response
from coterie.protocol.batch import BatchError
from coterie.settings.topic_configs import effective
from coterie.storage import LogError, PartitionLog

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["HANDLERS", "ProduceDue"]

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
TELLS_LEADERS = 10
"""The first version whose answers say who leads, if it is not who was asked."""

MIN_TIMEOUT_MS = 1_000
"""Kafka never waits for its own disk, so a client that allows it no time at all does not mean that."""


@dataclass(slots=True)
class ProduceDue:
    """A produce has waited for the disk as long as its client allowed."""

    production: Production


class Production:
    """One request: when the last of its partitions is settled, it is answered."""

    def __init__(self, node: Node, call: Call, request: Request) -> None:
        self.node = node
        self.call = call
        self.acks = request.acks
        self.topics: list[ProducedTopic] = []
        self.elsewhere: list[Leader] = []
        """Who leads what we do not."""
        self.unsettled = 1  # the request itself, until all of it has been written
        self._waiting: dict[int, ProducedPartition] = {}
        self._is_answered = False

    def settle(self) -> None:
        self.unsettled -= 1
        if self.unsettled or self._is_answered:
            return
        self.node.timers.disarm(self)
        self._answer()

    def _answer(self) -> None:
        self._is_answered = True
        if self.acks != ACKS_NONE:
            endpoints = endpoints_of(self.node, self.elsewhere) if self.elsewhere else ()
            self.node.answer(self.call, Response(responses=self.topics, node_endpoints=endpoints))
            return
        failed = [one for topic in self.topics for one in topic.partitions if one.error]
        if failed:  # there is no answer to carry the error (rule D2)
            self.node.close(self.call.connection, f"a produce with acks=0 failed: {failed[0].error.name}")
        self.node.done(self.call)

    def wait_for(self, log: PartitionLog, answer: ProducedPartition) -> None:
        self.unsettled += 1
        self._waiting[id(answer)] = answer

        def durable(error: ErrorCode, _at_ms: int) -> None:
            del self._waiting[id(answer)]
            if error:
                answer.error = error
                answer.base_offset = -1
            self.settle()

        self.node.wrote(log, durable)

    def due(self) -> None:
        """What was written may be durable yet, or not: the client has to ask again."""
        for answer in self._waiting.values():
            answer.error = ErrorCode.REQUEST_TIMED_OUT
        self._answer()


def _produce(node: Node, call: Call, frame: bytes, at: int, now_ms: int) -> None:
    request = produce.read_request(frame, at, call.version)
    production = Production(node, call, request)
    refusal = _refusal_of(request)
    for topic in request.topics:
        name = node.topic_names.get(topic.topic_id) if topic.topic_id is not None else topic.name
        answers = []
        for partition in topic.partitions:
            log = node.log(name, partition.partition) if name is not None else None
            answer = ProducedPartition(partition=partition.partition)
            answers.append(answer)
            if refusal:
                answer.error = refusal
            elif name is not None and is_internal(name):
                answer.error, answer.message = ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is for the broker alone"
            elif name is None:
                answer.error = ErrorCode.UNKNOWN_TOPIC_ID
            elif log is None:
                answer.error = node.absent(name, partition.partition)
                if answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and call.version >= TELLS_LEADERS:
                    answer.current_leader = leader_of(node, name, partition.partition)
                    production.elsewhere.append(answer.current_leader)
            elif request.acks == ACKS_ALL and _wants_more_replicas(node, name):
                answer.error = ErrorCode.NOT_ENOUGH_REPLICAS
            else:
                _append(production, log, partition.records, answer, now_ms)
        production.topics.append(ProducedTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    production.settle()
    if production.unsettled and node.flusher.sync:
        due_ms = now_ms + max(request.timeout_ms, MIN_TIMEOUT_MS)
        node.timers.arm(production, due_ms, ProduceDue(production))


def _wants_more_replicas(node: Node, topic: str) -> bool:
    """There is one, and it is in sync."""
    return bool(effective("min.insync.replicas", node.directory.topics[topic].configs, node.settings) > 1)


def _refusal_of(request: Request) -> ErrorCode:
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if request.transactional_id is not None:  # nobody can have one: InitProducerId gives none out
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _append(
    production: Production,
    log: PartitionLog,
    records: bytes | memoryview | None,
    answer: ProducedPartition,
    now_ms: int,
) -> None:
    node = production.node
    try:
        appended = log.append(records or b"", node.cluster.wall.at(now_ms))
    except (LogError, BatchError) as error:
        answer.error, answer.message = error.code, str(error)
        if isinstance(error, BatchError):
            answer.record_errors = [RecordError(batch_index=index, message=str(error)) for index in error.records]
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            node.tell_trouble(str(error), now_ms)
        return
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.append_time_ms
    answer.log_start_offset = appended.log_start
    if production.acks == ACKS_ALL:
        production.wait_for(log, answer)  # of a duplicate too: its first copy may not be durable yet
    else:
        node.wrote(log, None)


HANDLERS = {produce.API.key: _produce}
