"""The coordinator of one node, at work: its answers become responses, its records go to the log, its groups are loaded.

A node that gains a partition of `__consumer_offsets` reads the groups back while it serves others. It reads when all
that the old leader has written is durable, or lost: groups must not come back from what a disk may still refuse. It
reads a piece at a time, on the thread of the disk and between other changes. Until it has ended, the coordinator
answers COORDINATOR_LOAD_IN_PROGRESS (C3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from coterie.assignors import Assignor, Topic
from coterie.broker.broker_effects import Computation, Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Gather, Responses
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.maintenance.facts_topic import FactsTopic
from coterie.broker.maintenance.flushing import Flusher
from coterie.broker.replica_manager import ReplicaManager
from coterie.coordinator.classic.effects import ComputeTarget, Reply
from coterie.coordinator.consumer.target import ASSIGNORS, TargetComputed
from coterie.coordinator.offsets.usual_commit import UsualCommit
from coterie.coordinator.runtime import Append, AppendBatch, GroupCoordinator, Replay, Timers
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode, MalformedError
from coterie.facts import Emit
from coterie.protocol.apis import offset_commit
from coterie.protocol.batch import batches
from coterie.protocol.messages import CommittedOffset
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.protocol.records import NO_LIMIT, BatchBuilder, EndMarker, build_marker, marker_of, raw_records
from coterie.storage import DataDirectory, DiskChange, LogError, LogReadError, Origin, PartitionLog
from coterie.structs import DataStruct

__all__ = ["GroupService", "LoadDue", "read_some"]

LOAD_AGAIN_AFTER_MS = 500
"""The time until a log that could not be read is read again: it is being repaired, or the disk is not mounted."""
_READ_AT_ONCE = 1 << 20


class _Load(DataStruct):
    """A partition that is being loaded, and how far it has been read."""

    partition: int
    log: PartitionLog
    replay: Replay
    offset: int = 0


class LoadDue(DataStruct):
    """A partition that could not be loaded is to be loaded again, from the beginning."""

    service: GroupService
    partition: int
    log: PartitionLog


class GroupService(DataStruct, frozen=True, eq=False):
    coordinator: GroupCoordinator
    responses: Responses
    replicas: ReplicaManager
    directory: DataDirectory
    flusher: Flusher
    changes: Changes
    timers: Timers[Any]
    facts_topic: FactsTopic
    reporter: Reporter
    wall: WallClock
    assignors: Mapping[str, Assignor]
    """The assignors of `group.consumer.assignors`, by name, without Kafka's own."""

    # --- events and effects of the coordinator ------------------------------------------------------------------------

    def ask(self, event: Any, now_ms: int) -> Effects:
        """Hand an event to the coordinator: a request, whose token names the call to answer, or a timer."""
        effects = self.coordinator.handle(event, now_ms)
        if len(effects) == 1 and type(effects[0]) is Reply:  # as of every heartbeat
            return self._answer(effects[0], now_ms)
        return self.perform(effects, now_ms)

    def perform(self, effects: Sequence[Any], now_ms: int) -> Effects:
        """Perform the coordinator's effects; return those that the driver has to perform."""
        out: Effects = []
        for effect in effects:
            kind = type(effect)
            if kind is Reply:
                out += self._answer(effect, now_ms)
            elif kind is UsualCommit:
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

    def _committed(self, commit: UsualCommit, now_ms: int) -> Effects:
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
        gather: Gather
        index: int
        gather, index = token  # type: ignore[misc]
        return gather.put(index, reply.answer, now_ms)

    # --- targets ------------------------------------------------------------------------------------------------------

    def _compute(self, effect: ComputeTarget) -> Computation:
        """Ask the assignor that the group has voted for."""
        asked: TargetComputed = effect.then
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
            if batch.producer_id is None:
                batch.then.base_offset = log.append_own(batch.records, at_ms)
            else:
                batch.then.base_offset = log.append(_packed(batch, at_ms), at_ms, Origin.COORDINATOR).base_offset
        except LogError as error:
            trouble = self.reporter.trouble(str(error), now_ms)
            return [trouble, *self._appended(batch, error.code, now_ms)]
        self.flusher.written(log, partial(self._appended, batch))
        return []

    def _appended(self, batch: AppendBatch, error: ErrorCode, now_ms: int) -> Effects:
        batch.then.error = error
        return self.perform(self.coordinator.handle(batch.then, now_ms), now_ms)

    # --- loading ------------------------------------------------------------------------------------------------------

    def load_all(self, now_ms: int) -> Effects:
        """Read the node's groups back (C4). Nothing else is answered before this has ended."""
        effects: Effects = []
        topic = self.directory.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return effects
        self.coordinator.count_partitions(topic.partitions)
        for partition in range(topic.partitions):
            log = self.replicas.log(OFFSETS_TOPIC, partition)
            if log is None:
                continue  # another node's
            replay = self.coordinator.gain(partition)
            offset = log.log_start_offset
            while offset < log.log_end_offset:
                offset = read_some(log, offset, replay)
            effects += self.perform(self.coordinator.loaded(partition, now_ms), now_ms)
        return effects

    def gain(self, partition: int, log: PartitionLog) -> None:
        """Load a partition that this node leads now."""
        load = _Load(partition, log, self.coordinator.gain(partition))
        self.flusher.written(log, partial(self._all_written, load))

    def lose(self, partition: int, now_ms: int) -> Effects:
        """Another node leads the partition now: answer all waiting requests, and unload its groups."""
        return self.perform(self.coordinator.lose(partition, now_ms), now_ms)

    def lose_all(self, now_ms: int) -> Effects:
        return [effect for partition in list(self.coordinator.shards) for effect in self.lose(partition, now_ms)]

    def load_due(self, event: LoadDue, now_ms: int) -> Effects:
        if self.coordinator.is_loading(event.partition):
            self.coordinator.lose(event.partition, now_ms)
            self.gain(event.partition, event.log)
        return []

    def _all_written(self, load: _Load, error: ErrorCode, now_ms: int) -> Effects:
        if error:
            return self._load_again_later(load, now_ms)  # what the old leader wrote last is being cut off
        self.changes.ask(None, partial(self._begin, load))
        return []

    def _begin(self, load: _Load, now_ms: int) -> Effects:
        if not load.log.is_in_order:
            return self._load_again_later(load, now_ms)
        load.offset = load.log.log_start_offset
        return self._read_on(load, now_ms)

    def _read_on(self, load: _Load, now_ms: int) -> Effects:
        if not self.coordinator.is_loading(load.partition, load.replay):
            return []  # it has gone elsewhere meanwhile
        if load.offset < load.log.log_end_offset:
            return [Work(DiskChange(partial(_read, load), int), partial(self._was_read, load))]
        return self.perform(self.coordinator.loaded(load.partition, now_ms), now_ms)

    def _was_read(self, load: _Load, outcome: int | LogError, now_ms: int) -> Effects:
        if isinstance(outcome, LogError):
            trouble = self.reporter.trouble(str(outcome), now_ms)
            return [trouble, *self._load_again_later(load, now_ms)]
        load.offset = outcome
        return self._read_on(load, now_ms)

    def _load_again_later(self, load: _Load, now_ms: int) -> Effects:
        event = LoadDue(self, load.partition, load.log)
        self.timers.arm((self, load.partition), now_ms + LOAD_AGAIN_AFTER_MS, event)
        return []


def _packed(batch: AppendBatch, at_ms: int) -> bytearray:
    """Return a batch of a transaction, or the marker that ends one."""
    assert batch.producer_id is not None
    producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
    if batch.marker is not None:
        marker = EndMarker(batch.marker, 0)
        return build_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=at_ms)
    builder = BatchBuilder(NO_LIMIT)
    builder.extend(batch.records, at_ms)
    return builder.finish(producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True)


def _read(load: _Load) -> int:
    try:
        return read_some(load.log, load.offset, load.replay)
    except MalformedError as error:
        raise LogReadError(f"{load.log.path} cannot be read at offset {load.offset}: {error}", None) from error


def read_some(log: PartitionLog, offset: int, replay: Replay) -> int:
    """Replay a piece of a log of groups from `offset` on; return where the next one begins."""
    end = log.log_end_offset
    data = log.read(offset, _READ_AT_ONCE, end)
    if not data:  # to go on without them would be to lose what was acknowledged
        raise LogReadError(f"{log.path} ends at offset {offset}, though it should reach to {end}", None)
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
