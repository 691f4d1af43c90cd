"""Produce: batches go into their logs, and the answer says where, when it is as safe as the client asked (`acks`)."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.broker.broker_effects import Effects
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Handler, Responses, close
from coterie.broker.metadata_cache import MetadataCache, is_internal
from coterie.broker.replica_manager import ReplicaManager
from coterie.broker.security.auth_helper import AuthHelper
from coterie.coordinator.runtime import Timers
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import produce
from coterie.protocol.apis.produce import Leader, ProducedPartition, ProducedTopic, RecordError, Request, Response
from coterie.protocol.batch import BatchError
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.topic_configs import effective
from coterie.storage import LogError, PartitionLog
from coterie.structs import DataStruct

__all__ = ["ProduceApi", "ProduceDue"]

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
TELLS_LEADERS = 10
"""The first version whose answers name the leader, if it is not the node that was asked."""

MIN_TIMEOUT_MS = 1_000
"""Kafka never waits for its own disk, so a client that allows it no time at all does not mean that."""


class ProduceDue(DataStruct):
    """A produce has waited for the disk as long as its client allowed."""

    production: Production


class Production:
    """One request: when the last of its partitions is settled, it is answered."""

    def __init__(self, api: ProduceApi, call: Call, request: Request) -> None:
        self._api = api
        self.call = call
        self.acks = request.acks
        self.topics: list[ProducedTopic] = []
        self.leaders: list[Leader] = []
        """The leaders of partitions that this node does not lead."""
        self.unsettled = 1  # the request itself, until all of it has been written
        self._waiting: dict[int, ProducedPartition] = {}
        self._is_answered = False

    def settle(self, now_ms: int) -> Effects:
        self.unsettled -= 1
        if self.unsettled or self._is_answered:
            return []
        self._api.timers.disarm(self)
        return self._answer(now_ms)

    def _answer(self, now_ms: int) -> Effects:
        self._is_answered = True
        if self.acks != ACKS_NONE:
            return self._api.answer(self, now_ms)
        failed = [one for topic in self.topics for one in topic.partitions if one.error]
        effects: Effects = []
        if failed:  # there is no answer to carry the error (rule D2)
            effects = close(self.call.connection, f"a produce with acks=0 failed: {failed[0].error.name}")
        return [*effects, *self._api.responses.done(self.call)]

    def wait_for(self, log: PartitionLog, answer: ProducedPartition) -> None:
        self.unsettled += 1
        self._waiting[id(answer)] = answer

        def durable(error: ErrorCode, now_ms: int) -> Effects:
            del self._waiting[id(answer)]
            if error:
                answer.error = error
                answer.base_offset = -1
            return self.settle(now_ms)

        self._api.replicas.appended(log, durable)

    def due(self, now_ms: int) -> Effects:
        """Answer with REQUEST_TIMED_OUT: the records may become durable later, so the client has to retry."""
        for answer in self._waiting.values():
            answer.error = ErrorCode.REQUEST_TIMED_OUT
        return self._answer(now_ms)


class ProduceApi(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper
    replicas: ReplicaManager
    metadata: MetadataCache
    timers: Timers[object]
    settings: BrokerSettings
    reporter: Reporter
    wall: WallClock

    def handlers(self) -> Mapping[int, Handler]:
        return {produce.API.key: self._produce}

    def _produce(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = produce.read_request(frame, at, call.version)
        production = Production(self, call, request)
        refusal = _refusal_of(request)
        names = [self._name_of(topic) for topic in request.topics]
        denied = self.auth.denied(
            call, AclOperation.WRITE, AclResourceType.TOPIC, (name for name in names if name is not None)
        )
        effects: Effects = []
        for topic, name in zip(request.topics, names, strict=True):
            answers = []
            for partition in topic.partitions:
                log = self.replicas.log(name, partition.partition) if name is not None else None
                answer = ProducedPartition(partition=partition.partition)
                answers.append(answer)
                if name in denied:
                    answer.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif refusal:
                    answer.error = refusal
                elif name is not None and is_internal(name):
                    answer.error, answer.message = ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is for the broker alone"
                elif name is None:
                    answer.error = ErrorCode.UNKNOWN_TOPIC_ID
                elif log is None:
                    answer.error = self.replicas.error_for(name, partition.partition)
                    if answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and call.version >= TELLS_LEADERS:
                        answer.current_leader = self.metadata.leader(name, partition.partition)
                        production.leaders.append(answer.current_leader)
                elif request.acks == ACKS_ALL and self._wants_more_replicas(name):
                    answer.error = ErrorCode.NOT_ENOUGH_REPLICAS
                else:
                    effects += self._append(production, log, partition.records, answer, now_ms)
            production.topics.append(ProducedTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        effects += production.settle(now_ms)
        if production.unsettled and self.replicas.waits_for_disk:
            due_ms = now_ms + max(request.timeout_ms, MIN_TIMEOUT_MS)
            self.timers.arm(production, due_ms, ProduceDue(production))
        return effects

    def _name_of(self, topic: produce.Topic) -> str | None:
        return topic.name if topic.topic_id is None else self.metadata.topic_names.get(topic.topic_id)

    def answer(self, production: Production, now_ms: int) -> Effects:
        listener = production.call.connection.listener
        endpoints = self.metadata.leader_endpoints(production.leaders, listener) if production.leaders else ()
        response = Response(responses=production.topics, node_endpoints=endpoints)
        return self.responses.answer(production.call, response, now_ms)

    def _wants_more_replicas(self, topic: str) -> bool:
        """Return whether the topic wants more in-sync replicas than one, which no log here has."""
        return bool(effective("min.insync.replicas", self.metadata.topics[topic].configs, self.settings) > 1)

    def _append(
        self,
        production: Production,
        log: PartitionLog,
        records: bytes | memoryview | None,
        answer: ProducedPartition,
        now_ms: int,
    ) -> Effects:
        try:
            appended = log.append(records or b"", self.wall.at(now_ms))
        except (LogError, BatchError) as error:
            answer.error, answer.message = error.code, str(error)
            if isinstance(error, BatchError):
                answer.record_errors = [RecordError(batch_index=index, message=str(error)) for index in error.records]
            storage_failed = error.code is ErrorCode.KAFKA_STORAGE_ERROR
            return [self.reporter.trouble(str(error), now_ms)] if storage_failed else []
        answer.base_offset = appended.base_offset
        answer.log_append_time_ms = appended.append_time_ms
        answer.log_start_offset = appended.log_start_offset
        if production.acks == ACKS_ALL:
            production.wait_for(log, answer)  # of a duplicate too: its first copy may not be durable yet
        else:
            self.replicas.appended(log, None)
        return []


def _refusal_of(request: Request) -> ErrorCode:
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if request.transactional_id is not None:  # nobody can have one: InitProducerId gives none out
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE
