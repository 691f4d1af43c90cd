"""The producer without I/O: it collects records into batches, sends batches and handles the answers.

    accumulator = RecordAccumulator(AccumulatorSettings(...), rng)
    accumulator.handle(LeadersFound({"orders": {0: 1, 1: 1}}), now_ms)
    placed = accumulator.append("orders", None, key, value, timestamp, (), now_ms)  # batch and index; None: no room
    if accumulator.wants_attention:
        for effect in accumulator.handle(Woke(), now_ms): ...

A batch is sent when it is full, has lingered, or when a caller flushes, closes or waits for room. The request takes
other batches for the same broker along, as many as fit. `CONSEQUENCES` has the reaction to each error;
`partition_queue.py` has the rules of the order, and `accumulator_events.py` has the events and effects. Batch sizes are
those before compression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from math import ceil
from types import MappingProxyType

from coterie.client.network.backoff import CONCURRENT_BACKOFF_MS, backoff_ms
from coterie.client.producer.accumulator_events import (
    Answered,
    AskLeaders,
    AskPartitions,
    AskProducerId,
    Closing,
    Effect,
    Event,
    FlushAsked,
    FlushDone,
    GaveUp,
    LeadersFailed,
    LeadersFound,
    PartitionAnswer,
    PartitionsAdded,
    ProducerIdFailed,
    ProducerIdGiven,
    RoomMade,
    SendBatches,
    Settled,
    TransactionAborting,
    TransactionBegun,
    Unanswered,
    WakeAt,
    Woke,
)
from coterie.client.producer.partition_queue import NO_PRODUCER, Batch, PartitionQueue, ProducerIdAndEpoch
from coterie.client.producer.record_appender import AccumulatorSettings, RecordAppender, next_ratio
from coterie.client.producer.transaction_states import undelivered
from coterie.client.types import TopicPartition
from coterie.errors import RETRIABLE, STALE_METADATA, ErrorCode, KafkaError
from coterie.protocol.batch import HEADER_SIZE, NO_SEQUENCE, Compression

_RNG_MAX = 2**31 - 1


class Consequence(Enum):
    """The consequence of a Produce response for a batch."""

    TAKEN = auto()
    RETRY = auto()
    """Send it again after retry.backoff.ms, until `retries` or delivery.timeout.ms are used up."""
    OUT_OF_PLACE = auto()
    """The batch is not in the log; retry, under a new epoch if it was the first of its partition."""
    SPLIT = auto()
    FAIL = auto()
    FAIL_FOR_GOOD = auto()
    """The broker will accept nothing from this producer."""


CONSEQUENCES: Mapping[ErrorCode, Consequence] = MappingProxyType(
    {
        **dict.fromkeys(RETRIABLE, Consequence.RETRY),
        ErrorCode.NONE: Consequence.TAKEN,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Consequence.TAKEN,  # long ago, so that its offset is forgotten
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Consequence.OUT_OF_PLACE,
        ErrorCode.UNKNOWN_PRODUCER_ID: Consequence.OUT_OF_PLACE,
        ErrorCode.MESSAGE_TOO_LARGE: Consequence.SPLIT,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Consequence.FAIL_FOR_GOOD,
        ErrorCode.PRODUCER_FENCED: Consequence.FAIL_FOR_GOOD,
        ErrorCode.UNSUPPORTED_VERSION: Consequence.FAIL_FOR_GOOD,
    }
)
"""The errors that are retried, as in Java 4.3. Any other error fails the batch. After errors in STALE_METADATA the
leaders are looked up again."""


class RecordAccumulator(RecordAppender):
    def __init__(self, rules: AccumulatorSettings, rng: Callable[[], int]) -> None:
        super().__init__(rules, rng)
        self.identity: ProducerIdAndEpoch | None = NO_PRODUCER if rules.is_idempotent else None
        self.failure: KafkaError | None = None
        """The error because of which nothing can be sent any more."""
        self.is_closing = False
        self._flushes: dict[int, set[Batch]] = {}
        self._added: set[TopicPartition] | None = None
        """The partitions that batches may be sent to; None: to all."""
        self._asked_to_add: set[TopicPartition] = set()
        self._aborting: KafkaError | None = None
        self.has_sent = False
        """Whether a batch was sent since the transaction began."""
        self._asks_leaders = self._asks_identity = False
        self._stale_topics: set[str] = set()
        self._ask_leaders_at = self._ask_identity_at = 0

    # --- the sender's side --------------------------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        self.settle()
        effects: list[Effect] = []
        self.wants_attention = False
        match event:
            case Answered(sent, answers):
                self._answered(sent, answers, now_ms, effects)
            case Unanswered(sent, error):
                lost = PartitionAnswer(error.code, message=str(error))
                self._answered(sent, dict.fromkeys((batch.where for batch in sent.batches), lost), now_ms, effects)
            case LeadersFound(leaders):
                self._asks_leaders = False
                self._stale_topics -= leaders.keys()
                for name in leaders:
                    self.learn(name, leaders[name])
            case LeadersFailed():
                self._asks_leaders = False
            case ProducerIdGiven(identity):
                self._asks_identity = False
                self._use(identity)
            case ProducerIdFailed(error):
                self._asks_identity = False
                if not error.retriable:  # as Java does: what is there fails, and the next record asks again
                    self._abort_batches(error, effects)
            case FlushAsked(token):
                self._flush(token, effects)
            case Closing():
                self.is_closing = True
            case GaveUp(error):
                self._abort_batches(error, effects)
            case TransactionBegun(adds_partitions):
                self._added = set() if adds_partitions else None
                self._asked_to_add.clear()
                self._aborting = None
                self.has_sent = False
            case PartitionsAdded(partitions):
                if self._added is not None:
                    self._added.update(partitions)
            case TransactionAborting(token, error):
                self._aborting = error
                self._abort_batches(error, effects, only_idle=True)
                self._flush(token, effects)
            case Woke():  # if it was the alarm, it is spent, though it may have rung a little early
                self._alarm_ms = None
        self._expire(now_ms, effects)
        self._bump_epochs()
        while self._send_ready(now_ms, effects):
            pass
        self._ask(now_ms, effects)
        self._arm(now_ms, effects)
        return effects

    def encode(self, batch: Batch) -> bytearray:
        """The bytes of a batch that is on its way. Needs no lock: it grows no more."""
        is_new = batch.encoded is None
        data = batch.encode()
        if is_new and self.rules.compression is not Compression.NONE:
            topic = self.topics[batch.where.topic]
            topic.ratio = next_ratio(topic.ratio, (len(data) - HEADER_SIZE) / batch.builder.plain_size)
        return data

    @property
    def unsettled(self) -> int:
        """The number of records that are neither acknowledged nor failed."""
        return sum(len(batch) for queue in self._busy.values() for batch in (*queue.unsettled, *queue.waiting))

    @property
    def requests_in_flight(self) -> int:
        return sum(list(self._on_the_way.values()))  # which another thread may change

    def _flush(self, token: int, effects: list[Effect]) -> None:
        batches = {batch for queue in self._busy.values() for batch in (*queue.unsettled, *queue.waiting)}
        if batches:
            self._flushes[token] = batches
        else:
            effects.append(FlushDone(token))

    def _abort_batches(self, error: KafkaError, effects: list[Effect], *, only_idle: bool = False) -> None:
        """Fail all batches; with `only_idle` those that are not in flight."""
        for queue in list(self._busy.values()):
            for batch in (*queue.unsettled, *queue.waiting):
                if not (only_idle and batch.is_on_the_way):
                    self._fail(queue, batch, error, effects)

    def _use(self, identity: ProducerIdAndEpoch) -> None:
        self.identity = identity
        if self.rules.is_transactional:  # no batch is left of the transaction before
            for topic in self.topics.values():
                for queue in topic.queues.values():
                    queue.needs_epoch_bump = False

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answered(
        self, sent: SendBatches, answers: Mapping[TopicPartition, PartitionAnswer], now_ms: int, effects: list[Effect]
    ) -> None:
        self._on_the_way[sent.node_id] -= 1
        missing = PartitionAnswer(ErrorCode.NETWORK_EXCEPTION, message="the answer does not speak of this partition")
        for batch in sent.batches:
            if not batch.is_settled:  # otherwise it was given up while it was on its way
                self._complete_batch(batch, answers.get(batch.where, missing), now_ms, effects)

    def _complete_batch(self, batch: Batch, answer: PartitionAnswer, now_ms: int, effects: list[Effect]) -> None:
        queue = self.topics[batch.where.topic].queues[batch.where.partition]
        if answer.error in STALE_METADATA:
            self._stale_topics.add(batch.where.topic)
        consequence = CONSEQUENCES.get(answer.error, Consequence.FAIL)
        if consequence is Consequence.TAKEN:
            batch.error = None
            batch.base_offset = answer.base_offset
            batch.append_time_ms = answer.append_time_ms
            self._settle(queue, batch, effects)
            return
        error = KafkaError.of(answer.error, f"{len(batch)} records for {batch.where} failed", answer.message)
        if self._aborting is not None and consequence is not Consequence.FAIL_FOR_GOOD:
            self._fail(queue, batch, error, effects)
        elif consequence is Consequence.SPLIT and len(batch) > 1:
            self._split(queue, batch)
        elif consequence is Consequence.RETRY or (
            consequence is Consequence.OUT_OF_PLACE and self._may_come_later(queue, batch)
        ):
            batch.attempts += 1
            batch.error = error  # what is said if its time is over before it succeeds
            if batch.attempts > self.rules.retries:
                self._fail(queue, batch, error, effects)
                return
            is_busy = answer.error is ErrorCode.CONCURRENT_TRANSACTIONS
            pause_ms = CONCURRENT_BACKOFF_MS if is_busy else self._retry_backoff_ms(batch.attempts)
            batch.retry_at_ms = now_ms + pause_ms
            queue.reenqueue(batch, refused=consequence is Consequence.OUT_OF_PLACE)
        else:
            batch.record_errors = {
                index: KafkaError.of(answer.error, f"record {index} of a batch for {batch.where} failed", message)
                for index, message in answer.record_errors.items()
            }
            self._fail(queue, batch, error, effects)
            if consequence is Consequence.FAIL_FOR_GOOD:
                self.failure = error
                self._abort_batches(error, effects)

    def _may_come_later(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Return whether a batch that is out of place can be sent again: it, or in a transaction the one before it."""
        if self.identity is None:
            return False
        return not self.rules.is_transactional or batch is not queue.unsettled[0]

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        parts = batch.split()
        queue.replace(batch, parts)
        for batches in self._flushes.values():
            if batch in batches:
                batches.remove(batch)
                batches.update(parts)

    def _fail(self, queue: PartitionQueue, batch: Batch, error: KafkaError, effects: list[Effect]) -> None:
        batch.error = undelivered(error) if self.rules.is_transactional else error
        if batch.sequence != NO_SEQUENCE:  # whatever follows it would be out of order
            queue.needs_epoch_bump = True
        self._settle(queue, batch, effects)

    def _settle(self, queue: PartitionQueue, batch: Batch, effects: list[Effect]) -> None:
        batch.is_settled = True
        batch.is_on_the_way = False
        batch.encoded = None
        queue.remove(batch)
        if queue.is_idle():
            if queue.needs_epoch_bump and not self.rules.is_transactional:
                self._move(queue)
            self._busy.pop(queue.where, None)
        self.used -= batch.weight
        effects.append(Settled(batch))
        if self._wants_room:
            self._wants_room = False
            effects.append(RoomMade())
        for token, batches in list(self._flushes.items()):
            batches.discard(batch)
            if not batches:
                del self._flushes[token]
                effects.append(FlushDone(token))

    def _expire(self, now_ms: int, effects: list[Effect]) -> None:
        created_before = now_ms - self.rules.delivery_timeout_ms
        for queue in list(self._busy.values()):
            for batches in (queue.unsettled, queue.waiting):
                while batches and batches[0].created_ms <= created_before:
                    self._fail(queue, batches[0], self._too_late(batches[0]), effects)

    def _too_late(self, batch: Batch) -> KafkaError:
        last = f"; the last attempt: {batch.error}" if batch.error else "; it could not be sent at all"
        return KafkaError(
            f"{len(batch)} records for {batch.where} were not delivered within "
            f"delivery.timeout.ms={self.rules.delivery_timeout_ms}{last}",
            ErrorCode.REQUEST_TIMED_OUT,
        )

    # --- epochs -------------------------------------------------------------------------------------------------------

    def _bump_epochs(self) -> None:
        """Bump the epoch of every partition that needs it (KIP-360); its sequence starts at 0 again."""
        if self.rules.is_transactional:  # its coordinator bumps it
            return
        for queue in self._busy.values():
            if queue.may_move():
                self._move(queue)

    def _move(self, queue: PartitionQueue) -> None:
        """Move a queue to the producer's epoch. If the queue has used it already, bump the producer's epoch first."""
        assert self.identity is not None, "only an idempotent producer has sequences"
        if self.identity == queue.identity:
            self.identity = self.identity.bump_epoch()
        if self.identity.is_valid:
            queue.move_to(self.identity)

    def _retry_backoff_ms(self, failures: int) -> float:
        chance = self._rng() / _RNG_MAX
        return backoff_ms(failures, self.rules.retry_backoff_ms, self.rules.retry_backoff_max_ms, chance)

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send_ready(self, now_ms: int, effects: list[Effect]) -> bool:
        """Send one request to each broker with a ready batch."""
        everything = bool(self._wants_room or self.is_closing or self._flushes)
        by_node: dict[int, list[tuple[PartitionQueue, Batch]]] = {}
        ready: set[int] = set()
        for queue in self._busy.values():
            node_id = queue.leader
            if node_id < 0 or self._on_the_way.get(node_id, 0) >= self.rules.max_in_flight or not self._may_send(queue):
                continue
            batch = queue.sendable(self.identity)
            if batch is None or self._backs_off(queue, batch, now_ms):
                continue
            by_node.setdefault(node_id, []).append((queue, batch))
            if everything or self._is_ready(queue, batch, now_ms):
                ready.add(node_id)
        effects += [self._send(node_id, by_node[node_id]) for node_id in sorted(ready)]
        return bool(ready)

    def _may_send(self, queue: PartitionQueue) -> bool:
        return self._added is None or queue.where in self._added

    @staticmethod
    def _backs_off(queue: PartitionQueue, batch: Batch, now_ms: int) -> bool:
        return batch.retry_at_ms > now_ms and batch.sent_to == queue.leader

    def _is_ready(self, queue: PartitionQueue, batch: Batch, now_ms: int) -> bool:
        return (
            batch.sent_to >= 0
            or len(queue.waiting) > 1
            or batch.builder.size >= self.rules.batch_size
            or now_ms - batch.created_ms >= self.rules.linger_ms
        )

    def _send(self, node_id: int, candidates: list[tuple[PartitionQueue, Batch]]) -> SendBatches:
        taken: list[Batch] = []
        room = self.rules.max_request_size
        for queue, batch in candidates:
            room -= batch.builder.size
            if room < 0 and taken:
                break
            queue.send(batch, self.identity)
            batch.sent_to = node_id
            taken.append(batch)
            self._busy[queue.where] = self._busy.pop(queue.where)
        self._on_the_way[node_id] = self._on_the_way.get(node_id, 0) + 1
        self.has_sent = True
        return SendBatches(node_id, tuple(taken))

    # --- what is missing ----------------------------------------------------------------------------------------------

    def _ask(self, now_ms: int, effects: list[Effect]) -> None:
        if self._added is not None and self._aborting is None:
            new = tuple(sorted(self._busy.keys() - self._added - self._asked_to_add))
            if new:
                self._asked_to_add.update(new)
                effects.append(AskPartitions(new))
        if self._lacks_identity() and not self._asks_identity and now_ms >= self._ask_identity_at:
            self._asks_identity = True
            self._ask_identity_at = now_ms + self.rules.retry_backoff_ms
            effects.append(AskProducerId())
        wanted = self._topics_without_leader()
        if wanted and not self._asks_leaders and now_ms >= self._ask_leaders_at:
            self._asks_leaders = True
            self._ask_leaders_at = now_ms + self.rules.retry_backoff_ms
            effects.append(AskLeaders(tuple(sorted(wanted))))

    def _lacks_identity(self) -> bool:
        """Return whether a producer id is needed; the transaction manager asks for that of a transactional producer."""
        return bool(self._busy) and self.identity == NO_PRODUCER and not self.rules.is_transactional

    def _topics_without_leader(self) -> set[str]:
        return self._stale_topics | {queue.where.topic for queue in self._busy.values() if queue.leader < 0}

    def _arm(self, now_ms: int, effects: list[Effect]) -> None:
        """The next time at which something may be due."""
        times: list[float] = []
        for queue in self._busy.values():
            oldest = queue.unsettled[0] if queue.unsettled else queue.waiting[0]
            times.append(oldest.created_ms + self.rules.delivery_timeout_ms)
            if queue.leader < 0 or self._on_the_way.get(queue.leader, 0) >= self.rules.max_in_flight:
                continue
            batch = queue.sendable(self.identity) if self._may_send(queue) else None
            if batch is not None:
                times.append(
                    max(batch.retry_at_ms, 0 if batch.sent_to >= 0 else batch.created_ms + self.rules.linger_ms)
                )
        if self._lacks_identity() and not self._asks_identity:
            times.append(self._ask_identity_at)
        if not self._asks_leaders and self._topics_without_leader():
            times.append(self._ask_leaders_at)
        alarm_ms = max(now_ms + 1, ceil(min(times))) if times else None
        if alarm_ms != self._alarm_ms:
            self._alarm_ms = alarm_ms
            effects.append(WakeAt(alarm_ms))
