"""Produce: batches go into their logs, and the answer says where, when it is as safe as the client asked (`acks`).

Batches of a transaction are written when its coordinator has their partitions in it (`transactional_writes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from coterie.broker.broker_effects import Effects
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Handler, Responses, close
from coterie.broker.metadata_cache import MetadataCache, is_internal
from coterie.broker.replica_manager import ReplicaManager
from coterie.broker.security.auth_helper import AuthHelper
from coterie.broker.transactional_writes import TransactionalProducer, TransactionalWrites
from coterie.coordinator.runtime import Timers
from coterie.coordinator.transactions.states import ADDS_PARTITIONS, produce_error
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import produce
from coterie.protocol.apis.produce import Leader, ProducedPartition, ProducedTopic, RecordError, Request, Response
from coterie.protocol.batch import BatchError, batches, transactional_producer
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.topic_configs import effective
from coterie.storage import LogError, PartitionLog
from coterie.structs import DataStruct

__all__ = ["ProduceApi", "ProduceDue"]

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
TRANSACTIONAL_ID = AclResourceType.TRANSACTIONAL_ID
NAMES_LEADER = 10
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

    def hold(self, answers: Iterable[ProducedPartition]) -> None:
        """Wait for the coordinator of the transaction, for all of these at once."""
        self.unsettled += 1
        self._waiting.update((id(answer), answer) for answer in answers)

    def let_go(self, answer: ProducedPartition) -> None:
        del self._waiting[id(answer)]

    def due(self, now_ms: int) -> Effects:
        """Answer with REQUEST_TIMED_OUT: the records may become durable later, so the client has to retry."""
        for answer in self._waiting.values():
            answer.error = ErrorCode.REQUEST_TIMED_OUT
        return self._answer(now_ms)


class TransactionalBatch(NamedTuple):
    """A batch of a transaction, for a partition that is not known to be in it."""

    topic: str
    partition: int
    log: PartitionLog
    records: bytes | memoryview
    answer: ProducedPartition


@dataclass(frozen=True, slots=True, eq=False)
class ProduceApi:
    responses: Responses
    auth: AuthHelper
    replicas: ReplicaManager
    metadata: MetadataCache
    timers: Timers[object]
    settings: BrokerSettings
    reporter: Reporter
    wall: WallClock
    transactional_writes: TransactionalWrites

    def handlers(self) -> Mapping[int, Handler]:
        return {produce.API.key: self._produce}

    def _produce(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = produce.read_request(frame, at, call.version)
        production = Production(self, call, request)
        producers = _transactional_producers(request)
        if producers and not self._may_write(call, request):
            return self._refuse_all(production, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, now_ms)
        refusal = _refusal_of(request, producers)
        unverified: list[TransactionalBatch] = []
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
                    if answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and call.version >= NAMES_LEADER:
                        answer.current_leader = self.metadata.leader(name, partition.partition)
                        production.leaders.append(answer.current_leader)
                elif request.acks == ACKS_ALL and self._wants_more_replicas(name):
                    answer.error = ErrorCode.NOT_ENOUGH_REPLICAS
                elif producers and transactional_producer(partition.records) is not None:
                    batch = TransactionalBatch(name, partition.partition, log, partition.records or b"", answer)
                    effects += self._write_or_ask(production, batch, unverified, now_ms)
                else:
                    effects += self._append(production, log, partition.records, answer, now_ms)
            production.topics.append(ProducedTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        if unverified and request.transactional_id is not None:
            ((producer_id, epoch),) = producers
            producer = TransactionalProducer(request.transactional_id, producer_id, epoch)
            effects += self._ask(production, producer, unverified, now_ms)
        effects += production.settle(now_ms)
        if production.unsettled and self.replicas.waits_for_disk:
            due_ms = now_ms + max(request.timeout_ms, MIN_TIMEOUT_MS)
            self.timers.arm(production, due_ms, ProduceDue(production))
        return effects

    # --- batches of transactions --------------------------------------------------------------------------------------

    def _may_write(self, call: Call, request: Request) -> bool:
        """Return whether the client may write records of this transactional id: it must name one (TP1)."""
        name = request.transactional_id
        return name is not None and self.auth.authorize(call, AclOperation.WRITE, TRANSACTIONAL_ID, name)

    def _refuse_all(self, production: Production, request: Request, error: ErrorCode, now_ms: int) -> Effects:
        for topic in request.topics:
            answers = [ProducedPartition(partition=each.partition, error=error) for each in topic.partitions]
            production.topics.append(ProducedTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        return production.settle(now_ms)

    def _write_or_ask(
        self, production: Production, batch: TransactionalBatch, unverified: list[TransactionalBatch], now_ms: int
    ) -> Effects:
        """Write a batch whose transaction is open in the partition; of others the coordinator is asked (TP2)."""
        log = batch.log
        try:
            _, header = next(batches(batch.records))
        except (BatchError, StopIteration):
            return self._append_transactional(production, batch, now_ms)  # which says what is wrong with it
        if header.producer_epoch < log.epoch_of_producer(header.producer_id):
            batch.answer.error = ErrorCode.INVALID_PRODUCER_EPOCH
            return []
        adds = production.call.version >= ADDS_PARTITIONS
        if log.has_open_transaction(header.producer_id, header.producer_epoch) or not (
            adds or self.settings.transaction_partition_verification_enable
        ):
            return self._append_transactional(production, batch, now_ms)
        unverified.append(batch)
        return []

    def _ask(
        self, production: Production, producer: TransactionalProducer, waiting: list[TransactionalBatch], now_ms: int
    ) -> Effects:
        version = production.call.version
        production.hold(batch.answer for batch in waiting)

        def admitted(errors: Mapping[tuple[str, int], ErrorCode], at_ms: int) -> Effects:
            effects: Effects = []
            for batch in waiting:
                production.let_go(batch.answer)
                error = errors.get((batch.topic, batch.partition))
                if error is not None:
                    batch.answer.error = produce_error(error, version)
                elif self.replicas.log(batch.topic, batch.partition) is not batch.log:
                    batch.answer.error = self.replicas.error_for(batch.topic, batch.partition)
                else:
                    effects += self._append_transactional(production, batch, at_ms)
            return [*effects, *production.settle(at_ms)]

        partitions = frozenset((batch.topic, batch.partition) for batch in waiting)
        if version < ADDS_PARTITIONS:
            return self.transactional_writes.verify(producer, partitions, admitted, now_ms)
        return self.transactional_writes.add(producer, partitions, admitted, now_ms, tries_again=True)

    def _append_transactional(self, production: Production, batch: TransactionalBatch, now_ms: int) -> Effects:
        is_strict = production.call.version >= ADDS_PARTITIONS
        return self._append(production, batch.log, batch.records, batch.answer, now_ms, is_strict=is_strict)

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
        *,
        is_strict: bool = False,
    ) -> Effects:
        try:
            appended = log.append(records or b"", self.wall.at(now_ms), is_strict=is_strict)
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


def _transactional_producers(request: Request) -> set[tuple[int, int]]:
    """Return the producer ids and epochs of all transactional batches; most requests have none."""
    found = (transactional_producer(one.records) for topic in request.topics for one in topic.partitions)
    return {producer for producer in found if producer is not None}


def _refusal_of(request: Request, producers: set[tuple[int, int]]) -> ErrorCode:
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if len(producers) > 1:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE
