"""The group coordinator of one node, at work: its answers become responses, and its records go to the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from coterie.assignors import Assignor, Topic
from coterie.broker.broker_effects import Computation, Effects
from coterie.broker.calls import Call, Gather, Responses
from coterie.broker.coordinator_service import CoordinatorService, read_piece
from coterie.broker.maintenance.facts_topic import FactsTopic
from coterie.coordinator.classic.effects import ComputeTarget, Reply
from coterie.coordinator.consumer.target_assignment import ASSIGNORS, TargetComputation
from coterie.coordinator.offsets.quick_commit import QuickCommit
from coterie.coordinator.runtime import Append, AppendBatch, GroupCoordinator, Replay
from coterie.errors import ErrorCode
from coterie.facts import Emit
from coterie.protocol.apis import offset_commit
from coterie.protocol.batch import batches
from coterie.protocol.messages import CommittedOffset
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.protocol.records import EndMarker, marker_of, raw_records
from coterie.storage import LogError, PartitionLog
from coterie.structs import replace

__all__ = ["GroupService", "read_some"]


@dataclass(frozen=True, slots=True, eq=False)
class GroupService(CoordinatorService):
    coordinator: GroupCoordinator
    responses: Responses
    facts_topic: FactsTopic
    assignors: Mapping[str, Assignor]
    """The assignors of `group.consumer.assignors`, by name, without Kafka's own."""

    topic: ClassVar[str] = OFFSETS_TOPIC

    def read_some(self, log: PartitionLog, offset: int, replay: Replay) -> int:
        return read_some(log, offset, replay)

    def loaded(self, partition: int, log: PartitionLog, now_ms: int) -> Effects:  # noqa: ARG002
        return self.perform(self.coordinator.loaded(partition, now_ms), now_ms)

    # --- events and effects of the coordinator ------------------------------------------------------------------------

    def ask(self, event: Any, now_ms: int) -> Effects:
        """Hand an event to the coordinator: a request, whose token names the call to answer, or a timer."""
        effects = self.coordinator.handle(event, now_ms)
        if not effects:  # as of a join and a sync that wait for others
            return []
        if len(effects) == 1 and type(effects[0]) is Reply:  # as of every heartbeat
            return self._answer(effects[0], now_ms)
        return self.perform(effects, now_ms)

    def perform(self, effects: Sequence[Any], now_ms: int) -> Effects:
        """Perform the coordinator's effects; return those that the driver has to perform."""
        out: Effects = []
        for effect in effects:
            kind = type(effect)
            if kind is Reply:
                token = effect.token
                if type(token) is Call:
                    out += self.responses.answer(token, effect.answer, now_ms)
                else:
                    out += self._answer(effect, now_ms)
            elif kind is QuickCommit:
                out += self._committed(effect, now_ms)
            elif kind is Append:  # just before a flush: by then more has come that fits into the same batch
                self.flusher.before_next(partial(self._append, effect))
            elif kind is ComputeTarget:
                out.append(self._compute(effect))
            else:
                effect.fact.at_ms = self.wall.at(effect.fact.at_ms)
                out.append(effect)
                self.facts_topic.add(effect.fact, now_ms)
        return out

    def _committed(self, commit: QuickCommit, now_ms: int) -> Effects:
        """Answer a usual commit that is durable, unless it waited too long and has been answered."""
        call = commit.token
        fact = commit.fact(self.wall.at(now_ms))
        if call is None:
            return [Emit(fact)]
        assert isinstance(call, Call)
        effects = self.responses.send(call, offset_commit.write_committed(commit.of, call.version))
        effects.append(Emit(fact))
        return effects

    def _answer(self, reply: Reply, now_ms: int) -> Effects:
        token = reply.token
        if type(token) is Call:
            return self.responses.answer(token, reply.answer, now_ms)
        if isinstance(token, tuple):
            gather: Gather
            index: int
            gather, index = token
            return gather.put(index, reply.answer, now_ms)
        # A part of the broker itself asked.
        then: Callable[[Any, int], Effects] = token  # type: ignore[assignment]
        return then(reply.answer, now_ms)

    # --- targets ------------------------------------------------------------------------------------------------------

    def _compute(self, effect: ComputeTarget) -> Computation:
        """Ask the assignor that the group has voted for."""
        asked: TargetComputation = effect.then
        timeout_ms = self.coordinator.settings.coterie_assignor_timeout_ms
        assign = ASSIGNORS.get(asked.assignor)
        if assign is not None:
            return Computation(partial(asked.compute, assign, is_kafkas=True), timeout_ms)
        chosen = self.assignors[asked.assignor]
        if chosen.uses_lag:
            asked.topics = {
                name: replace(topic, lag=self._lag(name, topic, effect.offsets.get(name, {})))
                for name, topic in asked.topics.items()
            }
        return Computation(partial(asked.compute, chosen.assign, is_kafkas=False), timeout_ms)

    def _lag(self, name: str, topic: Topic, committed: Mapping[int, CommittedOffset]) -> list[int | None]:
        """Return how many records of each partition the group has not read, where it has committed an offset."""
        lag: list[int | None] = []
        for partition in range(topic.partitions):
            log, stored = self.directory.logs.get((name, partition)), committed.get(partition)
            if log is None or stored is None:
                lag.append(None)
            else:
                lag.append(max(0, self.replicas.high_watermark(log) - stored.offset))
        return lag

    # --- appends ------------------------------------------------------------------------------------------------------

    def _append(self, effect: Append, now_ms: int) -> Effects:
        batch = effect.batch()
        if batch is None:
            return []
        log = self.replicas.log(OFFSETS_TOPIC, effect.partition)
        if log is None:
            return self._appended(batch, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now_ms)
        at_ms = self.wall.at(now_ms)
        try:
            batch.then.base_offset = _append_to(log, batch, at_ms)
        except LogError as error:
            trouble = self.reporter.trouble(str(error), now_ms)
            return [trouble, *self._appended(batch, error.code, now_ms)]
        self.flusher.written(log, partial(self._appended, batch))
        return []

    def _appended(self, batch: AppendBatch, error: ErrorCode, now_ms: int) -> Effects:
        batch.then.error = error
        return self.perform(self.coordinator.appended(batch.then, now_ms), now_ms)


def _append_to(log: PartitionLog, batch: AppendBatch, at_ms: int) -> int:
    """Append records, records of a transaction, or the marker that ends one; return the first offset."""
    producer = None if batch.producer_id is None else (batch.producer_id, batch.producer_epoch)
    if batch.marker is None or producer is None:
        return log.append_own(batch.records, at_ms, producer)
    marker = EndMarker(batch.marker, batch.coordinator_epoch)
    return log.append_marker(marker, producer, at_ms, is_strict=batch.is_strict)


def read_some(log: PartitionLog, offset: int, replay: Replay) -> int:
    """Replay a piece of a log of groups from `offset` on; return where the next one begins."""
    data = read_piece(log, offset)
    for at, header in batches(data):
        offset = header.next_offset
        if header.is_control:
            marker = marker_of(data, header, at)
            if marker is not None:
                replay.marker(header.producer_id, committed=marker.committed)
            continue
        producer_id = header.producer_id if header.is_transactional else None
        for record in raw_records(data, header, at):
            replay.record(record.offset, record.key or b"", record.value, producer_id)
    return offset
