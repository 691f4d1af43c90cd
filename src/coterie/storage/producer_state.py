"""What a partition remembers of idempotent producers, so that a batch sent twice is stored once (rule D1).

For each producer its epoch and its last five batches: a producer has at most five requests on the way, so whatever it
repeats is among them. Open transactions are remembered by their first offset, which is where stable reading ends.

The state follows from the log: `note` is told of every batch, on append and when the log is read back on opening.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.batch import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from coterie.protocol.records import EndMarker
from coterie.storage.compaction import LastOfProducer
from coterie.storage.files import Files, replace_file
from coterie.storage.log_errors import RefusedError
from coterie.storage.segment_files import SNAPSHOT, join, named, offsets_of

__all__ = ["REMEMBERED", "Producer", "Producers", "Stored", "decode_snapshot", "encode_snapshot", "snapshot_later"]


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


# Producer state as of an offset, in the format of Kafka's `.snapshot` files.
#
# Kafka writes one row per producer and takes the last if there are several. We write a row for each of the last five
# batches, oldest first: Kafka's tools read the file, and after a restart a repeated batch is still known as one.

_KEPT = 10
"""Files, of a log."""

_HEAD = Struct(">hIi")  # version, checksum of all that follows it, number of rows
_ROWS_AT = 6
_ROW = Struct(">qhiqiqiq")
_VERSION = 1
_NONE = -1


def encode_snapshot(producers: Producers) -> bytes:
    rows = []
    for producer_id, producer in producers:
        open_since = producers.open_since(producer_id)
        for stored in producer.stored or [Stored(NO_SEQUENCE, NO_SEQUENCE, _NONE, _NONE, producer.last_timestamp)]:
            row = _ROW.pack(
                producer_id,
                producer.epoch,
                stored.last_sequence,
                stored.last_offset,
                stored.last_offset - stored.first_offset,
                stored.timestamp,
                producer.coordinator_epoch,
                _NONE if open_since is None else open_since,
            )
            rows.append(row)
    body = b"".join(rows)
    count = _HEAD.pack(0, 0, len(rows))[_ROWS_AT:]
    return _HEAD.pack(_VERSION, crc32c(count + body), len(rows)) + body


def snapshot_later(files: Files, directory: str, offset: int, producers: Producers) -> Callable[[], None]:
    """The producers as they are now, to be written later: it spares the next opening from reading the log."""
    path, content = join(directory, named(offset, SNAPSHOT)), encode_snapshot(producers)

    def write() -> None:
        replace_file(files, path, content, sync=False)
        for old in offsets_of(files.names(directory), SNAPSHOT)[:-_KEPT]:
            files.delete(join(directory, named(old, SNAPSHOT)))

    return write


def decode_snapshot(data: bytes, producers: Producers) -> None:
    """Restore all rows of a snapshot into `producers`; `MalformedError` before anything is restored."""
    if len(data) < _HEAD.size:
        raise MalformedError(f"a producer snapshot of {len(data)} bytes; its head alone has {_HEAD.size}")
    version, checksum, count = _HEAD.unpack_from(data)
    if version != _VERSION or crc32c(data[_ROWS_AT:]) != checksum or count * _ROW.size != len(data) - _HEAD.size:
        raise MalformedError(f"a producer snapshot of version {version} with {count} rows does not add up")
    producers.restore(map(_producer_of, _ROW.iter_unpack(data[_HEAD.size :])))


def _producer_of(row: tuple[int, ...]) -> tuple[int, Producer, int | None]:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, open_since = row
    stored: deque[Stored] = deque(maxlen=REMEMBERED)
    if last_offset >= 0 and last_sequence >= 0:
        first_sequence = (last_sequence - delta) & MAX_SEQUENCE
        stored.append(Stored(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp))
    return producer_id, Producer(epoch, coordinator_epoch, timestamp, stored), open_since if open_since >= 0 else None
