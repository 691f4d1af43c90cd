"""A transactional producer between a network that loses, delays and repeats things, and a model of a cluster.

The producer is its two machines, `TransactionManager` and `RecordAccumulator`, connected as `Sender` does. The model
has the coordinator's table of states and requests, partitions with sequences and markers, and the offsets of a group.
A request that was cut may still arrive, any time later. `check` says what must hold in the end: a transaction is there
as a whole or not at all, as its producer was told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random  # noqa: TID251  seeded
from typing import Any, NamedTuple

from client.producing_world import rules
from coterie.client.producer import accumulator_events as batches
from coterie.client.producer import transaction_events as events
from coterie.client.producer.partition_queue import NO_PRODUCER, Batch, ProducerIdAndEpoch
from coterie.client.producer.record_accumulator import RecordAccumulator
from coterie.client.producer.transaction_manager import TransactionBackoff, TransactionManager
from coterie.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from coterie.errors import ConnectionLostError, ErrorCode, KafkaError
from coterie.protocol.batch import NO_SEQUENCE, parse_header
from coterie.protocol.records import NO_LIMIT, records

__all__ = ["PARTITIONS", "Cluster", "Transaction", "TransactionWorld"]

TOPIC = "t"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(3)]
SOURCE = TopicPartition("in", 0)
GROUP = GroupMetadata("g", 1, "m", None)
NODE = 1
LONG_MS = 10**9
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


# --- the cluster ------------------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """A batch as it was when it was sent."""

    where: TopicPartition
    identity: ProducerIdAndEpoch
    sequence: int
    values: list[bytes]


@dataclass
class Log:
    """One partition: its records with their fate, and what it knows of producers."""

    records: list[list[Any]] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    """The next sequence of each producer; none after a marker with a new epoch."""
    recent: dict[int, deque[int]] = field(default_factory=dict)

    def has_open(self, identity: ProducerIdAndEpoch) -> bool:
        return any(record[1] == identity and record[2] == OPEN for record in self.records)

    def append(self, identity: ProducerIdAndEpoch, sequence: int, values: list[bytes], *, from_zero: bool) -> ErrorCode:
        producer_id, epoch = identity
        known = self.epochs.get(producer_id, -1)
        if epoch < known:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > known:
            if sequence and (from_zero or known >= 0):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self.epochs[producer_id] = epoch
            self.recent[producer_id] = deque(maxlen=5)
            self.ends[producer_id] = sequence
        recent = self.recent.setdefault(producer_id, deque(maxlen=5))
        if sequence in recent:
            return ErrorCode.NONE
        if sequence != self.ends.get(producer_id, 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        recent.append(sequence)
        self.ends[producer_id] = sequence + len(values)
        self.records += [[value, identity, OPEN] for value in values]
        return ErrorCode.NONE

    def mark(self, identity: ProducerIdAndEpoch, fate: str) -> None:
        producer_id, epoch = identity
        for record in self.records:
            if record[1].producer_id == producer_id and record[2] == OPEN:
                record[2] = fate
        if epoch > self.epochs.get(producer_id, -1):
            self.epochs[producer_id] = epoch
            self.ends.pop(producer_id, None)
            self.recent.pop(producer_id, None)


class Cluster:
    """The coordinator of one transactional id, the partitions, and one group. `level` is transaction.version."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.logs = {where: Log() for where in PARTITIONS}
        self.identity = NO_PRODUCER
        self.last_epoch = -1
        self.state = "absent"
        self.partitions: set[TopicPartition] = set()
        self.has_group = False
        self.pending_offset: int | None = None
        self.offset = -1

    def answer(self, request: events.Request, identity: ProducerIdAndEpoch) -> ErrorCode:
        """Do what a request asks; `identity` is that of the producer when it was sent."""
        match request:
            case events.FindCoordinator():
                return ErrorCode.NONE
            case events.InitProducerId(present):
                return self._init(present)
            case events.AddPartitions(partitions):
                return self._add(identity, set(partitions))
            case events.AddOffsets():
                return self._add(identity, set(), group=True)
            case events.CommitOffsets(offsets=offsets):
                return self._commit_offsets(identity, offsets[SOURCE].offset)
            case events.EndTxn(committed):
                return self._end(identity, committed=committed)

    def produce(self, batch: Sent, *, adds: bool) -> ErrorCode:
        """Take a batch; `adds`: as Produce version 12 does."""
        log, identity = self.logs[batch.where], batch.identity
        if not log.has_open(identity):
            if adds:
                code = self._add(identity, {batch.where})
            else:
                code = self._known(identity) or (
                    ErrorCode.NONE
                    if self.state == "Ongoing" and batch.where in self.partitions
                    else ErrorCode.TRANSACTION_ABORTABLE
                )
            if code:
                return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
        return log.append(identity, batch.sequence, batch.values, from_zero=adds)

    def time_out(self) -> None:
        if self.state == "Ongoing":
            self._finish(ABORTED, bumps=True)
            if self.level < 2:
                self.last_epoch = -1

    def _known(self, identity: ProducerIdAndEpoch) -> ErrorCode:
        if self.identity.producer_id != identity.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if self.identity == identity else ErrorCode.PRODUCER_FENCED

    def _init(self, present: ProducerIdAndEpoch) -> ErrorCode:
        if self.state == "absent":
            self.identity, self.state = ProducerIdAndEpoch(7, 0), "Empty"
            return ErrorCode.NONE
        if self.state == "Ongoing":
            self.time_out()
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if present.is_valid and present.epoch == self.last_epoch:
            return ErrorCode.NONE
        if present.is_valid and present != self.identity:
            return ErrorCode.PRODUCER_FENCED
        self.last_epoch = self.identity.epoch if present.is_valid else -1
        self.identity, self.state = self.identity.bump_epoch(), "Empty"
        return ErrorCode.NONE

    def _add(self, identity: ProducerIdAndEpoch, partitions: set[TopicPartition], *, group: bool = False) -> ErrorCode:
        code = self._known(identity)
        if not code:
            self.state = "Ongoing"
            self.partitions |= partitions
            self.has_group = self.has_group or group
        return code

    def _commit_offsets(self, identity: ProducerIdAndEpoch, offset: int) -> ErrorCode:
        if self.level >= 2:
            code = self._add(identity, set(), group=True)
        else:
            code = self._known(identity) or (ErrorCode.NONE if self.has_group else ErrorCode.TRANSACTION_ABORTABLE)
        if not code:
            self.pending_offset = offset
        return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code

    def _end(self, identity: ProducerIdAndEpoch, *, committed: bool) -> ErrorCode:
        """The rows of EndTxn: version 5 at level 2, else version 4."""
        done = "CompleteCommit" if committed else "CompleteAbort"
        before = ProducerIdAndEpoch(self.identity.producer_id, self.identity.epoch - 1)
        if self.level >= 2 and identity == before:
            if self.state in {"Empty", "Ongoing"}:
                return ErrorCode.PRODUCER_FENCED
            return ErrorCode.NONE if self.state == done else ErrorCode.INVALID_TXN_STATE
        code = self._known(identity)
        if code:
            return code
        if self.state == "Ongoing":
            self._finish(COMMITTED if committed else ABORTED, bumps=self.level >= 2)
            return ErrorCode.NONE
        if self.level >= 2 and not committed:
            self._finish(ABORTED, bumps=True)
            return ErrorCode.NONE
        return ErrorCode.NONE if self.level < 2 and self.state == done else ErrorCode.INVALID_TXN_STATE

    def _finish(self, fate: str, *, bumps: bool) -> None:
        if bumps:
            self.last_epoch = self.identity.epoch
            self.identity = self.identity.bump_epoch()
        for where in sorted(self.partitions):
            self.logs[where].mark(self.identity, fate)
        if fate == COMMITTED and self.pending_offset is not None:
            self.offset = self.pending_offset
        self.pending_offset, self.has_group = None, False
        self.partitions.clear()
        self.state = "CompleteCommit" if fate == COMMITTED else "CompleteAbort"


def _values(batch: Batch) -> list[bytes]:
    data = batch.encode()
    header = parse_header(data)
    assert header.is_transactional
    return [bytes(record[1] or b"") for record in records(data, header, limit=NO_LIMIT)]


# --- the producer -----------------------------------------------------------------------------------------------------


@dataclass
class Transaction:
    number: int
    values: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    sends_offsets: bool = False
    outcome: str = "unknown"


class TransactionWorld:
    def __init__(self, cluster: Cluster, random: Random, *, is_calm: bool = False) -> None:
        """`is_calm`: the network loses things, but nothing takes too long, and the broker aborts nothing itself."""
        self.cluster = cluster
        self.is_calm = is_calm
        self.random = random
        self.now_ms = 1_000_000
        self.manager = TransactionManager("x", TransactionBackoff(10, 100), random.random)
        settings = rules(
            is_transactional=True, linger_ms=3, retry_backoff_ms=10, delivery_timeout_ms=LONG_MS if is_calm else 3_000
        )
        self.accumulator = RecordAccumulator(settings, lambda: random.getrandbits(31))
        self.asked: deque[tuple[events.Request, ProducerIdAndEpoch]] = deque()
        self.produced: deque[tuple[batches.SendBatches, list[Sent], bool]] = deque()
        self.late: list[Callable[[], object]] = []
        """What was cut and may still arrive."""
        self.alarms: dict[str, int | None] = {}
        self.ended: dict[int, KafkaError | None] = {}
        self.tokens = count()
        self.flushes: dict[int, int] = {}
        self.unhealthy = True
        self.tell(batches.LeadersFound({TOPIC: {one.partition: NODE for one in PARTITIONS}}))

    def tell(self, event: batches.Event) -> None:
        for effect in self.accumulator.handle(event, self.now_ms):
            match effect:
                case batches.SendBatches():
                    sent = [Sent(one.where, one.identity, one.sequence, _values(one)) for one in effect.batches]
                    assert all(one.sequence != NO_SEQUENCE for one in sent)
                    self.produced.append((effect, sent, self.manager.adds_implicitly))
                case batches.Settled(batch):
                    if batch.error is not None:
                        self(events.ProduceFailed(batch.error, was_sent=batch.sequence != NO_SEQUENCE))
                case batches.AskPartitions(partitions):
                    self(events.PartitionsWanted(partitions))
                case batches.AskLeaders():
                    self.tell(batches.LeadersFound({TOPIC: {one.partition: NODE for one in PARTITIONS}}))
                case batches.WakeAt(at_ms):
                    self.alarms["batches"] = at_ms
                case batches.FlushDone(token):
                    self(events.Flushed(self.flushes.pop(token), self.accumulator.has_sent))
                case batches.AskProducerId():
                    raise AssertionError("the transaction manager asks for it")

    def __call__(self, event: events.Event) -> None:
        for effect in self.manager.handle(event, self.now_ms):
            match effect:
                case events.Ask(request):
                    assert not self.asked, "one request at a time"
                    self.asked.append((request, self.manager.identity))
                case events.WakeAt(at_ms):
                    self.alarms["manager"] = at_ms
                case events.BeginBatches(adds_partitions):
                    self.tell(batches.TransactionBegun(adds_partitions))
                case events.TakePartitions(partitions):
                    self.tell(batches.PartitionsAdded(partitions))
                case events.UseIdentity(identity):
                    assert not self.accumulator.unsettled
                    self.tell(batches.ProducerIdGiven(identity))
                case events.FlushBatches(number):
                    self.tell(batches.FlushAsked(self._flush(number)))
                case events.DropBatches(number, error):
                    self.tell(batches.TransactionAborting(self._flush(number), error))
                case events.FailProducer(error):
                    self.tell(batches.GaveUp(error))
                case events.CallEnded(token, error):
                    assert token not in self.ended
                    self.ended[token] = error

    def _flush(self, number: int) -> int:
        token = next(self.tokens)
        self.flushes[token] = number
        return token

    # --- what the user does -------------------------------------------------------------------------------------------

    def send(self, transaction: Transaction) -> None:
        where = self.random.choice(PARTITIONS)
        value = b"%d.%d" % (transaction.number, len(transaction.values))
        self.manager.check_send()
        placed = self.accumulator.append(TOPIC, where.partition, (None, value, 0, ()), self.now_ms)
        assert placed is not None
        transaction.values.append((where, value))
        if self.accumulator.wants_attention:
            self.tell(batches.Woke())

    def call(self, asked: Callable[[int], events.Event]) -> KafkaError | None:
        """Make a call and live until it has ended."""
        token = next(self.tokens)
        try:
            self(asked(token))
        except KafkaError as error:
            return error
        for step in range(3_000):
            if token in self.ended:
                return self.ended[token]
            self.unhealthy = step < 200
            self.live(1)
        raise AssertionError(f"{self.manager} does not end: {self.asked}, {self.accumulator.unsettled} records")

    def send_offsets(self, transaction: Transaction) -> KafkaError | None:
        transaction.sends_offsets = True
        offsets = {SOURCE: OffsetAndMetadata(transaction.number)}
        return self.call(lambda token: events.SendOffsetsAsked(token, offsets, GROUP))

    # --- what happens -------------------------------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        for _ in range(steps):
            chance = self.random.random() if self.unhealthy else 1.0
            if chance < 0.03 and self.late:
                self.late.pop(self.random.randrange(len(self.late)))()
            elif chance < 0.05:
                self._cut()
            elif chance < 0.052 and not self.is_calm:
                self.cluster.time_out()
            elif chance < 0.06:
                self._pass(self.random.choice((50, 4_000)))
            elif self.random.random() < 0.5:
                self._answer_one()
            elif self.produced:
                self._produce_one()
            else:
                self._pass(self.random.choice((1, 5, 30)))

    def _pass(self, ms: int) -> None:
        self.now_ms += ms
        if (self.alarms.get("manager") or self.now_ms + 1) <= self.now_ms:
            self.alarms["manager"] = None
            self(events.Woke())
        if (self.alarms.get("batches") or self.now_ms + 1) <= self.now_ms:
            self.alarms["batches"] = None
            self.tell(batches.Woke())

    def _fault(self, *codes: ErrorCode) -> ErrorCode:
        return self.random.choice(codes) if self.unhealthy and self.random.random() < 0.15 else ErrorCode.NONE

    def _answer_one(self) -> None:
        if not self.asked:
            return
        request, identity = self.asked.popleft()
        code = self._fault(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR)
        code = code or self.cluster.answer(request, identity)
        if code:
            self(events.Refused(request, KafkaError.of(code, "asked")))
        else:
            self(events.Answered(request, NODE, self.cluster.identity, self.cluster.level))

    def _produce_one(self) -> None:
        sent, copies, adds = self.produced.popleft()
        answers = {}
        for batch in copies:
            code = self._fault(ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS)
            code = code or self.cluster.produce(batch, adds=adds)
            answers[batch.where] = batches.PartitionAnswer(code, base_offset=0)
        self.tell(batches.Answered(sent, answers))

    def _cut(self) -> None:
        """Cut the connections: what was sent arrives now, later or never, and its answer is lost."""
        lost = ConnectionLostError("cut")
        for request, identity in list(self.asked):
            self.asked.clear()
            if self.random.random() < 0.5:
                self.cluster.answer(request, identity)
            elif self.cluster.level >= 2 and not isinstance(request, events.InitProducerId):
                self.late.append(partial(self.cluster.answer, request, identity))
            self(events.Refused(request, lost))
        while self.produced:
            sent, copies, adds = self.produced.popleft()
            is_now = self.random.random() < 0.5
            for batch in copies:
                arrive = partial(self.cluster.produce, batch, adds=adds)
                if is_now:
                    arrive()
                else:
                    self.late.append(arrive)
            self.tell(batches.Unanswered(sent, lost))
