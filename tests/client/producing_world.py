"""A cluster of two nodes in memory for the producer's machine: real logs, a network that loses things, a clock we move.

Each node reads the requests of its connection in order. A connection that is cut leaves open how many of them were
written to the log before. `check` says what must hold at any end: what was acknowledged is in the log once, what failed
at most once, and each partition has its records in the order they were appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random  # noqa: TID251  seeded

from coterie.client.producer.accumulator_events import (
    Answered,
    AskLeaders,
    AskProducerId,
    Event,
    FlushDone,
    LeadersFailed,
    LeadersFound,
    PartitionAnswer,
    ProducerIdFailed,
    ProducerIdGiven,
    SendBatches,
    Settled,
    Unanswered,
    WakeAt,
    Woke,
)
from coterie.client.producer.partition_queue import Batch, ProducerIdAndEpoch
from coterie.client.producer.record_accumulator import RecordAccumulator
from coterie.client.producer.record_appender import RECORD_OVERHEAD, AccumulatorSettings
from coterie.client.types import TopicPartition
from coterie.errors import ConnectionLostError, ErrorCode, KafkaError
from coterie.protocol.batch import BatchError, Compression
from coterie.protocol.records import QuickAppend, SentRecord
from coterie.storage import LogConfig, LogError, MemoryFiles, PartitionLog
from logs import read_all

__all__ = ["NODES", "TOPIC", "World"]

TOPIC = "t"
NODES = (1, 2)
BEFORE_THE_LOG = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
AFTER_THE_LOG = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.KAFKA_STORAGE_ERROR)
FOR_GOOD = (ErrorCode.INVALID_TIMESTAMP, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@dataclass(slots=True)
class Sent:
    """A record of ours and where it went."""

    value: bytes
    batch: Batch
    index: int


@dataclass
class World:
    rules: AccumulatorSettings
    random: Random
    partitions: int = 2
    log_config: LogConfig = field(default_factory=LogConfig)
    now_ms: int = 1_000_000

    def __post_init__(self) -> None:
        self.machine = RecordAccumulator(self.rules, lambda: self.random.getrandbits(31))
        self.machine.quick = QuickAppend(SentRecord, None, RECORD_OVERHEAD, lambda: self.now_ms)
        self.quick_ones = 0
        self.logs = {
            TopicPartition(TOPIC, number): PartitionLog.open(MemoryFiles(), f"t-{number}", self.log_config, self.now_ms)
            for number in range(self.partitions)
        }
        self.leaders = dict.fromkeys(range(self.partitions), NODES[0])
        self.asked: list[AskLeaders | AskProducerId] = []
        self.wire: dict[int, deque[SendBatches]] = {node: deque() for node in NODES}
        self.answers: dict[int, deque[Event]] = {node: deque() for node in NODES}
        self.alarm_ms: int | None = None
        self.sent: list[Sent] = []
        self.settled: list[Batch] = []
        self.flushes_ended: list[int] = []
        self.next_producer_id = 7
        self.handle(LeadersFound({TOPIC: dict(self.leaders)}))

    # --- the machine's side -------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        for effect in self.machine.handle(event, self.now_ms):
            match effect:
                case SendBatches(node_id):
                    for batch in effect.batches:
                        assert batch.is_on_the_way and not batch.is_settled
                    self.wire[node_id].append(effect)
                case AskLeaders() | AskProducerId():
                    self.asked.append(effect)
                case WakeAt(at_ms):
                    assert at_ms is None or at_ms > self.now_ms
                    self.alarm_ms = at_ms
                case Settled(batch):
                    assert batch not in self.settled
                    self.settled.append(batch)
                case FlushDone(token):
                    self.flushes_ended.append(token)
        on_the_way = {node: len(self.wire[node]) + len(self.answers[node]) for node in NODES}
        assert all(count <= self.rules.max_in_flight for count in on_the_way.values())

    def append(self, partition: int | None, size: int = 1) -> bool:
        """The values of a partition count up, so that order is seen; False: there was no room."""
        value = b"%d" % len(self.sent)
        value_and_more = value + b"." * size
        quick = self.machine.quick.append(TOPIC, value_and_more) if self.machine.quick and partition is None else None
        if quick is not None:
            self.sent.append(Sent(value_and_more, quick._batch, quick._index))
            self.quick_ones += 1
            return True
        placed = self.machine.append(TOPIC, partition, (None, value_and_more, self.now_ms, ()), self.now_ms)
        if placed is not None:
            self.sent.append(Sent(value_and_more, *placed))
        if self.machine.wants_attention:
            self.handle(Woke())
        return placed is not None

    # --- the cluster's side -------------------------------------------------------------------------------------------

    def broker_reads(self, node: int, fault: Callable[[], ErrorCode | None] = lambda: None) -> None:
        """The next request on the node's connection is written to the log and answered, or met by a fault."""
        if self.wire[node]:
            sent = self.wire[node].popleft()
            answers = {batch.where: self._append(node, batch, fault()) for batch in sent.batches}
            self.answers[node].append(Answered(sent, answers))

    def _append(self, node: int, batch: Batch, fault: ErrorCode | None) -> PartitionAnswer:
        if fault in BEFORE_THE_LOG or fault in FOR_GOOD:
            assert fault is not None
            return PartitionAnswer(fault)
        if self.leaders[batch.where.partition] != node:
            return PartitionAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            appended = self.logs[batch.where].append(memoryview(bytearray(batch.encode())), self.now_ms)
        except (LogError, BatchError) as error:
            return PartitionAnswer(error.code, message=str(error))
        return PartitionAnswer(fault) if fault else PartitionAnswer(base_offset=appended.base_offset)

    def answer_arrives(self, node: int) -> None:
        if self.answers[node]:
            self.handle(self.answers[node].popleft())

    def cut(self, node: int) -> None:
        """What the broker has not read by now it never will; answers that are on the way are lost."""
        lost = [event.sent for event in self.answers[node] if isinstance(event, (Answered, Unanswered))]
        lost += self.wire[node]
        self.answers[node].clear()
        self.wire[node].clear()
        for sent in lost:
            self.answers[node].append(Unanswered(sent, ConnectionLostError("cut")))
        while self.answers[node]:
            self.answer_arrives(node)

    def cluster_answers(self, *, fails: bool = False) -> None:
        if not self.asked:
            return
        asked = self.asked.pop(0)
        trouble = KafkaError("not now", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if isinstance(asked, AskLeaders):
            assert asked.topics == (TOPIC,)
            self.handle(LeadersFailed(trouble) if fails else LeadersFound({TOPIC: dict(self.leaders)}))
        elif fails:
            self.handle(ProducerIdFailed(trouble))
        else:
            self.next_producer_id += 1
            self.handle(ProducerIdGiven(ProducerIdAndEpoch(self.next_producer_id, 0)))

    def time_passes(self, ms: int) -> None:
        """In one go or alarm by alarm, as an event loop would."""
        end = self.now_ms + ms
        while self.alarm_ms is not None and self.alarm_ms <= end:
            self.now_ms = max(self.now_ms, self.alarm_ms)
            self.alarm_ms = None
            self.handle(Woke())
        self.now_ms = end

    def heal(self) -> None:
        """Everything works from now on; everything must be settled in a bounded number of steps."""
        self.handle(Woke())
        for _ in range(2_000):
            if not self.machine.unsettled:
                return
            while self.asked:
                self.cluster_answers()
            for node in NODES:
                self.broker_reads(node)
                self.answer_arrives(node)
            self.time_passes(50)
        raise AssertionError(f"{self.machine.unsettled} records are still not settled")

    # --- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        written = {where: [value for _, value in read_all(log, 1 << 20)] for where, log in self.logs.items()}
        offsets = {where: dict(read_all(log, 1 << 20)) for where, log in self.logs.items()}
        flat = [value for values in written.values() for value in values]
        assert len(flat) == len(set(flat)), "a record is in the log twice"
        for sent in self.sent:
            batch, index = sent.batch.locate(sent.index)
            assert batch.is_settled
            if batch.error is None:
                assert sent.value in written[batch.where], "acknowledged and lost"
                if batch.base_offset >= 0:
                    assert offsets[batch.where][batch.base_offset + index] == sent.value
        for values in written.values():
            numbers = [int((value or b"").rstrip(b".")) for value in values]
            assert numbers == sorted(numbers), "out of order"
        assert self.machine.used == 0


def rules(**changed: object) -> AccumulatorSettings:
    defaults: dict[str, object] = {
        "batch_size": 200,
        "max_request_size": 400,
        "buffer_memory": 4_000,
        "compression": Compression.NONE,
    }
    return AccumulatorSettings(**{**defaults, **changed})  # type: ignore[arg-type]
