"""The producer's queue of one partition: batches that fill, batches in flight, and their sequence numbers.

Four rules make sure that no record is lost, duplicated or reordered:

1. A batch gets its producer id, epoch and sequence when it is first sent. It stays in `unsettled`, in that order, until
   its outcome is known. While one of them must be sent again, only the first is sent, and no new batch.
2. A batch that the broker refused as out of order (`is_refused`) is certainly not in the log. A batch without an answer
   may be; it is sent again with the same sequence. The broker recognises the last five batches (KIP-98), so at most
   four are sent after one that is unsettled. (Java counts the requests in flight instead.)
3. A broker that does not know a producer yet accepts any first sequence. So no batch follows the first one of an epoch
   before that is acknowledged. (Java does not wait.)
4. After a gap (a batch was given up, or the broker forgot the producer) the partition needs a bump of the epoch. It is
   bumped when no unsettled batch can be in the log, and the sequence starts at 0 (KIP-360). (Java does not wait.) In a
   transaction nothing more is sent to the partition: the transaction is aborted, and the next one has a new epoch.

`record_accumulator.py` decides when this happens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from coterie.client.types import TopicPartition
from coterie.errors import KafkaError
from coterie.protocol.batch import (
    HEADER_SIZE,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    parse_header,
    stamp_producer,
)
from coterie.protocol.records import NO_LIMIT, BatchBuilder, records
from coterie.structs import DataStruct, field, replace

MAX_EPOCH = 2**15 - 1
REMEMBERED = 5
"""The number of batches of a producer that a broker recognises as duplicates."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch: InitProducerId returns them, and each batch contains them."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_valid(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def bump_epoch(self) -> ProducerIdAndEpoch:
        """Return the id with the next epoch (KIP-360: without a request); `NO_PRODUCER` if this is the last epoch."""
        return ProducerIdAndEpoch(self.producer_id, self.epoch + 1) if self.epoch < MAX_EPOCH else NO_PRODUCER


NO_PRODUCER = ProducerIdAndEpoch()

OnSettled = Callable[["Batch", int], None]
"""Called when the record at this index of the batch is settled."""


class Batch(DataStruct, eq=False):
    """A batch of records of one partition. While it waits, its builder takes more records."""

    where: TopicPartition
    created_ms: int
    builder: BatchBuilder
    is_transactional: bool = False
    weight: int = 0
    """Its share of `buffer.memory`."""

    identity: ProducerIdAndEpoch = NO_PRODUCER
    sequence: int = NO_SEQUENCE
    ordinal: int = 0
    """The number of the batch in its epoch."""
    encoded: bytearray | None = None
    stamped: tuple[ProducerIdAndEpoch, int] = (NO_PRODUCER, NO_SEQUENCE)
    """The producer and sequence in the encoded bytes."""

    is_on_the_way: bool = False
    is_refused: bool = False
    attempts: int = 0
    retry_at_ms: float = 0
    sent_to: int = -1

    is_settled: bool = False
    base_offset: int = -1
    append_time_ms: int = -1
    error: KafkaError | None = None
    """The error that the batch failed with or, while it is not settled, the one that it is retried for."""
    record_errors: dict[int, KafkaError] = field(default_factory=dict)
    callbacks: list[tuple[int, OnSettled]] = field(default_factory=list)
    parts: tuple[Batch, Batch] | None = None
    """The two batches that it was split into."""

    def __len__(self) -> int:
        return self.builder.count

    def encode(self) -> bytearray:
        """Return the bytes, with the current epoch and sequence. A batch is compressed only once."""
        place = (self.identity, self.sequence)
        if self.encoded is None:
            self.encoded = self.builder.finish(
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=self.sequence,
                is_transactional=self.is_transactional,
            )
        elif self.stamped != place:
            stamp_producer(self.encoded, 0, *self.identity, self.sequence)
        self.stamped = place
        return self.encoded

    def locate(self, index: int) -> tuple[Batch, int]:
        """Return the batch and the index of a record after splits."""
        batch = self
        while batch.parts:
            first, second = batch.parts
            batch, index = (first, index) if index < len(first) else (second, index - len(first))
        return batch, index

    def split(self) -> tuple[Batch, Batch]:
        """Split the batch into two halves by bytes, with at least one record each and the same sequences."""
        compression, level = self.builder.compression, self.builder.level
        halves = (
            BatchBuilder(self.builder.plain_size // 2 + HEADER_SIZE, compression, level=level),
            BatchBuilder(NO_LIMIT, compression, level=level),
        )
        data = self.encode()
        into = 0
        for at, record in enumerate(records(data, parse_header(data), limit=NO_LIMIT)):
            key, value, timestamp, headers, _ = record
            into = into or at == len(self) - 1 or not halves[0].append(key, value, timestamp, headers)
            if into:
                halves[1].append(key, value, timestamp, headers)
        self.parts = first, second = (
            replace(self, builder=halves[0], encoded=None, callbacks=[], weight=self.weight // 2),
            replace(self, builder=halves[1], encoded=None, callbacks=[], weight=self.weight - self.weight // 2),
        )
        for part in self.parts:
            part.is_on_the_way = False
        if self.sequence != NO_SEQUENCE:
            second.sequence = (self.sequence + len(first)) & MAX_SEQUENCE
        for index, callback in self.callbacks:
            part, at = self.locate(index)
            part.callbacks.append((at, callback))
        return first, second


class PartitionQueue:
    """`waiting` batches were never sent; `unsettled` ones were, and are in the order of their sequences."""

    __slots__ = (
        "batches_sent",
        "identity",
        "is_known",
        "leader",
        "needs_epoch_bump",
        "next_sequence",
        "unsettled",
        "waiting",
        "where",
    )

    def __init__(self, where: TopicPartition) -> None:
        self.where = where
        self.leader = -1
        self.waiting: deque[Batch] = deque()
        self.unsettled: list[Batch] = []
        self._begin(NO_PRODUCER)
        self.needs_epoch_bump = False

    def __len__(self) -> int:
        return len(self.waiting) + len(self.unsettled)

    def _begin(self, identity: ProducerIdAndEpoch) -> None:
        self.identity = identity
        self.next_sequence = self.batches_sent = 0
        self.is_known = False  # the broker has no batch of this identity yet

    def resume(self, identity: ProducerIdAndEpoch, next_sequence: int) -> None:
        """Go on where another process with this identity has ended; all its batches are acknowledged."""
        self._begin(identity)
        self.next_sequence = next_sequence
        self.is_known = next_sequence > 0

    def _place(self, batch: Batch) -> None:
        batch.identity, batch.sequence, batch.ordinal = self.identity, self.next_sequence, self.batches_sent
        batch.is_refused = False
        self.next_sequence = (self.next_sequence + len(batch)) & MAX_SEQUENCE
        self.batches_sent += 1

    def is_idle(self) -> bool:
        return not self.waiting and not self.unsettled

    def sendable(self, current: ProducerIdAndEpoch | None) -> Batch | None:
        """Return the batch to send next, by the rules above; `current` is None if the producer is not idempotent."""
        first_again = next((batch for batch in self.unsettled if not batch.is_on_the_way), None)
        if first_again is not None:
            if self.needs_epoch_bump:  # each must be heard of; a refused one would only be refused again
                return next((b for b in self.unsettled if not b.is_on_the_way and not b.is_refused), None)
            return first_again if first_again is self.unsettled[0] else None
        if not self.waiting or self.needs_epoch_bump:
            return None
        if current is not None:
            if not current.is_valid:
                return None
            if self.unsettled and (self.identity != current or not self.is_known):
                return None
            if self.unsettled and self.batches_sent - self.unsettled[0].ordinal >= REMEMBERED:
                return None
        return self.waiting[0]

    def send(self, batch: Batch, current: ProducerIdAndEpoch | None) -> None:
        """Mark it as in flight; a new batch gets its sequence."""
        if self.waiting and batch is self.waiting[0]:
            self.waiting.popleft()
            if current is not None:
                if self.identity != current:
                    self._begin(current)
                self._place(batch)
            self.unsettled.append(batch)
        batch.is_on_the_way = True
        batch.is_refused = False

    def reenqueue(self, batch: Batch, *, refused: bool) -> None:
        """Queue it for a retry. If the first batch is refused, its predecessor is not in the log."""
        batch.is_on_the_way = False
        batch.is_refused = refused
        if refused and batch is self.unsettled[0]:
            self.needs_epoch_bump = True

    def remove(self, batch: Batch) -> None:
        """Remove a batch that is settled."""
        if batch.error is None and batch.identity == self.identity:
            self.is_known = True
        if batch in self.unsettled:
            self.unsettled.remove(batch)
        else:
            self.waiting.remove(batch)

    def replace(self, batch: Batch, parts: tuple[Batch, Batch]) -> None:
        at = self.unsettled.index(batch)
        self.unsettled[at : at + 1] = parts

    def may_move(self) -> bool:
        return self.needs_epoch_bump and all(batch.is_refused and not batch.is_on_the_way for batch in self.unsettled)

    def move_to(self, identity: ProducerIdAndEpoch) -> None:
        """Give all unsettled batches new sequences, from 0."""
        self._begin(identity)
        self.needs_epoch_bump = False
        for batch in self.unsettled:
            self._place(batch)
