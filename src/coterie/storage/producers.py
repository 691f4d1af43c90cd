"""What a partition remembers of idempotent producers, so that a batch sent twice is stored once (rule D1).

For each producer its epoch and its last five batches: a producer has at most five requests on the way, so whatever it
repeats is among them. Open transactions are remembered by their first offset, which is where stable reading ends.

The state follows from the log: `note` is told of every batch, on append and when the log is read back on opening.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from coterie.errors import ErrorCode
from coterie.protocol.batch import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from coterie.protocol.records import EndMarker
from coterie.storage.log_errors import RefusedError
from coterie.storage.survivors import LastOfProducer

__all__ = ["REMEMBERED", "Producer", "Producers", "Stored"]

REMEMBERED = 5


class Stored(NamedTuple):
    """A batch that is in the log."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class Producer:
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    stored: deque[Stored] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    @property
    def last_sequence(self) -> int:
        return self.stored[-1].last_sequence if self.stored else NO_SEQUENCE

    def take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.stored.clear()


class Producers:
    def __init__(self, max_producers: int, expiration_ms: int) -> None:
        self._max_producers = max_producers
        self._expiration_ms = expiration_ms
        self._by_id: dict[int, Producer] = {}  # the least recently used first
        self._open_since: dict[int, int] = {}  # producer id -> first offset, the lowest first

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._by_id.items())

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        return next(iter(self._open_since.values())) if self._open_since else None

    def open_since(self, producer_id: int) -> int | None:
        return self._open_since.get(producer_id)

    def last_ones(self) -> dict[int, LastOfProducer]:
        """Which batch must stay, that what is remembered of each producer follows from the log."""
        return {
            producer_id: LastOfProducer(producer.epoch, producer.stored[-1].last_offset if producer.stored else None)
            for producer_id, producer in self._by_id.items()
        }

    # --- deciding -----------------------------------------------------------------------------------------------------

    def duplicate_of(self, header: BatchHeader) -> Stored | None:
        """The same batch, if it is among the producer's last five."""
        producer = self._by_id.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for stored in producer.stored:
            if stored.first_sequence == first and stored.last_sequence == last:
                return stored
        return None

    def check_client(self, header: BatchHeader) -> None:
        """Refuse a batch that does not follow the producer's last one; one that is new here may start anywhere."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            return
        self._check_epoch(header, producer)
        expected = 0 if header.producer_epoch != producer.epoch else (producer.last_sequence + 1) & MAX_SEQUENCE
        if header.base_sequence != expected:
            raise RefusedError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence} in epoch {header.producer_epoch}; "
                f"after {producer.last_sequence} in epoch {producer.epoch} comes {expected}",
            )
        if not header.is_transactional and header.producer_id in self._open_since:
            raise RefusedError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} wrote outside of its transaction, which is open since offset "
                f"{self._open_since[header.producer_id]}",
            )

    def check_coordinator(self, header: BatchHeader, marker: EndMarker | None) -> None:
        """What a coordinator writes in a producer's name has no sequence; epochs hold all the same."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            return
        self._check_epoch(header, producer)
        if marker is not None and marker.coordinator_epoch < producer.coordinator_epoch:
            raise RefusedError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker from coordinator epoch {marker.coordinator_epoch}; {producer.coordinator_epoch} was here",
            )

    @staticmethod
    def _check_epoch(header: BatchHeader, producer: Producer) -> None:
        if header.producer_epoch < producer.epoch:
            raise RefusedError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} wrote with epoch {header.producer_epoch}; epoch {producer.epoch} "
                "has taken over",
            )

    # --- following the log --------------------------------------------------------------------------------------------

    def note(self, header: BatchHeader, marker: EndMarker | None = None) -> None:
        """A batch with its final offset is in the log."""
        if not header.has_producer:
            return
        producer_id = header.producer_id
        producer = self._by_id.pop(producer_id, None) or Producer()
        self._by_id[producer_id] = producer
        producer.take_epoch(header.producer_epoch)
        producer.last_timestamp = header.max_timestamp
        if header.is_control:
            if marker is not None:
                producer.coordinator_epoch = marker.coordinator_epoch
                self._open_since.pop(producer_id, None)
        else:
            if header.base_sequence != NO_SEQUENCE:
                stored = Stored(
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
                producer.stored.append(stored)
            if header.is_transactional:
                self._open_since.setdefault(producer_id, header.base_offset)
        if len(self._by_id) > self._max_producers:
            self._forget_one()

    def restore(self, rows: Iterable[tuple[int, Producer, int | None]]) -> None:
        """Producers from a snapshot, with where their transaction began; a producer's rows come oldest first."""
        for producer_id, producer, open_since in rows:
            known = self._by_id.setdefault(producer_id, producer)
            if known is not producer:
                known.take_epoch(producer.epoch)
                known.coordinator_epoch = producer.coordinator_epoch
                known.last_timestamp = producer.last_timestamp
                known.stored.extend(producer.stored)
            if open_since is not None:
                self._open_since[producer_id] = open_since
        self._open_since = dict(sorted(self._open_since.items(), key=lambda item: item[1]))
        for _ in range(len(self._by_id) - self._max_producers):
            self._forget_one()

    def expire(self, now_ms: int) -> list[int]:
        """Forget who has not written for `producer.id.expiration.ms` and has no transaction open; who that was."""
        gone = [
            producer_id
            for producer_id, producer in self._by_id.items()
            if now_ms - producer.last_timestamp >= self._expiration_ms and producer_id not in self._open_since
        ]
        for producer_id in gone:
            del self._by_id[producer_id]
        return gone

    def _forget_one(self) -> None:
        """The least recently used without an open transaction; those with one go to the end, out of the way."""
        for _ in range(len(self._by_id)):
            producer_id, producer = next(iter(self._by_id.items()))
            del self._by_id[producer_id]
            if producer_id not in self._open_since:
                return
            self._by_id[producer_id] = producer
