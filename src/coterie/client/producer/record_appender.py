"""Choose the partition of a record, add it to a batch, and count it against `buffer.memory`; no I/O, no clock.

`append` is the caller's hot path. It has no effects; `wants_attention` says that the sender has something to do before
its timer fires.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from coterie.client.producer.partition_queue import Batch, PartitionQueue
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.batch import HEADER_SIZE, Compression
from coterie.protocol.records import BatchBuilder, Header, QuickAppend, murmur2
from coterie.settings.producer_settings import ProducerSettings
from coterie.structs import DataStruct

# Which partition a record goes to, as Java's producer decides it.
#
# - a record with a key: murmur2 of the key, so that equal keys share a partition, also those of other clients;
# - without one: a partition drawn at random that it sticks to until enough bytes for a batch have gone there (KIP-480),
#   so that every partition gets as many bytes as any other (KIP-794). Where queues are of different length the draw
#   favours the short ones: a slow broker is given less.
#
# The rng come in with the call: anything from 0 to 2^31 - 1.

_POSITIVE = 0x7FFFFFFF


def partition_for_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & _POSITIVE) % partitions


def draw_partition(rng: int, available: Sequence[int], queued: Mapping[int, int] | None = None) -> int:
    """Draw one of `available`; partitions with fewer `queued` batches are more likely."""
    lengths = [queued.get(partition, 0) for partition in available] if queued else []
    if not lengths or min(lengths) == max(lengths):
        return available[rng % len(available)]
    most = max(lengths)
    up_to = list(accumulate(most + 1 - length for length in lengths))
    return available[bisect_right(up_to, rng % up_to[-1])]


class StickyPartitioner:
    """The partition of one topic that records without a key go to at the moment."""

    __slots__ = ("_batch_size", "_draw", "most", "partition", "produced")

    def __init__(self, batch_size: int, draw: Callable[[], int]) -> None:
        """`draw` draws a random number and looks at the queues: see `draw_partition`."""
        self._batch_size = max(1, batch_size)
        self._draw = draw
        self.partition = draw()
        self.produced = 0
        self.most = 2 * self._batch_size

    def note(self, size: int, *, batch_is_full: bool) -> None:
        """Count bytes of the current partition. Change it when a batch is full, or after twice batch.size."""
        self.produced += size
        if self.produced >= self._batch_size and (batch_is_full or self.produced >= self.most):
            self.produced = 0
            self.partition = self._draw()


RECORD_OVERHEAD = 12
"""The bytes of a record beside key, value and headers: lengths, and deltas of time and offset."""
HEADER_OVERHEAD = 4

EncodedRecord = tuple[bytes | None, bytes | None, int, Sequence[Header]]
"""Key, value, timestamp and headers."""


_DEFAULTS = ProducerSettings()


class AccumulatorSettings(DataStruct, frozen=True):
    """The settings of a producer that the accumulator uses; the driver fills them from `ProducerSettings`."""

    batch_size: int = _DEFAULTS.batch_size
    linger_ms: int = _DEFAULTS.linger_ms
    buffer_memory: int = _DEFAULTS.buffer_memory
    max_request_size: int = _DEFAULTS.max_request_size
    max_in_flight: int = _DEFAULTS.max_in_flight_requests_per_connection
    delivery_timeout_ms: int = _DEFAULTS.delivers_within_ms
    retries: int = _DEFAULTS.retries
    retry_backoff_ms: int = _DEFAULTS.retry_backoff_ms
    retry_backoff_max_ms: int = _DEFAULTS.retry_backoff_max_ms
    compression: Compression = Compression[_DEFAULTS.compression_type.upper()]
    level: int | None = None
    is_idempotent: bool = _DEFAULTS.is_idempotent
    is_transactional: bool = False
    ignores_keys: bool = _DEFAULTS.partitioner_ignore_keys
    is_adaptive: bool = _DEFAULTS.partitioner_adaptive_partitioning_enable


def next_ratio(before: float, seen: float) -> float:
    """Return the estimated ratio of the next batch, as in Java: it rises at once, and falls in small steps."""
    return max(before + 0.05, seen) if seen > before else max(before - 0.005, seen)


class ProducerTopic:
    """The state of a topic that records are sent to."""

    __slots__ = ("available", "name", "partitions", "queues", "ratio", "sticky", "used_ms")

    def __init__(self, name: str) -> None:
        self.name = name
        self.partitions = 0
        self.available: list[int] = []
        self.queues: dict[int, PartitionQueue] = {}
        self.sticky: StickyPartitioner | None = None
        self.ratio = 1.0
        """The estimated compression ratio of its batches."""
        self.used_ms = 0
        """The time at which the last batch was begun."""


class RecordAppender:
    def __init__(self, rules: AccumulatorSettings, rng: Callable[[], int]) -> None:
        """`rng` returns a random number from 0 to 2^31 - 1."""
        self.rules = rules
        self._buffer_memory = rules.buffer_memory
        self.topics: dict[str, ProducerTopic] = {}
        self.used = 0
        self.wants_attention = False
        self._rng = rng
        self._wants_room = False
        self._busy: dict[TopicPartition, PartitionQueue] = {}  # those with a batch; one that has sent goes to the end
        self._on_the_way: dict[int, int] = {}  # requests, by node
        self._alarm_ms: int | None = None
        self.quick: QuickAppend | None = None
        """Takes records without a key while nothing else happens; a driver may set it, and asks it first."""
        self._quick_batch: tuple[Batch, StickyPartitioner] | None = None

    def learn(self, name: str, leaders: Mapping[int, int]) -> None:
        """Set the leader of each partition of a topic; -1 is none. The queues of a deleted topic keep their batches."""
        if not leaders and name not in self.topics:  # then it has no partition to send to
            return
        topic = self.topics.setdefault(name, ProducerTopic(name))
        topic.partitions = max(topic.partitions, len(leaders))
        topic.available = sorted(partition for partition, leader in leaders.items() if leader >= 0)
        for partition in leaders.keys() - topic.queues.keys():
            topic.queues[partition] = PartitionQueue(TopicPartition(name, partition))
        for partition, queue in topic.queues.items():
            queue.leader = leaders.get(partition, -1)

    def append(
        self,
        topic_name: str,
        partition: int | None,
        record: EncodedRecord,
        now_ms: int,
    ) -> tuple[Batch, int] | None:
        """Append a record; return its batch and its index there. None if `buffer.memory` is used up."""
        self.settle()
        key, value, timestamp, headers = record
        topic = self.topics[topic_name]
        size = RECORD_OVERHEAD
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            size += sum(HEADER_OVERHEAD + len(name) + len(content or b"") for name, content in headers)
        if self.used + size > self._buffer_memory:
            self._check_size(size)
            self._ask_for_room()
            return None
        sticky: StickyPartitioner | None = None
        if partition is None:
            if key is not None and not self.rules.ignores_keys:
                partition = partition_for_key(key, topic.partitions)
            else:
                sticky = topic.sticky or self._stick(topic)
                partition = sticky.partition
        queue = topic.queues[partition]
        waiting = queue.waiting
        batch = waiting[-1] if waiting else None
        if batch is None or not batch.builder.append(key, value, timestamp, headers):
            if sticky is not None and batch is not None:
                sticky.note(0, batch_is_full=True)
                queue = topic.queues[sticky.partition]
            batch = self._append_to_new(topic, queue, size, now_ms, record)
        batch.weight += size
        self.used += size
        if sticky is not None:
            if sticky.produced + size < sticky.most:  # as `note` counts, without a call
                sticky.produced += size
            else:
                sticky.note(size, batch_is_full=False)
            if self.quick is not None and sticky.partition == batch.where.partition:
                room = min(sticky.most - sticky.produced, self._buffer_memory - self.used + 1)
                self.quick.start(topic_name, batch, batch.builder, room)
                self._quick_batch = batch, sticky
        return batch, batch.builder.count - 1

    def settle(self) -> None:
        """Stop `quick` and count what it has taken. Everything that looks at batches or counts begins with it."""
        if self._quick_batch is None or self.quick is None:
            return
        batch, sticky = self._quick_batch
        self._quick_batch = None
        self.quick.stop()
        weight = self.quick.weight
        batch.weight += weight
        self.used += weight
        sticky.produced += weight

    def stop_quick(self) -> None:
        """Let nothing be appended without the lock, for one who cannot wait for it."""
        if self.quick is not None:
            self.quick.stop()

    def append_batch(self, topic_name: str, partition: int, builder: BatchBuilder, now_ms: int) -> Batch | None:
        """A batch that the caller has filled (`new_batch`); None if `buffer.memory` is used up."""
        self.settle()
        size = builder.plain_size
        if builder.count == 1:  # of more, none was too large; and together they are smaller when compressed
            self._check_size(size)
        if self.used and self.used + size > self.rules.buffer_memory:
            self._ask_for_room()
            return None
        topic = self.topics[topic_name]
        batch = self._line_up(topic, topic.queues[partition], builder, now_ms)
        batch.weight = size
        self.used += size
        return batch

    def new_batch(self, topic_name: str) -> BatchBuilder:
        rules = self.rules
        return BatchBuilder(rules.batch_size, rules.compression, self.topics[topic_name].ratio, rules.level)

    def draw(self, topic_name: str) -> int:
        """A partition for records without a key, for as long as they fill one batch."""
        topic = self.topics[topic_name]
        everywhere = len(topic.queues) >= topic.partitions
        queued = {p: len(q) for p, q in topic.queues.items()} if self.rules.is_adaptive and everywhere else None
        return draw_partition(self._rng(), topic.available or range(topic.partitions), queued)

    def fits(self, size: int) -> bool:
        """Return whether a record of this size can be sent."""
        return size + HEADER_SIZE <= min(self.rules.max_request_size, self.rules.buffer_memory)

    def _check_size(self, size: int) -> None:
        if not self.fits(size):
            raise KafkaError(
                f"a record of {size} bytes cannot be sent: max.request.size is {self.rules.max_request_size} and "
                f"buffer.memory {self.rules.buffer_memory}; raise them and the topic's max.message.bytes, or send less",
                ErrorCode.MESSAGE_TOO_LARGE,
            )

    def _ask_for_room(self) -> None:
        self._wants_room = True
        self.wants_attention = True

    def _stick(self, topic: ProducerTopic) -> StickyPartitioner:
        topic.sticky = StickyPartitioner(self.rules.batch_size, lambda: self.draw(topic.name))
        return topic.sticky

    def _append_to_new(
        self, topic: ProducerTopic, queue: PartitionQueue, size: int, now_ms: int, record: EncodedRecord
    ) -> Batch:
        """Append to a new batch, unless the sticky partition has changed and has a batch with room."""
        if queue.waiting and queue.waiting[-1].builder.append(*record):
            return queue.waiting[-1]
        self._check_size(size)
        builder = self.new_batch(topic.name)
        builder.append(*record)
        return self._line_up(topic, queue, builder, now_ms)

    def _line_up(self, topic: ProducerTopic, queue: PartitionQueue, builder: BatchBuilder, now_ms: int) -> Batch:
        batch = Batch(queue.where, now_ms, builder, self.rules.is_transactional)
        queue.waiting.append(batch)
        topic.used_ms = now_ms
        self._busy[queue.where] = queue
        if len(queue.waiting) > 1 or self.rules.linger_ms == 0 or builder.size >= self.rules.batch_size:
            # one is full; if its broker has as much as it may, the answer will come and look again
            if self._on_the_way.get(queue.leader, 0) < self.rules.max_in_flight:
                self.wants_attention = True
        elif self._alarm_ms is None or self._alarm_ms > now_ms + self.rules.linger_ms:
            self.wants_attention = True
        return batch
