"""The producer without I/O: records are collected into batches, batches sent, answers judged. `handle(event, now_ms)`.

    batching = Batching(BatchingRules(...), dice)
    batching.handle(LeadersFound({"orders": {0: 1, 1: 1}}), now_ms)
    placed = batching.append("orders", None, record, now_ms)      # batch and index, or None: no room
    if batching.wants_attention:
        for effect in batching.handle(Woke(), now_ms): ...

`append` is the caller's hot path and makes no effects; `wants_attention` says that the sender has something to do. A
batch goes out when it is full, has lingered, somebody flushes, closes or waits for room; with it goes whatever else
there is for the same broker, as much as a request may hold. What an answer means is `CONSEQUENCES`; how order is kept
is in `partition_queue.py`. Batch sizes are those before compression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

from coterie.client.batching_events import (
    Answer,
    Answered,
    Arm,
    AskLeaders,
    AskProducerId,
    Closing,
    Effect,
    Event,
    FlushAsked,
    FlushEnded,
    GaveUp,
    LeadersFailed,
    LeadersFound,
    ProducerIdFailed,
    ProducerIdGiven,
    RoomMade,
    Send,
    Settled,
    Unanswered,
    Woke,
)
from coterie.client.partition_queue import NOBODY, Batch, Identity, PartitionQueue
from coterie.client.partitioner import Sticky, draw_partition, partition_for_key
from coterie.client.words import TopicPartition
from coterie.errors import RETRIABLE, STALE_METADATA, ErrorCode, KafkaError
from coterie.wire.batch import HEADER_SIZE, NO_SEQUENCE
from coterie.wire.records import BatchRecord

__all__ = ["CONSEQUENCES", "RECORD_OVERHEAD", "Batching", "BatchingRules", "Consequence"]

RECORD_OVERHEAD = 12
"""What a record takes beside key, value and headers: its lengths and its differences in time and offset."""
HEADER_OVERHEAD = 4


class Consequence(Enum):
    TAKEN = auto()
    AGAIN = auto()
    OUT_OF_PLACE = auto()
    """It is certainly not in the log; again, under a new epoch if it was the first in line."""
    SPLIT = auto()
    FAIL = auto()
    FAIL_FOR_GOOD = auto()
    """Nothing this producer sends will be taken."""


CONSEQUENCES: Mapping[ErrorCode, Consequence] = MappingProxyType(
    {
        **dict.fromkeys(RETRIABLE, Consequence.AGAIN),
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
"""Of an answer to Produce, as Java 4.3 draws it; whatever is not here fails the batch. STALE_METADATA says after which
of them the leaders are asked for anew."""


@dataclass(frozen=True, slots=True)
class BatchingRules:
    """The settings of these names; the driver fills them from `ProducerSettings`."""

    batch_size: int = 16_384
    linger_ms: int = 5
    buffer_memory: int = 33_554_432
    max_request_size: int = 1_048_576
    max_in_flight: int = 5
    delivery_timeout_ms: int = 120_000
    retries: int = 2**31 - 1
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    is_idempotent: bool = True
    ignores_keys: bool = False
    is_adaptive: bool = True

    def backoff_ms(self, attempts: int) -> int:
        """Doubled with each attempt (KIP-580)."""
        return min(self.retry_backoff_max_ms, self.retry_backoff_ms << min(attempts - 1, 30))


class Topic:
    """What is known of a topic that records are sent to."""

    __slots__ = ("available", "name", "partitions", "queues", "sticky")

    def __init__(self, name: str) -> None:
        self.name = name
        self.partitions = 0
        self.available: list[int] = []
        self.queues: dict[int, PartitionQueue] = {}
        self.sticky: Sticky | None = None


class Batching:
    def __init__(self, rules: BatchingRules, dice: Callable[[], int]) -> None:
        """`dice` gives anything from 0 to 2^31 - 1."""
        self.rules = rules
        self._dice = dice
        self.topics: dict[str, Topic] = {}
        self.identity: Identity | None = NOBODY if rules.is_idempotent else None
        self.failure: KafkaError | None = None
        """Why nothing can be sent any more."""
        self.is_closing = False
        self.used = 0
        self.wants_attention = False
        self._wants_room = False
        self._busy: dict[TopicPartition, PartitionQueue] = {}  # those that hold a batch; whoever sent goes to the end
        self._on_the_way: dict[int, int] = {}  # requests, by node
        self._flushes: dict[int, set[Batch]] = {}
        self._asks_leaders = self._asks_identity = False
        self._stale_topics: set[str] = set()
        self._ask_leaders_at = self._ask_identity_at = 0
        self._alarm_ms: int | None = None

    # --- the caller's side --------------------------------------------------------------------------------------------

    def append(
        self, topic_name: str, partition: int | None, record: BatchRecord, now_ms: int
    ) -> tuple[Batch, int] | None:
        """Its batch and its index there; None if `buffer.memory` is used up. The topic must be known."""
        topic = self.topics[topic_name]
        key, value, _, headers = record[:4]
        size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
        for name, content in headers:
            size += HEADER_OVERHEAD + len(name.encode()) + len(content or b"")
        if self.used + size > self.rules.buffer_memory:
            self._refuse_for_want_of_room(size)
            return None
        sticky: Sticky | None = None
        if partition is None:
            if key is not None and not self.rules.ignores_keys:
                partition = partition_for_key(key, topic.partitions)
            else:
                sticky = topic.sticky or self._stick(topic)
                partition = sticky.partition
        waiting = (topic.queues.get(partition) or self._queue(topic, partition)).waiting
        if not waiting or waiting[-1].size + size > self.rules.batch_size:
            if sticky is not None and waiting:
                sticky.note(0, batch_is_full=True)
                partition = sticky.partition
            batch = self._open(topic.queues.get(partition) or self._queue(topic, partition), size, now_ms)
        else:
            batch = waiting[-1]
        batch.records.append(record)
        batch.size += size
        self.used += size
        if sticky is not None:
            sticky.note(size, batch_is_full=batch.size >= self.rules.batch_size)
        return batch, len(batch.records) - 1

    def fits(self, size: int) -> bool:
        """A record of so many bytes can be sent at all."""
        return size + HEADER_SIZE <= min(self.rules.max_request_size, self.rules.buffer_memory)

    def _refuse_for_want_of_room(self, size: int) -> None:
        if not self.fits(size):
            raise KafkaError(
                f"a record of {size} bytes cannot be sent: max.request.size is {self.rules.max_request_size} and "
                f"buffer.memory {self.rules.buffer_memory}; raise them (and the topic's max.message.bytes), or send less",
                ErrorCode.MESSAGE_TOO_LARGE,
            )
        self._wants_room = True
        self.wants_attention = True

    def _stick(self, topic: Topic) -> Sticky:
        def draw() -> int:
            everywhere = len(topic.queues) >= topic.partitions
            queued = {p: len(q) for p, q in topic.queues.items()} if self.rules.is_adaptive and everywhere else None
            return draw_partition(self._dice(), topic.available or range(topic.partitions), queued)

        topic.sticky = Sticky(self.rules.batch_size, draw)
        return topic.sticky

    def _queue(self, topic: Topic, partition: int) -> PartitionQueue:
        queue = topic.queues[partition] = PartitionQueue(TopicPartition(topic.name, partition))
        return queue

    def _open(self, queue: PartitionQueue, size: int, now_ms: int) -> Batch:
        """A batch that `size` fits into: the last one, after the sticky partition changed, or a new one."""
        if queue.waiting and queue.waiting[-1].size + size <= self.rules.batch_size:
            return queue.waiting[-1]
        if not self.fits(size):
            self._refuse_for_want_of_room(size)
        batch = Batch(queue.where, now_ms)
        queue.waiting.append(batch)
        self._busy[queue.where] = queue
        if len(queue.waiting) > 1 or self.rules.linger_ms == 0:
            # the one before is full; if its broker has as much as it may, the answer comes and looks again
            if self._on_the_way.get(queue.leader, 0) < self.rules.max_in_flight:
                self.wants_attention = True
        elif self._alarm_ms is None or self._alarm_ms > now_ms + self.rules.linger_ms:
            self.wants_attention = True
        return batch

    # --- the sender's side --------------------------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        self.wants_attention = False
        handler: Callable[[Batching, Any, int, list[Effect]], None] = _HANDLERS[type(event)]
        handler(self, event, now_ms, effects)
        self._expire(now_ms, effects)
        self._take_new_epochs()
        while self._send_ready(now_ms, effects):
            pass
        self._ask(now_ms, effects)
        self._arm(now_ms, effects)
        return effects

    @property
    def unsettled(self) -> int:
        """Records that were appended and whose fate is open."""
        return sum(
            len(batch.records) for queue in self._busy.values() for batch in (*queue.unsettled, *queue.waiting)
        )

    def _woke(self, _event: Woke, _now_ms: int, _effects: list[Effect]) -> None:
        """There is nothing to it but to look."""

    def _leaders_found(self, event: LeadersFound, _now_ms: int, _effects: list[Effect]) -> None:
        self._asks_leaders = False
        for name, leaders in event.leaders.items():
            self._stale_topics.discard(name)
            topic = self.topics.setdefault(name, Topic(name))
            topic.partitions = max(topic.partitions, len(leaders))  # a topic never shrinks; one that is gone keeps queues
            topic.available = sorted(partition for partition, leader in leaders.items() if leader >= 0)
            for partition in leaders:
                queue = topic.queues.get(partition) or self._queue(topic, partition)
                queue.leader = leaders[partition]
            for partition in topic.queues.keys() - leaders.keys():
                topic.queues[partition].leader = -1

    def _leaders_failed(self, _event: LeadersFailed, _now_ms: int, _effects: list[Effect]) -> None:
        self._asks_leaders = False

    def _producer_id_given(self, event: ProducerIdGiven, _now_ms: int, _effects: list[Effect]) -> None:
        self._asks_identity = False
        self.identity = event.identity

    def _producer_id_failed(self, event: ProducerIdFailed, now_ms: int, effects: list[Effect]) -> None:
        self._asks_identity = False
        if not event.error.retriable:  # as Java does: what is there fails, and the next record asks again
            self._gave_up(GaveUp(event.error), now_ms, effects)

    def _flush_asked(self, event: FlushAsked, _now_ms: int, effects: list[Effect]) -> None:
        batches = {batch for queue in self._busy.values() for batch in (*queue.unsettled, *queue.waiting)}
        if batches:
            self._flushes[event.token] = batches
        else:
            effects.append(FlushEnded(event.token))

    def _closing(self, _event: Closing, _now_ms: int, _effects: list[Effect]) -> None:
        self.is_closing = True

    def _gave_up(self, event: GaveUp, _now_ms: int, effects: list[Effect]) -> None:
        for queue in list(self._busy.values()):
            for batch in (*queue.unsettled, *queue.waiting):
                self._fail(queue, batch, event.error, effects)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answered(self, event: Answered, now_ms: int, effects: list[Effect]) -> None:
        self._on_the_way[event.sent.node_id] -= 1
        missing = Answer(ErrorCode.NETWORK_EXCEPTION, message="the answer does not speak of this partition")
        for batch in event.sent.batches:
            self._judge(batch, event.answers.get(batch.where, missing), now_ms, effects)

    def _unanswered(self, event: Unanswered, now_ms: int, effects: list[Effect]) -> None:
        self._on_the_way[event.sent.node_id] -= 1
        answer = Answer(event.error.code, message=str(event.error))
        for batch in event.sent.batches:
            self._judge(batch, answer, now_ms, effects)

    def _judge(self, batch: Batch, answer: Answer, now_ms: int, effects: list[Effect]) -> None:
        if batch.is_settled:  # it was given up while it was on its way
            return
        queue = self.topics[batch.where.topic].queues[batch.where.partition]
        if answer.error in STALE_METADATA:
            self._stale_topics.add(batch.where.topic)
        consequence = CONSEQUENCES.get(answer.error, Consequence.FAIL)
        if consequence is Consequence.TAKEN:
            batch.base_offset = answer.base_offset
            batch.append_time_ms = answer.append_time_ms
            self._settle(queue, batch, effects)
            return
        error = KafkaError.of(answer.error, f"{len(batch.records)} records for {batch.where} failed", answer.message)
        if consequence is Consequence.SPLIT and len(batch.records) > 1:
            self._split(queue, batch)
        elif consequence is Consequence.AGAIN or (
            consequence is Consequence.OUT_OF_PLACE and self.identity is not None
        ):
            batch.attempts += 1
            batch.error = error  # what is said if its time is over before it succeeds
            if batch.attempts > self.rules.retries:
                self._fail(queue, batch, error, effects)
                return
            batch.retry_at_ms = now_ms + self.rules.backoff_ms(batch.attempts)
            queue.came_back(batch, refused=consequence is Consequence.OUT_OF_PLACE)
        else:
            batch.record_errors = {
                index: KafkaError.of(answer.error, f"record {index} of a batch for {batch.where} failed", message)
                for index, message in answer.record_errors.items()
            }
            self._fail(queue, batch, error, effects)
            if consequence is Consequence.FAIL_FOR_GOOD:
                self.failure = error
                self._gave_up(GaveUp(error), now_ms, effects)

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        parts = batch.split()
        queue.replace(batch, parts)
        for batches in self._flushes.values():
            if batch in batches:
                batches.remove(batch)
                batches.update(parts)

    def _fail(self, queue: PartitionQueue, batch: Batch, error: KafkaError, effects: list[Effect]) -> None:
        batch.error = error
        if batch.sequence != NO_SEQUENCE:  # whatever follows it would be out of order
            queue.needs_new_epoch = True
        self._settle(queue, batch, effects)

    def _settle(self, queue: PartitionQueue, batch: Batch, effects: list[Effect]) -> None:
        if batch.base_offset >= 0:
            batch.error = None
        batch.is_settled = True
        batch.is_on_the_way = False
        batch.encoded = None
        queue.remove(batch)
        if queue.is_idle():
            if queue.needs_new_epoch:
                self._move(queue)
            self._busy.pop(queue.where, None)
        self.used -= batch.size - HEADER_SIZE
        effects.append(Settled(batch))
        if self._wants_room:
            self._wants_room = False
            effects.append(RoomMade())
        for token, batches in list(self._flushes.items()):
            batches.discard(batch)
            if not batches:
                del self._flushes[token]
                effects.append(FlushEnded(token))

    def _expire(self, now_ms: int, effects: list[Effect]) -> None:
        created_before = now_ms - self.rules.delivery_timeout_ms
        for queue in list(self._busy.values()):
            for batches in (queue.unsettled, queue.waiting):
                while batches and batches[0].created_ms <= created_before:
                    self._fail(queue, batches[0], self._too_late(batches[0]), effects)

    def _too_late(self, batch: Batch) -> KafkaError:
        last = f"; the last attempt: {batch.error}" if batch.error else "; it could not be sent at all"
        return KafkaError(
            f"{len(batch.records)} records for {batch.where} were not delivered within "
            f"delivery.timeout.ms={self.rules.delivery_timeout_ms}{last}",
            ErrorCode.REQUEST_TIMED_OUT,
        )

    # --- epochs -------------------------------------------------------------------------------------------------------

    def _take_new_epochs(self) -> None:
        for queue in self._busy.values():
            if queue.may_move():
                self._move(queue)

    def _move(self, queue: PartitionQueue) -> None:
        """To the producer's epoch, which is a new one if this partition has been there already."""
        assert self.identity is not None, "only an idempotent producer has places to lose"
        if self.identity == queue.identity:
            self.identity = self.identity.next_epoch()
        if self.identity.is_somebody:
            queue.move_to(self.identity)

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send_ready(self, now_ms: int, effects: list[Effect]) -> bool:
        """One request to each broker for which something is ready."""
        everything = bool(self._wants_room or self.is_closing or self._flushes)
        by_node: dict[int, list[tuple[PartitionQueue, Batch]]] = {}
        ready: set[int] = set()
        for queue in self._busy.values():
            node_id = queue.leader
            if node_id < 0 or self._on_the_way.get(node_id, 0) >= self.rules.max_in_flight:
                continue
            batch = queue.sendable(self.identity)
            if batch is None or self._backs_off(queue, batch, now_ms):
                continue
            by_node.setdefault(node_id, []).append((queue, batch))
            if everything or self._is_ready(queue, batch, now_ms):
                ready.add(node_id)
        for node_id in ready:
            effects.append(self._send(node_id, by_node[node_id]))
        return bool(ready)

    @staticmethod
    def _backs_off(queue: PartitionQueue, batch: Batch, now_ms: int) -> bool:
        return batch.retry_at_ms > now_ms and batch.sent_to == queue.leader

    def _is_ready(self, queue: PartitionQueue, batch: Batch, now_ms: int) -> bool:
        return (
            batch.sent_to >= 0
            or len(queue.waiting) > 1
            or batch.size >= self.rules.batch_size
            or now_ms - batch.created_ms >= self.rules.linger_ms
        )

    def _send(self, node_id: int, candidates: list[tuple[PartitionQueue, Batch]]) -> Send:
        taken: list[Batch] = []
        room = self.rules.max_request_size
        for queue, batch in candidates:
            room -= batch.size
            if room < 0 and taken:
                break
            queue.send(batch, self.identity)
            batch.sent_to = node_id
            taken.append(batch)
            self._busy[queue.where] = self._busy.pop(queue.where)
        self._on_the_way[node_id] = self._on_the_way.get(node_id, 0) + 1
        return Send(node_id, tuple(taken))

    # --- what is missing ----------------------------------------------------------------------------------------------

    def _ask(self, now_ms: int, effects: list[Effect]) -> None:
        if self._busy and self.identity == NOBODY and not self._asks_identity and now_ms >= self._ask_identity_at:
            self._asks_identity = True
            self._ask_identity_at = now_ms + self.rules.retry_backoff_ms
            effects.append(AskProducerId())
        wanted = self._topics_without_leader()
        if wanted and not self._asks_leaders and now_ms >= self._ask_leaders_at:
            self._asks_leaders = True
            self._ask_leaders_at = now_ms + self.rules.retry_backoff_ms
            effects.append(AskLeaders(tuple(sorted(wanted))))

    def _topics_without_leader(self) -> set[str]:
        return self._stale_topics | {queue.where.topic for queue in self._busy.values() if queue.leader < 0}

    def _arm(self, now_ms: int, effects: list[Effect]) -> None:
        """The next time at which something may be due."""
        times = []
        for queue in self._busy.values():
            oldest = queue.unsettled[0] if queue.unsettled else queue.waiting[0]
            times.append(oldest.created_ms + self.rules.delivery_timeout_ms)
            if queue.leader < 0 or self._on_the_way.get(queue.leader, 0) >= self.rules.max_in_flight:
                continue
            batch = queue.sendable(self.identity)
            if batch is not None:
                times.append(max(batch.retry_at_ms, 0 if batch.sent_to >= 0 else batch.created_ms + self.rules.linger_ms))
        if self._busy and self.identity == NOBODY and not self._asks_identity:
            times.append(self._ask_identity_at)
        if not self._asks_leaders and self._topics_without_leader():
            times.append(self._ask_leaders_at)
        alarm_ms = max(now_ms + 1, min(times)) if times else None
        if alarm_ms != self._alarm_ms:
            self._alarm_ms = alarm_ms
            effects.append(Arm(alarm_ms))


_HANDLERS: dict[type, Callable[[Batching, Any, int, list[Effect]], None]] = {
    Woke: Batching._woke,
    Answered: Batching._answered,
    Unanswered: Batching._unanswered,
    LeadersFound: Batching._leaders_found,
    LeadersFailed: Batching._leaders_failed,
    ProducerIdGiven: Batching._producer_id_given,
    ProducerIdFailed: Batching._producer_id_failed,
    FlushAsked: Batching._flush_asked,
    Closing: Batching._closing,
    GaveUp: Batching._gave_up,
}
